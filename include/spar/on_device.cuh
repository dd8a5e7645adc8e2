// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of values that stay in device memory. Compile with nvcc.
#pragma once

#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/values/port.cuh>
#include <spar/spar.hpp>

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Whether there are kernels for the block codec of a storage, or for both of its codecs, and values of type T.
template <class Storage, class T>
inline constexpr bool blocks_on_device =
    storage::plain_blocks<Storage> || codec_on_device<storage::blocks_type<Storage>, T>;
template <class Storage, class T>
inline constexpr bool encodes_on_device =
    entries_on_device<storage::streams_type<Storage>, T> && blocks_on_device<Storage, T>;
/// Whether there are kernels for the streams of a schedule, and for the entries and dense sums of the storage.
template <class Storage, class Schedule, class T>
inline constexpr bool streams_on_device = (sizeof(T) == 4 || sizeof(T) == 8) && encodes_on_device<Storage, T> &&
                                          requires { requires Schedule::streams_anywhere; };
template <class Storage, class Schedule>
inline constexpr bool values_run_on_device = requires { requires Schedule::template values_anywhere<Storage>; };

/// Whether a device can run an algorithm, which must be a composition, on values of type T.
template <class Algorithm, class T>
inline constexpr bool runs_on_device = false;
template <class Selector, class Storage, class Topology, class Schedule, class T>
inline constexpr bool runs_on_device<composition<Selector, Storage, Topology, Schedule>, T> =
    std::is_arithmetic_v<T> && selects<Selector, T, std::uint32_t, device_work> &&
    streams_on_device<Storage, Schedule, T>;
template <class Storage, class Topology, class Schedule, class T>
inline constexpr bool runs_on_device<composition<selector::everything, Storage, Topology, Schedule>, T> =
    std::is_arithmetic_v<T> && blocks_on_device<Storage, T> &&
    (values_run_on_device<Storage, Schedule> || streams_on_device<Storage, Schedule, T>);
/// Whether a device can run an algorithm on streams.
template <class Algorithm, class T>
inline constexpr bool reduces_streams_on_device = false;
template <class Storage, class Topology, class Schedule, class T>
inline constexpr bool reduces_streams_on_device<composition<selector::everything, Storage, Topology, Schedule>, T> =
    std::is_arithmetic_v<T> && streams_on_device<Storage, Schedule, T>;

/// Whether an algorithm reduces dense values without entries, so that it uses no stream codec.
template <class Algorithm>
inline constexpr bool reduces_values_alone = false;
template <class Storage, class Topology, class Schedule>
inline constexpr bool reduces_values_alone<composition<selector::everything, Storage, Topology, Schedule>> =
    values_run_on_device<Storage, Schedule>;

/// Whether there are kernels for the options of the stream codec of `algorithm`, a composition or a part of one.
template <class Algorithm>
[[nodiscard]] bool has_codec_on_device(const Algorithm& algorithm) {
  return device_work::has_kernels(storage::streams_of(as_algorithm(algorithm).store));
}
/// Throws `invalid_argument` if there are none.
template <class Algorithm>
void check_codec_on_device(const Algorithm& algorithm) {
  if (has_codec_on_device(algorithm)) return;
  raise<invalid_argument>({"storage::coded without .fast = true encodes entries in device memory: there are no kernels "
                           "for its Rice code, whose numbers differ in length; set .fast = true ('coded:fast' in a "
                           "text), which gives the numbers of a block equal widths"});
}

/// The order of one call among the work in the user's stream.
template <class Port>
class call_on_device {
 public:
  /// The call begins after the work that is now in `user`.
  call_on_device(Port& port, cudaStream_t user) : port_(&port), user_(user) {
    last_cuda_error.clear();
    or_abort(port, [&] { order().follow(user); });
  }
  /// Throws `invalid_argument` if another device is the current one.
  void check_device() const { port_->check_device(); }
  [[nodiscard]] const home_device& device() const noexcept { return port_->device(); }
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
  [[nodiscard]] device_stream& order() const noexcept { return port_->work().order(); }

  Port* port_;
  cudaStream_t user_;
};

