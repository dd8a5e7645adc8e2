// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls on device memory share: they check the device of their arguments, abort the communicator if they fail, and
// make progress while they wait.
#pragma once

#include <spar/cuda/device_span.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/runtime/communicator_rank.hpp>

#include <cstdint>
#include <exception>

#include <sched.h>

namespace spar::detail {

/// Returns `work()`. If it throws, first aborts the communicator, because other ranks may wait for this one.
template <communicates Net, class Work>
auto or_abort(Net& net, Work work) {
  try {
    return work();
  } catch (const std::exception& failure) {
    spar::abort(net, failure.what());
    throw;
  }
}

/// To be called before memory is allocated or freed, because CUDA may then wait for the device: if the transport of
/// `net` lets the device work on messages, waits for them. Otherwise CUDA might wait for messages of other ranks, which
/// may wait for this one.
template <communicates Net>
void end_transfers(Net& net) noexcept {
  if constexpr (requires { port_of(net).wait_until_idle(); }) port_of(net).wait_until_idle();
}

/// Waits until the work in `stream` that uses the buffer has ended. Meanwhile the rank takes part in the rounds of
/// partial collectives. Throws `cuda_error` if the work has failed.
template <communicates Net>
void wait_for_device(Net& net, pinned_memory::lease& host, cudaStream_t stream) {
  host.used_by(stream);
  for (; !host.idle(); sched_yield()) net.progress(false);
}

/// The device on which an object works: the current one when the object is made. The functions throw `invalid_argument`
/// if an argument belongs to another device. If CUDA fails, they abort the communicator of `net`, and throw
/// `cuda_error`.
class home_device {
 public:
  /// Throws `cuda_error` if CUDA fails.
  home_device() { check_cuda(cudaGetDevice(&number_), "cudaGetDevice"); }

  /// Checks that the device is the current one; `owner` names the object.
  template <communicates Net>
  void check_current(Net& net, const char* owner) const {
    const home_device current = or_abort(net, [] { return home_device(); });
    if (current.number_ == number_) return;
    raise<invalid_argument>({"the current device is ", current.number_, ", but this ", owner, " was made for device ",
                             number_, "; expected cudaSetDevice(", number_, ") before the call"});
  }
  /// Checks that `stream` orders work of the device.
  template <communicates Net>
  void check_stream(Net& net, cudaStream_t stream) const {
    int of = 0;
    or_abort(net, [&] { check_cuda(cudaStreamGetDevice(stream, &of), "cudaStreamGetDevice"); });
    if (of != number_)
      raise<invalid_argument>({"the CUDA stream is of device ", of, ", but the current device is ", number_});
  }
  /// Checks that the `count` values, or indices, at `data` are in memory of the device, which it may share with the
  /// host (managed memory); `what` names them.
  template <communicates Net>
  void check_memory(Net& net, const void* data, std::uint64_t count, const char* what) const {
    if (count == 0) return;
    const cudaPointerAttributes where = find(net, data);
    if (where.type != cudaMemoryTypeDevice && where.type != cudaMemoryTypeManaged)
      raise<invalid_argument>({"the ", count, " ", what, " are in host memory; expected device memory"});
    if (where.type == cudaMemoryTypeDevice && where.device != number_) {
      raise<invalid_argument>({"the ", count, " ", what, " are in memory of device ", where.device,
                               ", but the current device is ", number_});
    }
  }
  /// Checks that the host can read the `count` values at `data`.
  template <communicates Net>
  static void check_host_memory(Net& net, const void* data, std::uint64_t count) {
    if (count == 0) return;
    const cudaPointerAttributes where = find(net, data);
    if (where.type != cudaMemoryTypeDevice) return;
    raise<invalid_argument>(
        {"a span of ", count, " values is in memory of device ", where.device,
         "; expected host memory, or a spar::device_span and a spar::on_device or spar::staged that "
         "was constructed from the communicator"});
  }
  /// Makes the other checks for a call of the object `owner` on `x`.
  template <communicates Net, element T>
  void check(Net& net, const char* owner, const device_span<T>& x) const {
    check_current(net, owner);
    check_stream(net, x.stream);
    check_memory(net, x.data, x.size, "values of a spar::device_span");
  }

 private:
  template <communicates Net>
  static cudaPointerAttributes find(Net& net, const void* data) {
    cudaPointerAttributes where{};
    or_abort(net, [&] { check_cuda(cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes"); });
    return where;
  }

  int number_ = 0;
};

} // namespace spar::detail
