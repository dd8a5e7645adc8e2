// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of dense values that stay in device memory. Compile with nvcc.
#pragma once

#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/values/port.cuh>
#include <spar/spar.hpp>

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace spar {

namespace detail {

/// Whether a device can run an algorithm: a composition that reduces dense values as they are, whose block codec, if it
/// has one, has kernels for values of type T.
template <class Algorithm, class T>
inline constexpr bool runs_on_device = false;
template <class Storage, class Topology, class Schedule, class T>
inline constexpr bool runs_on_device<composition<selector::everything, Storage, Topology, Schedule>, T> =
    std::is_arithmetic_v<T> && requires { requires Schedule::template runs_on_device<Storage>; } &&
    (storage::plain_blocks<Storage> ||
     codec_on_device<std::remove_cvref_t<decltype(storage::blocks_of(std::declval<const Storage&>()))>, T>);

} // namespace detail

/// Runs allreduces of dense values in device memory over any transport. Kernels reduce, encode and decode the values,
/// in a stream of this object. Among `threads` whose devices can access each other's memory, or that share a device,
/// messages stay in device memory, and no rank waits for a device. Over any other transport, each message, encoded if
/// the storage encodes, travels by way of page-locked host memory, and its send waits for the copy. One object for each
/// rank, used by one thread at a time while its device is the current one; `net` must outlive it. Construction is
/// collective. Throws `cuda_error` if CUDA fails.
template <communicates Net>
class on_device {
  using port_type = device_port<detail::port_type_of<Net>>;

 public:
  explicit on_device(Net& net) : port_(detail::port_of(net)) {}

  /// Whether messages stay in device memory.
  [[nodiscard]] bool lends() const noexcept { return port_.lends(); }

  template <communicates N, element T, class Given, reduction<T> Op>
  friend void allreduce(on_device<N>& on, device_span<T> x, Given given, Op op);

 private:
  port_type port_;
};

/// Reduces values in device memory in place, like `allreduce(net, values, algorithm, op)` with the same bits, except
/// those of NaN. `algorithm` is `ring`, `recursive_doubling`, `rabenseifner` or a FlexReduce (`chains` on a tree),
/// alone or composed with `storage::bfloat16`, `half` or `qsgd`; the device must be able to call `op`. The values are
/// read after all work that was in `x.stream` when the function was called; work that is put into the stream after it
/// has returned sees the result. All ranks must pass values in device memory. If the call fails, the values are
/// unspecified. Throws `invalid_argument` before anything is sent if the values are not in memory of the current
/// device. If CUDA fails, the communicator is aborted, because other ranks may wait, and `cuda_error` is thrown.
template <communicates Net, element T, class Given, reduction<T> Op = sum>
void allreduce(on_device<Net>& on, device_span<T> x, Given given, Op op = {}) {
  using algorithm = decltype(detail::as_algorithm(std::move(given)));
  static_assert(detail::runs_on_device<algorithm, T>,
                "there are no kernels for this algorithm, storage or type of values: use ring, recursive_doubling, "
                "rabenseifner (without a codec) or chains, alone or with storage::bfloat16, half or qsgd, for numbers; "
                "spar::staged runs any other");
  detail::check_on_device(x);
  auto& port = on.port_;
  detail::device_stream& order = port.values().order();
  detail::or_abort(port, [&] { order.follow(x.stream); });
  try {
    allreduce(port, std::span<T>(x.data, static_cast<std::size_t>(x.size)), std::move(given), op);
  } catch (...) {
    cudaStreamSynchronize(order.get()); // the program may free the values
    throw;
  }
  detail::or_abort(port, [&] { order.precede(x.stream); });
}

} // namespace spar