/// The result of a call that leaves only its values.
struct nothing_kept {
  static void keep() noexcept {}
};

} // namespace detail

/// The handle of a non-blocking call on values in device memory. The `on_device` object and the user's stream must
/// outlive it. The values must not be freed before `wait` has returned or thrown, also after `cancel`. `Result` keeps
/// what the call leaves besides the values.
template <class Port, class Result = detail::nothing_kept>
class [[nodiscard]] pending_on_device {
 public:
  /// Called by the functions that start calls: the handle of `call`, whose work `order` puts into the user's stream.
  pending_on_device(detail::call_on_device<Port> order, pending_call<Port, void> call, Result result = {}) noexcept
      : order_(order), call_(std::move(call)), result_(std::move(result)) {}
  /// Takes over the call of `other`.
  pending_on_device(pending_on_device&& other) noexcept
      : order_(other.order_), call_(std::move(other.call_)), result_(std::move(other.result_)),
        waited_(std::exchange(other.waited_, true)) {}
  /// Waits for the call unless `wait` was called, whichever device is the current one, and ignores its errors.
  ~pending_on_device() {
    if (waited_) return;
    const detail::home_device::scope device(order_.device());
    try {
      wait();
    } catch (...) { // the communicator has failed, and later calls throw
    }
  }

  /// Makes progress without blocking, and returns whether the call has ended, so that `wait` does not block. Throws
  /// `invalid_argument` if the device of the `on_device` object is not the current one; the call goes on.
  [[nodiscard]] bool done() {
    order_.check_device();
    return call_.done();
  }
  /// Makes progress until the call has ended, at most for `seconds`, and returns whether it has ended, as `done` does.
  /// Throws `invalid_argument` if `seconds` is negative or NaN, and as `done` does.
  [[nodiscard]] bool wait_for(double seconds) {
    order_.check_device();
    return call_.wait_for(seconds);
  }
  /// Waits until the work of the call is in its stream. Work that is put into the user's stream afterwards sees the
  /// result. Throws the error of the call; later calls of `wait` do nothing. Throws `invalid_argument` if the device of
  /// the `on_device` object is not the current one; `wait` may then be called again.
  void wait() {
    if (waited_) return;
    order_.check_device();
    waited_ = true;
    Result result(std::move(result_)); // destroyed also after an error
    order_.run([&] { call_.wait(); });
    result.keep();
  }
  /// Aborts the communicator unless the call has ended (see `pending`).
  void cancel() { call_.cancel(); }
  /// Messages, bytes and seconds of this call; complete once the call has ended.
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return call_.statistics(); }

 private:
  detail::call_on_device<Port> order_;
  pending_call<Port, void> call_;
  Result result_;
  bool waited_ = false;
};

/// Runs allreduces of values in device memory over any transport. Kernels select entries, merge them, and reduce,
/// encode and decode dense values, in a stream of this object. Messages stay in device memory among `threads` whose
/// devices can access each other's memory, or that share a device, and over `nccl`; `mpi` and `ucx` send large
/// messages from device memory, and receive them there, if the library can, `ucx` those of dense values. Any other
/// message, encoded if the storage encodes, travels by way of page-locked host memory, and its send waits for the copy.
/// One object for each rank, used by one thread at a time while its device is the current one; `net` must outlive it.
/// Over `threads`, construction is collective. The constructor throws `cuda_error` if CUDA fails, `peer_failed` if
/// another rank fails, and `invalid_argument` if `net` has a progress thread, or is an `nccl` of another device.
template <communicates Net>
class on_device {
 public:
  using port_type = device_port<detail::port_type_of<Net>>; ///< the transport of this rank for values in device memory

  /// Prepares the rank `net` for values in memory of the current device.
  explicit on_device(Net& net) : port_(detail::port_of(net)) {}

  /// Whether ranks read messages in each other's device memory.
  [[nodiscard]] bool lends() const noexcept { return port_.lends(); }

  // The functions below are for spar's other headers.

