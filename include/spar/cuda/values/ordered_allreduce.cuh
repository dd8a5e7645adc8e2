// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of encoded dense values in the order of a CUDA stream, by two shots or around a ring: all ranks know the
// sizes of all messages.
#pragma once

#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/ordered_blocks.cuh>
#include <spar/storage/codec.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace spar::inline v0_1::detail {

/// The memory of the calls of `Schedule`, `two_shot` or `ring`, on n values, and the calls, with its bits. By two
/// shots, every rank sends each owner its encoded block. Around the ring, the sum of block b begins at rank b + 1, and
/// each rank on the way to rank b adds its own values. In the end, all ranks gather the encoded sums of all blocks.
///
/// A piece of all blocks passes steps of coding, with a transfer between each two. If there are several pieces, a
/// second stream codes some of them during the transfers of others.
template <element T, class Codec, class Schedule>
class ordered_allreduce {
  using kernels = device_codec<Codec>;
  static constexpr bool is_ring = std::same_as<Schedule, ring>;

 public:
  /// The pieces of calls for a schedule with pieces of `piece` values. A kernel on fewer than 2^20 takes longer to
  /// start than to run, so blocks then stay whole.
  static std::uint64_t joined(std::uint64_t piece) noexcept {
    return piece < (1 << 20) ? std::numeric_limits<std::uint64_t>::max() : piece;
  }

  /// For blocks in pieces of `piece` values.
  ordered_allreduce(rank_t ranks, std::uint64_t n, const Codec& codec, std::uint64_t piece)
      : ranks_(ranks), n_(n), blocks_(ranks, n, codec, piece) {
    if (!sends()) return;
    if (!is_ring) out_.reserve(blocks_.all_bytes()), sum_.reserve(blocks_.most());
    in_.reserve(blocks_.all_bytes()), decoded_.reserve(blocks_.most());
    if (blocks_.pieces() > 1) coding_.emplace();
  }

  /// Throws `invalid_argument` unless the schedule, with pieces of `piece` values, encodes blocks as if at once.
  static void check_piece(rank_t ranks, std::uint64_t n, const Codec& codec, std::uint64_t piece) {
    const std::uint64_t together = kernels::together(codec), whole = whole_grains(codec, piece);
    if (whole % together == 0 || whole >= blocks_for(codec, n, ranks)[0].size()) return;
    raise<invalid_argument>({"the schedule ", Schedule::name, " has pieces of ", piece, " values, but the storage ",
                             Codec::name, " encodes ", together,
                             " values together: for calls in a CUDA stream, pieces must be "
                             "multiples, or as large as a block"});
  }

