// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of encoded dense values over NCCL, in the order of CUDA streams: no call waits for the host (two-shot:
// QuickReduce; COCCL, PPoPP 2026; ring: Zhou et al., algorithm 1). Compile with nvcc.
#pragma once

#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/ordered.cuh>
#include <spar/cuda/values/ordered_allreduce.cuh>
#include <spar/nccl_stream.hpp>
#include <spar/spar.hpp>

#include <concepts>
#include <cstdint>

namespace spar::inline v0_1 {

/// Allreduces of dense values by `two_shot` or `ring`, which are put into CUDA streams without a wait of the host. A
/// call puts the same work into a stream each time, allocates nothing, and may be captured: the graph of a stream
/// repeats the call on the values that are then in the memory of the captured one, with other random numbers. The graph
/// uses the memory of this object, and must not be launched after the object has been destroyed.
///
/// `Composition` has the schedule `two_shot` or `ring` without hosts, and a storage `as_bfloat16`, `as_half`, `qsgd`
/// or, with `<spar/cuda/values/zfp.cuh>`, `zfp`. The bits are those of `allreduce`: for a codec with random rounding,
/// call k of the object, from 0 on, has those of the call with this number on a communicator. A call in a stream cannot
/// send values as they are, as `allreduce` does with a piece that a codec cannot encode: such a call is reported. Plain
/// values need no such object: call ncclAllReduce.
///
/// A block is encoded and sent at once, unless the schedule has pieces of 2^20 values or more (the option `piece`) and
/// a block consists of several: then a second stream, which the object owns, encodes and decodes some pieces during the
/// transfers of others, and a call takes as many more kernels. The bits are the same.
///
/// `Net` is the wrapped communicator of an `nccl_stream`, which must outlive this object. One object for each rank,
/// used by one thread at a time. All ranks must put the calls of all their objects into streams in the same order,
/// those of one object into one stream or in an order that the program makes by events. Experimental: no GPU has run
/// it.
template <communicates Net, class Composition, element T = float, class Op = sum>
class stream_ordered_allreduce {
  static_assert(
      requires { typename Composition::storage_type; },
      "a stream_ordered_allreduce takes a composition, such as compose(storage::as_bfloat16{}, two_shot{})");
  using codec_type = storage::blocks_type<typename Composition::storage_type>;
  using schedule_type = typename Composition::schedule_type;
  using calls_type = detail::ordered_allreduce<T, codec_type, schedule_type>;
  static_assert((std::same_as<schedule_type, two_shot> || std::same_as<schedule_type, ring>) &&
                    std::same_as<typename Composition::topology_type, flat> && !Composition::selects_entries &&
                    !storage::plain_blocks<typename Composition::storage_type> &&
                    detail::codec_on_device<codec_type, T> &&
                    requires(const codec_type& codec) { detail::device_codec<codec_type>::together(codec); },
                "a stream_ordered_allreduce runs two_shot or ring with as_bfloat16, as_half, qsgd or, with "
                "<spar/cuda/values/zfp.cuh>, zfp; for other compositions, use on_device");

 public:
  /// Prepares calls on n values of the composition `algorithm` with the operation `op`, and allocates their memory;
  /// all ranks together. Throws `mismatch` with the options of two ranks if they differ, `invalid_argument` for an
  /// invalid option, or if the pieces of the schedule are not multiples of what the codec encodes together,
  /// `cuda_error` if CUDA fails, and the other \ref call_errors.
  stream_ordered_allreduce(nccl_stream<Net>& net, std::uint64_t n, const Composition& algorithm, Op op = {})
      : net_(&net), n_(valid_length(net, n, algorithm, op)), op_(op),
        host_(detail::or_abort(net.control(), [] { return detail::ordered_host_memory(); })),
        calls_(detail::or_abort(net.control(), [&] {
          return calls_type(net.size(), n, storage::blocks_of(algorithm.store), calls_type::joined(algorithm.by.piece));
        })) {
    const detail::ordered_agreement<Composition> agreement(algorithm);
    run_collective(net.control(), signature_of<T, no_indices, Op>(n, agreement, detail::options_of(op)), agreement);
  }
  /// Frees the memory, which waits for the work of the calls. Aborts if an exception leaves the scope.
  ~stream_ordered_allreduce() { net_->end_if_failed(); }

  /// Puts a call into the stream of `x`, which then contains the reduced values of all ranks. Returns without a wait.
  /// Throws what `wait` throws for what earlier calls have reported so far, and `invalid_argument` before it puts
  /// anything into the stream if `x` has another length than n, or is not on the device of the `nccl_stream`.
  void operator()(device_span<T> x) {
    net_->device().check_span(net_->control(), "spar::stream_ordered_allreduce", x);
    if (x.size != n_) {
      raise<invalid_argument>(
          {"the vector has length ", x.size, ", but this spar::stream_ordered_allreduce was made for ", n_, " values"});
    }
    refuse_reported();
    net_->or_fail([&] { calls_(*net_, x, &host_.words().refused, op_); });
  }

  /// Waits for the work in `stream` (see `nccl_stream::wait`), then checks what the calls there have reported. Throws
  /// `invalid_argument`, and aborts, if the codec could not encode a value of this rank or of its block of the sum:
  /// then the results since the last `wait` are of no use on any rank, and other ranks get `peer_failed` from a later
  /// call, `wait` or collective on the wrapped communicator.
  void wait(cudaStream_t stream) {
    net_->wait(stream);
    refuse_reported();
  }
  /// The bytes that a rank sends in each call.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return calls_.bytes_sent(); }

 private:
  /// Returns n, or throws `invalid_argument` if it does not suit the options.
  static std::uint64_t valid_length(const nccl_stream<Net>& net, std::uint64_t n, const Composition& algorithm,
                                    const Op& op) {
    algorithm.template validate<T>(n, net.size(), op);
    calls_type::check_piece(net.size(), n, storage::blocks_of(algorithm.store), algorithm.by.piece);
    return n;
  }
  /// Throws, and aborts, if calls have reported that their results are of no use.
  void refuse_reported() {
    if (host_.read(host_.words().refused) == 0) return;
    net_->or_fail([] {
      raise<invalid_argument>({"the storage ", codec_type::name,
                               " cannot encode some values of a call in a CUDA stream, which cannot send them as they "
                               "are: use another storage, or calls of a spar::on_device"});
    });
  }

  nccl_stream<Net>* net_;
  std::uint64_t n_;
  Op op_;
  detail::ordered_host_memory host_; // freed after the memory of `calls_`, which waits for the kernels
  calls_type calls_;
};

/// Prepares calls on n values of T: `auto reduce = with_stream_ordered_allreduce<double>(net, n, algorithm)`. Throws
/// what the constructor of `stream_ordered_allreduce` throws.
template <element T = float, communicates Net, class Composition, class Op = sum>
stream_ordered_allreduce<Net, Composition, T, Op>
with_stream_ordered_allreduce(nccl_stream<Net>& net, std::uint64_t n, const Composition& algorithm, Op op = {}) {
  return {net, n, algorithm, op};
}

} // namespace spar::inline v0_1
