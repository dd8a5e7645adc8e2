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

/// The order of one call among the work in the user's stream.
template <class Port>
class call_on_device {
 public:
  /// The call begins after the work that is now in `user`.
  call_on_device(Port& port, cudaStream_t user) : port_(&port), user_(user) {
    or_abort(port, [&] { order().follow(user); });
  }
  /// Runs `call()`; then, further work in the user's stream begins after the call.
  template <class Call>
  void run(Call call) const {
    try {
      call();
      or_abort(*port_, [&] { order().precede(user_); });
    } catch (...) {
      port_->end_work();
      throw;
    }
  }

 private:
  [[nodiscard]] device_stream& order() const noexcept { return port_->values().order(); }

  Port* port_;
  cudaStream_t user_;
};

} // namespace detail

/// The handle of a non-blocking call on values in device memory. The `on_device` object and the user's stream must
/// outlive it. The values must not be freed before `wait` has returned or thrown, also after `cancel`.
template <class Port>
class [[nodiscard]] pending_on_device {
 public:
  pending_on_device(detail::call_on_device<Port> order, detail::pending_call<Port, void> call) noexcept
      : order_(order), call_(std::move(call)) {}
  pending_on_device(pending_on_device&& other) noexcept
      : order_(other.order_), call_(std::move(other.call_)), waited_(std::exchange(other.waited_, true)) {}
  /// Waits for the call unless `wait` was called, and ignores its errors.
  ~pending_on_device() {
    try {
      wait();
    } catch (...) { // the communicator has failed, and later calls throw
    }
  }

  /// Makes progress without blocking, and returns whether the call has ended, so that `wait` does not block.
  [[nodiscard]] bool done() { return call_.done(); }
  /// Waits until the work of the call is in its stream. Work that is put into the user's stream afterwards sees the
  /// result. Throws the error of the call; later calls of `wait` do nothing.
  void wait() {
    if (std::exchange(waited_, true)) return;
    order_.run([&] { call_.wait(); });
  }
  /// Aborts the communicator unless the call has ended (see `pending`).
  void cancel() { call_.cancel(); }
  /// Messages, bytes and seconds of this call; complete once the call has ended.
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return call_.statistics(); }

 private:
  detail::call_on_device<Port> order_;
  detail::pending_call<Port, void> call_;
  bool waited_ = false;
};

/// Runs allreduces of dense values in device memory over any transport. Kernels reduce, encode and decode the values,
/// in a stream of this object. Messages stay in device memory among `threads` whose devices can access each other's
/// memory, or that share a device, and over `nccl`; `mpi` sends large messages from device memory, and receives them
/// there, if the MPI library can. Any other message, encoded if the storage encodes, travels by way of page-locked host
/// memory, and its send waits for the copy. One object for each rank, used by one thread at a time while its device is
/// the current one; `net` must outlive it. Over `threads`, construction is collective. The constructor throws
/// `cuda_error` if CUDA fails, `peer_failed` if another rank fails, and `invalid_argument` if `net` has a progress
/// thread.
template <communicates Net>
class on_device {
 public:
  using port_type = device_port<detail::port_type_of<Net>>;

  explicit on_device(Net& net) : port_(detail::port_of(net)) {}

  /// Whether ranks read messages in each other's device memory.
  [[nodiscard]] bool lends() const noexcept { return port_.lends(); }

  template <communicates N, element T, class Given, reduction<T> Op>
  friend void allreduce(on_device<N>& on, device_span<T> x, Given given, Op op);
  template <communicates N, element T, class Given, reduction<T> Op>
  friend auto start_allreduce(on_device<N>& on, device_span<T> x, Given given, Op op);

 private:
  /// Begins a call on `x`; refuses what no device can run.
  template <class Given, element T>
  detail::call_on_device<port_type> begin(device_span<T> x) {
    using algorithm = decltype(detail::as_algorithm(std::declval<Given>()));
    static_assert(detail::runs_on_device<algorithm, T>,
                  "there are no kernels for this algorithm, storage or type of values: use ring, recursive_doubling, "
                  "rabenseifner (without a codec) or chains, alone or with storage::bfloat16, half, qsgd or zfp "
                  "(include <spar/cuda/values/zfp.cuh>), for numbers; spar::staged runs any other");
    port_.refuse_progress_thread();
    detail::check_on_device(port_, x);
    return {port_, x.stream};
  }
  template <element T>
  static std::span<T> values(device_span<T> x) noexcept {
    return {x.data, static_cast<std::size_t>(x.size)};
  }

  port_type port_;
};

/// Reduces values in device memory in place, like `allreduce(net, values, algorithm, op)` with the same bits, except
/// those of NaN. `algorithm` is `ring`, `recursive_doubling`, `rabenseifner` or a FlexReduce (`chains` on a tree),
/// alone or composed with `storage::bfloat16`, `half`, `qsgd` or `zfp`; the device must be able to call `op`. The
/// values are read after all work that was in `x.stream` when the function was called; work that is put into the stream
/// after it has returned sees the result. Over `threads`, all ranks must pass values in device memory. If
/// the call fails, the values are unspecified. Throws `invalid_argument` before anything is sent if the values are not
/// in memory of the current device, or if `net` has a progress thread. If CUDA fails, the communicator is aborted,
/// because other ranks may wait, and `cuda_error` is thrown.
template <communicates Net, element T, class Given, reduction<T> Op = sum>
void allreduce(on_device<Net>& on, device_span<T> x, Given given, Op op = {}) {
  on.template begin<Given>(x).run([&] { allreduce(on.port_, on.values(x), std::move(given), op); });
}
/// Starts such a call and returns its handle (see `pending_on_device`). The values and the handle must stay valid until
/// the call has ended. Several calls may be in flight; their work is in one stream, in the order in which messages
/// arrive.
template <communicates Net, element T, class Given, reduction<T> Op = sum>
auto start_allreduce(on_device<Net>& on, device_span<T> x, Given given, Op op = {}) {
  const auto order = on.template begin<Given>(x);
  return pending_on_device<typename on_device<Net>::port_type>(
      order, start_allreduce(on.port_, on.values(x), std::move(given), op));
}

} // namespace spar
