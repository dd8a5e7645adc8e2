// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse gradients with error feedback over NCCL, in the order of CUDA streams: no call waits for the host (SparCML,
// algorithm 1; Ok-Topk, algorithms 1 and 2). Compile with nvcc.
#pragma once

#include <spar/cuda/values/ordered.cuh>
#include <spar/cuda/values/ordered_ok_topk.cuh>
#include <spar/cuda/values/ordered_split.cuh>
#include <spar/cuda/values/ordered_topka.cuh>
#include <spar/cuda_feedback.cuh>
#include <spar/nccl_stream.hpp>
#include <spar/system/published.hpp>

#include <concepts>
#include <cstdint>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The calls of a composition in the order of a stream; no type if there are none.
template <class Composition, kernel::ranked T, index_type Index>
struct ordered_calls {};
template <kernel::ranked T, index_type Index>
struct ordered_calls<topka_allreduce, T, Index> {
  using type = ordered_topka<T, Index>;
};
template <second_phase Phase, kernel::ranked T, index_type Index>
struct ordered_calls<composition<selector::exact_topk, storage::coo, flat, split_allgather<Phase>>, T, Index> {
  using type = ordered_split<T, Index, Phase, storage::dense>;
};
template <class Codec, kernel::ranked T, index_type Index>
  requires requires(const Codec& codec) { device_codec<Codec>::together(codec); }
struct ordered_calls<composition<selector::exact_topk, storage::then<storage::coo, Codec>, flat, dsar_split>, T,
                     Index> {
  using type = ordered_split<T, Index, second_phase::dense, Codec>;
};
template <kernel::ranked T, index_type Index>
struct ordered_calls<ok_topk_allreduce<>, T, Index> {
  using type = ordered_ok_topk<T, Index>;
};

} // namespace detail

/// What the calls of a `stream_ordered_feedback` send.
struct padding_report {
  std::uint64_t selected = 0;   ///< the entries that this rank has sent in the last call
  std::uint64_t room = 0;       ///< those for which its message had room; what is not used travels as padding
  std::uint64_t stayed = 0;     ///< selected entries that had no room, in all calls: they stay in the residual
  std::uint64_t dropped = 0;    ///< sums of this rank's block that had no room, in all calls: their values return
  std::uint64_t bytes_sent = 0; ///< the bytes that a rank sends in each call, whatever it has selected
};

/// Error feedback like `device_feedback`, whose calls are also put into CUDA streams without a wait of the host: the
/// messages have the size that all ranks know before a call, a bound of what a rank may select, and say on the device
/// how many entries they contain. The sums and residuals have the bits of `device_feedback`, whose calls, `save`,
/// `load` and state this object has as well. A call puts the same work into a stream each time, allocates nothing, and
/// may be captured: the graph of a stream repeats the call on the values that are then in the memory of the captured
/// one. The graph uses the memory of this object, and must not be launched after the object has been destroyed.
///
/// `Composition` is `topka_allreduce`, a composition of `exact_topk` and a `split_allgather`, or `ok_topk_allreduce<>`.
/// `split_allgather<>` decides in the constructor how the blocks of the sum travel: as entries, or as dense values if
/// these need less room. `dsar_split`, whose blocks are dense, may have a codec for them, as
/// `quantised_sparcml_allreduce` has: call k in a stream, from 0 on, then draws the random numbers of call k of a
/// communicator. Calls of `ok_topk_allreduce<>` in a stream use the thresholds and the boundaries of the last checked
/// call: the first call must be a checked one, and later ones, which all ranks make together, find new ones. There,
/// what has no room in a message stays in the residual, and the bits are those of `device_feedback` only if that would
/// neither search nor count first. `Net` is the wrapped communicator of an `nccl_stream`, which must outlive this
/// object. One object for each rank, used by one thread at a time. All ranks must put the calls of all their objects
/// into streams in the same order, those of one object into one stream or in an order that the program makes by events.
/// Experimental: no GPU has run it.
template <communicates Net, class Composition, kernel::ranked T = float, index_type Index = std::uint32_t,
          class Op = sum>
class stream_ordered_feedback : public device_feedback<T, Composition, Index> {
  using base = device_feedback<T, Composition, Index>;
  static_assert(
      requires { typename detail::ordered_calls<Composition, T, Index>::type; },
      "a stream_ordered_feedback runs exact_topk with gather_and_merge, split_allgather<>, ssar_split or dsar_split, "
      "the latter also with as_bfloat16, as_half, qsgd or, with <spar/cuda/values/zfp.cuh>, zfp for dense values, and "
      "ok_topk_allreduce<>; for other compositions, use device_feedback");
  using calls_type = typename detail::ordered_calls<Composition, T, Index>::type;
  /// Whether calls in a stream use what a checked call has found.
  static constexpr bool uses_state =
      requires(const calls_type& calls, const typename Composition::state& found) { calls.is_ready(found); };

 public:
  /// Prepares calls on n values of the composition `algorithm` with the operation `op`, and allocates their memory;
  /// all ranks together. Throws `mismatch` with the options of two ranks if they differ, `invalid_argument` for an
  /// invalid option, `cuda_error` if CUDA fails, and the other \ref call_errors.
  stream_ordered_feedback(nccl_stream<Net>& net, std::uint64_t n, Composition algorithm, Op op = {})
      : base(net.control(), std::move(algorithm)), net_(&net), n_(valid_length(net, n, op)), op_(op),
        host_(detail::or_abort(net.control(), [] { return detail::ordered_host_memory(); })),
        calls_(detail::or_abort(net.control(), [&] { return calls_type(net.size(), n, this->algorithm_); })) {
    detail::or_abort(net.control(), [&] { this->store_.begin_with_zeros(n); });
    const detail::ordered_agreement<Composition> agreement(this->algorithm_);
    run_collective(net.control(), signature_of<T, Index, Op>(n, agreement, detail::options_of(op)), agreement);
  }
  /// Frees the memory, which waits for the work of the calls. Aborts if an exception leaves the scope.
  ~stream_ordered_feedback() { net_->end_if_failed(); }