  /// The transport on which calls run.
  [[nodiscard]] port_type& transport() noexcept { return port_; } // not `port()`: this is no communicator
  /// Begins a call of `algorithm` on `x`; does not compile for what no device can run. Throws `invalid_argument` if `x`
  /// is not in memory of the current device, if there are no kernels for the options of the storage, or if the
  /// communicator has a progress thread, and `cuda_error` if CUDA fails.
  template <class Algorithm, element T>
  [[nodiscard]] detail::call_on_device<port_type> begin(const Algorithm& algorithm, device_span<T> x) {
    using composed_type = decltype(detail::as_algorithm(std::declval<Algorithm>()));
    static_assert(
        detail::runs_on_device<composed_type, T>,
        "there are no kernels for this selector, schedule, storage or type of values: for dense numbers, use "
        "cheapest, ring, recursive_doubling, rabenseifner (without a codec) or chains, alone or with "
        "storage::as_bfloat16, as_half, qsgd or zfp (include <spar/cuda/values/zfp.cuh>), and two_shot or one_shot "
        "with one of these codecs; for entries of numbers of 4 or 8 bytes, use exact_topk, threshold_reuse, gaussian, "
        "bucket_topk or a selector of your own for any workspace, the storage coo, or coded with .fast = "
        "true (one that rounds for float and double), also with a codec for dense values, and cheapest, "
        "recursive_doubling, ring, split_allgather, gather_and_merge, tree_of_topk, balanced_owners, quantile_owners "
        "or chains; spar::staged runs any other");
    port_.refuse_progress_thread();
    port_.device().check_span(port_, port_type::owner, x);
    if constexpr (!detail::reduces_values_alone<composed_type>) detail::check_codec_on_device(algorithm);
    return {port_, x.stream};
  }
  /// Begins a call of `algorithm` on the stream `mine`, whose entries are in device memory, after the work in the CUDA
  /// stream `user`. Throws `invalid_argument` if `mine` is malformed or not in memory of the current device, if there
  /// are no kernels for the options of the storage, or if the communicator has a progress thread; `cuda_error` if CUDA
  /// fails; and the \ref call_errors, because the rank makes progress on its other calls while it waits for the device.
  template <class Algorithm, element T, index_type Index>
  [[nodiscard]] detail::call_on_device<port_type> begin(const Algorithm& algorithm, const stream_view<T, Index>& mine,
                                                        cudaStream_t user) {
    using composed_type = decltype(detail::as_algorithm(std::declval<Algorithm>()));
    static_assert(
        detail::reduces_streams_on_device<composed_type, T>,
        "there are no kernels for streams with this algorithm, storage or type of values: use numbers of 4 or "
        "8 bytes, the storage coo, or coded with .fast = true (one that rounds for float and double), "
        "also with a codec for dense values, and cheapest, recursive_doubling, ring, split_allgather, "
        "gather_and_merge, quantile_owners or chains");
    detail::check_codec_on_device(algorithm);
    const auto order = begin_entries(mine.indices(), mine.values(), user);
    detail::validate_counts(mine);
    const auto on_host = detail::or_abort(port_, [&] {
      const std::uint64_t end = mine.indices().size();
      const auto all = [&](std::size_t) { return index_range{0, mine.dimension()}; };
      return run_until_done(port_, port_.work().wrong_indices(mine.indices(), std::span(&end, 1), all));
    });
    detail::validate_indices(std::as_const(on_host).span(), mine.dimension());
    return order;
  }
  /// Begins work on entries in device memory, after the work in the CUDA stream `user`. Throws `invalid_argument` if
  /// `indices` and `values` are not in memory of the current device, or if the communicator has a progress thread, and
  /// `cuda_error` if CUDA fails.
  template <element T, class Int>
  [[nodiscard]] detail::call_on_device<port_type> begin_entries(std::span<const Int> indices, std::span<const T> values,
                                                                cudaStream_t user) {
    port_.refuse_progress_thread();
    const detail::home_device& device = port_.device();
    device.check_current(port_, port_type::owner);
    device.check_stream(port_, user);
    device.check_memory(port_, values.data(), values.size(), "values of a stream");
    device.check_memory(port_, indices.data(), indices.size(), "indices of a stream");
    return {port_, user};
  }
  /// The values of `x` as a span, which host code must not read.
  template <element T>
  [[nodiscard]] static std::span<T> values(device_span<T> x) noexcept {
    return {x.data, static_cast<std::size_t>(x.size)};
  }

