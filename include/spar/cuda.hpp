// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on vectors in device memory. Host code: any C++20 compiler with the headers of the CUDA toolkit; link its
// runtime (CMake: CUDA::cudart).
#pragma once

#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/spar.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Runs collectives on values in device memory over any transport but the simulator, whose programs must not block,
/// through page-locked host memory: copies the values to the host, runs the collective there, and copies the result
/// back. Every algorithm may be used, and ranks with and without a GPU may take part in the same call. One object for
/// each rank and device, used by one thread at a time, while the device is the current one; `net` must outlive it.
template <communicates Net>
class staged {
 public:
  /// Prepares the rank `net` for values in memory of the current device. If CUDA fails, aborts the communicator, and
  /// throws `cuda_error`.
  explicit staged(Net& net) : net_(&net), device_(detail::or_abort(net, [] { return detail::home_device(); })) {}

  /// The rank.
  [[nodiscard]] Net& net() const noexcept { return *net_; }

  /// Calls `f(values)` with a copy of the values of `x` in host memory, and then starts to copy the values back, in the
  /// order of `x.stream`. Returns before this copy has ended: work that is put into the stream afterwards sees the new
  /// values. While the rank waits for the copy to the host, it takes part in the rounds of partial collectives. If `f`
  /// throws, the values in device memory do not change. Throws `invalid_argument` before anything is sent if the values
  /// or the stream are of another device than this object, or if another device is the current one. If CUDA fails,
  /// aborts the communicator and throws `cuda_error`: other ranks may wait for this one.
  template <element T, std::invocable<std::span<T>> F>
  void on_host(device_span<T> x, F&& f) {
    if (x.size == 0) {
      std::forward<F>(f)(std::span<T>());
      return;
    }
    device_.check_span(*net_, "spar::staged", x);
    const std::size_t bytes = static_cast<std::size_t>(x.size) * sizeof(T);
    detail::pinned_memory::lease host =
        detail::or_abort(*net_, [&] { return pinned_.take(bytes, [&] { detail::end_transfers(*net_); }); });
    detail::or_abort(*net_, [&] {
      detail::check_cuda(cudaMemcpyAsync(host.data(), x.data, bytes, cudaMemcpyDeviceToHost, x.stream),
                         "cudaMemcpyAsync to the host");
      detail::wait_for_device(*net_, host, x.stream);
    });
    std::forward<F>(f)(std::span<T>(static_cast<T*>(host.data()), x.size));
    detail::or_abort(*net_, [&] {
      detail::check_cuda(cudaMemcpyAsync(x.data, host.data(), bytes, cudaMemcpyHostToDevice, x.stream),
                         "cudaMemcpyAsync to the device");
      host.used_by(x.stream);
    });
  }

 private:
  Net* net_;
  detail::home_device device_;
  detail::pinned_memory pinned_;
};

/// Reduces the values `x` in device memory in place by `on`, like `allreduce(net, values, ...)` with the same further
/// arguments `rest`. Throws the errors of `staged::on_host`.
template <communicates Net, element T, class... Rest>
void allreduce(staged<Net>& on, device_span<T> x, Rest&&... rest) {
  on.on_host(x, [&](std::span<T> values) { allreduce(on.net(), values, std::forward<Rest>(rest)...); });
}

} // namespace spar::inline v0_1