  /// Puts a call into the stream of `x`, which then contains the sum of all ranks' selected entries, with zeros
  /// elsewhere; what this rank has not sent is in its residual. Returns without a wait. Throws `corrupt_message`
  /// and what else `wait` throws for what earlier calls have reported so far, and `invalid_argument` before it puts
  /// anything into the stream if `x` has another length than n, or is not on the device of the `nccl_stream`.
  void operator()(device_span<T> x) {
    net_->device().check_span(net_->control(), "spar::stream_ordered_feedback", x);
    check_length(x.size);
    if constexpr (uses_state) {
      if (!calls_.is_ready(this->state_))
        raise<invalid_argument>({"this spar::stream_ordered_feedback has no thresholds and boundaries for calls in a "
                                 "stream: first make a checked call, with a spar::on_device"});
    }
    refuse_reported();
    net_->or_fail([&] { calls_(*net_, x, this->store_.residual_in_place(), host_.words(), op_); });
  }
  /// The same for `x` by the way of `device_feedback`: `by` is an `on_device` or a communicator. Waits for the device.
  /// Throws `invalid_argument` if `x` has another length than n, and the errors of `device_feedback`.
  template <class By>
  void operator()(By& by, device_span<T> x) {
    check_length(x.size);
    if constexpr (uses_state) this->change_state([](auto& now) { now.select.calls = now.by.calls = 0; });
    base::operator()(by, x, op_);
    detail::or_abort(net_->control(), [&] {
      this->store_.return_residual(x.stream);
      if constexpr (uses_state) calls_.renew(this->state_, host_, x.stream);
    });
  }
  /// Not here: a call in flight would change the residual between calls in the stream.
  void start() = delete;
  /// Not here: the memory and the messages of calls in a stream are those of the options of the constructor.
  void set_algorithm(Composition) = delete;

  /// Waits for the work in `stream` (see `nccl_stream::wait`), then checks what the calls there have reported. Throws
  /// `corrupt_message`, and aborts, if a message had more entries than room, or indices that do not ascend, and
  /// `invalid_argument` if a codec could not encode a sum of this rank's block: then the sums since the last `wait` are
  /// of no use on any rank, and other ranks get `peer_failed` from a later call, `wait` or collective on the wrapped
  /// communicator. Call it before `save` and `load`, and as often as errors shall be found.
  void wait(cudaStream_t stream) {
    net_->wait(stream);
    refuse_reported();
  }
  /// The sum of the last call as entries in device memory, beside the dense one. Throws `invalid_argument` if the
  /// blocks of the sum travel as dense values.
  [[nodiscard]] ordered_entries<T, Index> sum() const { return calls_.sum(); }
  /// What the last call whose work has ended has sent.
  [[nodiscard]] padding_report padding() const noexcept {
    const detail::ordered_words& words = host_.words();
    return {.selected = host_.read(words.entries.sent),
            .room = calls_.room(),
            .stayed = host_.read(words.entries.stayed),
            .dropped = host_.read(words.dropped),
            .bytes_sent = calls_.bytes_sent()};
  }

 private:
  /// Returns n, or throws `invalid_argument` if it is too large or does not suit the options.
  std::uint64_t valid_length(const nccl_stream<Net>& net, std::uint64_t n, const Op& op) const {
    this->template validate<T>(n, net.size(), op);
    return n;
  }
  void check_length(std::uint64_t n) const {
    if (n != n_)
      raise<invalid_argument>(
          {"the vector has length ", n, ", but this spar::stream_ordered_feedback was made for ", n_, " values"});
    base::check_length(n);
  }
  /// Throws, and aborts, if calls have reported that their sums are of no use.
  void refuse_reported() {
    const std::uint64_t too_many = host_.read(host_.words().too_many);
    const std::uint64_t disordered = host_.read(host_.words().disordered);
    const bool refused = host_.read(host_.words().refused) != 0;
    if (too_many == 0 && disordered == 0 && !refused) return;
    net_->or_fail([&] {
      if (refused) {
        raise<invalid_argument>({"the storage ", storage::blocks_type<typename Composition::storage_type>::name,
                                 " cannot encode some sums of a call in a CUDA stream, which cannot send them as they "
                                 "are: use another storage"});
      }
      if (too_many > 0)
        raise<corrupt_message>({"a message of a call in a CUDA stream says that it has ", too_many,
                                " entries, but it has room for ", calls_.message_room()});
      raise<corrupt_message>(
          {"the indices of a message of a call in a CUDA stream do not ascend, or are not below ", n_});
    });
  }

  nccl_stream<Net>* net_;
  std::uint64_t n_;
  Op op_;
  detail::ordered_host_memory host_; // freed after the memory of `calls_`, which waits for the kernels
  calls_type calls_;
};

/// Prepares calls on n values of T: `auto reduce = with_stream_ordered_feedback<double>(net, n, algorithm)`. Throws
/// what the constructor of `stream_ordered_feedback` throws.
template <kernel::ranked T, index_type Index = std::uint32_t, communicates Net, class Composition, class Op = sum>
stream_ordered_feedback<Net, Composition, T, Index, Op>
with_stream_ordered_feedback(nccl_stream<Net>& net, std::uint64_t n, Composition algorithm, Op op = {}) {
  return {net, n, std::move(algorithm), op};
}

} // namespace spar::inline v0_1