 private:
  port_type port_;
};

/// Reduces values in device memory in place, like `allreduce(net, values, algorithm, op)` with the same bits, except
/// those of NaN. The device must be able to call `op`. `algorithm` is
///
/// - for dense values: `cheapest`, `ring`, `recursive_doubling`, `rabenseifner` or a FlexReduce (`chains` on a tree),
///   alone or composed with `storage::as_bfloat16`, `as_half`, `qsgd` or `zfp`, and `two_shot` or `one_shot` composed
///   with one of these codecs;
/// - for entries that the selector `exact_topk`, `threshold_reuse`, `gaussian`, `bucket_topk`, or one of the program
///   that leaves the work to the workspace takes from the values: `cheapest`, `recursive_doubling`, `ring`,
///   `split_allgather`, `gather_and_merge`, `tree_of_topk`, `balanced_owners`, `quantile_owners` or `chains`, with
///   entries as they are or by `storage::coded` with `fast`, and dense sums by one of these codecs.
///
/// All of them also run on the topologies `on_tree` and `on_plan`, as far as they do on the host.
///
/// The values are read after all work that was in `x.stream` when the function was called; work that is put into the
/// stream after it has returned sees the result. Over `threads`, all ranks must pass values in device memory. If the
/// call fails, the values are unspecified. Throws `invalid_argument` before anything is sent if the values or the
/// stream are not those of the device for which `on` was made, if this device is not the current one, or if `net` has a
/// progress thread. If CUDA fails, aborts the communicator and throws `cuda_error`: other ranks may wait.
template <communicates Net, element T, class Algorithm = sparcml, reduction<T> Op = sum>
void allreduce(on_device<Net>& on, device_span<T> x, Algorithm algorithm = {}, Op op = {}) {
  on.begin(algorithm, x).run([&] { allreduce(on.transport(), on.values(x), std::move(algorithm), op); });
}
/// Reduces streams whose entries are in device memory, like `allreduce(net, stream, algorithm, op)`, with the same
/// bits, and returns the sum. `algorithm` is `cheapest`, `recursive_doubling`, `ring`, `split_allgather`,
/// `gather_and_merge`, `quantile_owners` or `chains`. `mine` is read after all work that is now in `stream`; work that
/// is put into `stream` afterwards sees the sum. The memory of the sum belongs to `on`, which must outlive
/// it; once the sum is destroyed, a later call of `on` with this `stream` may use its memory again. Waits for the
/// device whenever a number of entries is needed. Throws `invalid_argument`, before anything is sent, for a malformed
/// stream. Other errors are those of the overload for dense values.
template <communicates Net, element T, index_type Index, class Algorithm = sparcml, reduction<T> Op = sum>
[[nodiscard]] sparse_stream<T, Index, cuda> allreduce(on_device<Net>& on, const stream_view<T, Index, cuda>& mine,
                                                      cudaStream_t stream, Algorithm algorithm = {}, Op op = {}) {
  const stream_view<T, Index> there(mine);
  sparse_stream<T, Index> sum;
  on.begin(algorithm, there, stream).run([&] { sum = allreduce(on.transport(), there, std::move(algorithm), op); });
  return sparse_stream<T, Index, cuda>(std::move(sum));
}
/// Starts an allreduce of the dense values `x` on the rank `on` by `algorithm`, and returns its handle (see
/// `pending_on_device`). The values and the handle must stay valid until the call has ended. Several calls may be in
/// flight; their work is in one stream, in the order in which messages arrive.
template <communicates Net, element T, class Algorithm = sparcml, reduction<T> Op = sum>
auto start_allreduce(on_device<Net>& on, device_span<T> x, Algorithm algorithm = {}, Op op = {}) {
  const auto order = on.begin(algorithm, x);
  return pending_on_device<typename on_device<Net>::port_type>(
      order, start_allreduce(on.transport(), on.values(x), std::move(algorithm), op));
}

} // namespace spar::inline v0_1