  /// Puts a call into the stream of `x`, which becomes the sum. Sets `*refused` to 1 if the codec cannot encode a
  /// value.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, std::uint32_t* refused, Op op) {
    if (sends()) {
      const std::size_t pieces = blocks_.pieces(), last = 2 * static_cast<std::size_t>(transfers());
      const cudaStream_t coding = coding_ ? coding_->get() : x.stream;
      // In each turn, a piece that is coded began an even number of turns ago, and one that is transferred an odd one.
      for (std::size_t turn = 0; turn < pieces + last; ++turn) {
        wait_for_each_other(x.stream);
        for (std::size_t i = turn > last ? turn - last : 0; i < std::min(pieces, turn + 1); ++i) {
          const auto step = static_cast<rank_t>((turn - i) / 2);
          if ((turn - i) % 2 == 0)
            code(step, i, net.rank(), x.data, refused, op, coding);
          else
            transfer(step, i, net, x.stream);
        }
      }
      wait_for_each_other(x.stream);
      blocks_.end_call(x.stream);
    }
    if constexpr (requires { op.finalize(T{}, ranks_); }) kernel::start_finalize(x.data, n_, ranks_, op, x.stream);
  }

  /// The bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept {
    return sends() ? 2 * static_cast<std::uint64_t>(ranks_ - 1) * blocks_.pieces() * blocks_.bytes() : 0;
  }

 private:
  /// A single rank encodes nothing.
  [[nodiscard]] bool sends() const noexcept { return ranks_ > 1 && n_ > 0; }
  /// The transfers of a piece.
  [[nodiscard]] rank_t transfers() const noexcept { return is_ring ? ranks_ : 2; }
  /// The block that `rank` encodes in a step around the ring.
  [[nodiscard]] rank_t block_of(rank_t rank, rank_t step) const noexcept {
    return (rank + 2 * ranks_ - 1 - step) % ranks_;
  }
  [[nodiscard]] std::byte* message(const device_array<std::byte>& of, rank_t r, std::size_t i) const noexcept {
    return blocks_.message(of.data(), r, i);
  }

  /// Lets the work that follows in `stream`, and in that of the coding, begin after the work that is in both.
  void wait_for_each_other(cudaStream_t stream) {
    if (!coding_) return;
    coding_->follow(stream);
    coding_->precede(stream);
  }

  /// Puts the transfer `step` of piece i into `stream`.
  template <class Net>
  void transfer(rank_t step, std::size_t i, Net& net, cudaStream_t stream) const {
    const std::uint64_t bytes = blocks_.bytes();
    if (step == transfers() - 1)
      net.all_gather(message(in_, 0, i), bytes, stream);
    else if constexpr (is_ring)
      net.pass_on(message(in_, block_of(net.rank(), step), i), message(in_, block_of(net.rank(), step + 1), i), bytes,
                  stream);
    else
      net.exchange(message(out_, 0, i), message(in_, 0, i), bytes, stream);
  }

  /// Puts the coding of piece i before its transfer `step`, or after the last one, into `stream`.
  template <class Op>
  void code(rank_t step, std::size_t i, rank_t rank, T* x, std::uint32_t* refused, Op op, cudaStream_t stream) const {
    const auto piece = [&](rank_t r) { return blocks_.of(x, r, i); };
    const auto encode = [&](std::span<const T> values, rank_t r, const device_array<std::byte>& to,
                            std::uint64_t number) {
      blocks_.encode(values, blocks_.range(r, i).begin, message(to, r, i), number, refused, stream);
    };
    if (step == transfers()) {
      for (rank_t r = 0; r < ranks_; ++r) blocks_.decode(message(in_, r, i), piece(r), stream);
    } else if constexpr (is_ring) {
      const rank_t r = block_of(rank, step);
      if (step > 0) reduce_left(piece(r), message(in_, r, i), op, stream);
      encode(piece(r), r, in_, static_cast<std::uint64_t>(step));
    } else if (step == 0) {
      for (rank_t r = 0; r < ranks_; ++r)
        if (r != rank) encode(piece(r), r, out_, step_of(0, rank));
    } else {
      const std::span<T> sum(sum_.data(), piece(rank).size());
      for (rank_t r = 0; r < ranks_; ++r)
        add(sum, r, r == rank ? piece(rank).data() : nullptr, message(in_, r, i), op, stream);
      encode(sum, rank, in_, 0);
    }
  }

  /// Replaces `values` by op(decoded, value) with the values of a message.
  template <class Op>
  void reduce_left(std::span<T> values, const std::byte* message, Op op, cudaStream_t stream) const {
    if constexpr (reduces_encoded<Codec, T, Op>)
      kernels::reduce_left(blocks_.codec(), message, values, op, stream);
    else
      kernel::start_combine(decoded(message, values.size(), stream), values.data(), values.size(), values.data(), op,
                            stream);
  }
  /// Adds what rank r contributes to `sum`: the values `own` of this rank, or those of a message if `own` is null. The
  /// first rank's become the sum.
  template <class Op>
  void add(std::span<T> sum, rank_t r, const T* own, const std::byte* message, Op op, cudaStream_t stream) const {
    if (r == 0 && own == nullptr) return blocks_.decode(message, sum, stream);
    if (r == 0)
      return start_copy(reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<const std::byte*>(own),
                        sum.size_bytes(), cudaMemcpyDeviceToDevice, stream);
    if constexpr (adds<Op>)
      if (own == nullptr) return reduce_left(sum, message, op, stream);
    if (own == nullptr) own = decoded(message, sum.size(), stream);
    kernel::start_combine(sum.data(), own, sum.size(), sum.data(), op, stream);
  }
  /// The `count` values of a message.
  const T* decoded(const std::byte* message, std::size_t count, cudaStream_t stream) const {
    blocks_.decode(message, std::span<T>(decoded_.data(), count), stream);
    return decoded_.data();
  }

  rank_t ranks_;
  std::uint64_t n_;
  ordered_blocks<T, Codec> blocks_;
  device_array<std::byte> out_, in_;    // the messages of all ranks; what owners send is in `in_`, too
  device_array<T> sum_, decoded_;       // of this rank's block
  std::optional<device_stream> coding_; // if there are several pieces
};

} // namespace spar::inline v0_1::detail
