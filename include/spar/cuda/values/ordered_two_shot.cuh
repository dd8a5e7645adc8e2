// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two shots of encoded dense values in the order of a CUDA stream: all ranks know the sizes of all messages.
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/ordered_blocks.cuh>
#include <spar/storage/codec.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

/// The memory of the calls of `two_shot` on n values, and the calls, with its bits: every rank sends each owner its
/// encoded block, and gathers the encoded sums of all blocks. A block is encoded at once, in one message.
template <element T, class Codec>
class ordered_two_shot {
  using kernels = device_codec<Codec>;

 public:
  ordered_two_shot(rank_t ranks, std::uint64_t n, const Codec& codec) : ranks_(ranks), n_(n), blocks_(ranks, n, codec) {
    if (!sends()) return;
    out_.reserve(blocks_.all_bytes()), in_.reserve(blocks_.all_bytes());
    sum_.reserve(blocks_.most()), decoded_.reserve(blocks_.most());
  }

  /// Throws `invalid_argument` unless `two_shot`, with pieces of `piece` values, encodes blocks as if at once.
  static void check_piece(rank_t ranks, std::uint64_t n, const Codec& codec, std::uint64_t piece) {
    const std::uint64_t together = kernels::together(codec), grain = grain_of(codec);
    const std::uint64_t whole = std::max<std::uint64_t>(piece / grain, 1) * grain;
    if (whole % together == 0 || whole >= blocks_for(codec, n, ranks)[0].size()) return;
    raise<invalid_argument>({"the schedule two_shot has pieces of ", piece, " values, but the storage ", Codec::name,
                             " encodes ", together,
                             " values together: for calls in a CUDA stream, pieces must be "
                             "multiples, or as large as a block"});
  }

  /// Puts a call into the stream of `x`, which becomes the sum. Sets `*refused` to 1 if the codec cannot encode a
  /// value.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, std::uint32_t* refused, Op op) const {
    const cudaStream_t stream = x.stream;
    const rank_t rank = net.rank();
    if (sends()) {
      for (rank_t r = 0; r < ranks_; ++r)
        if (r != rank) encode(blocks_.of(x.data, r), r, out_, step_of(0, rank), refused, stream);
      net.exchange(out_.data(), in_.data(), blocks_.bytes(), stream);

      const std::span<T> sum(sum_.data(), blocks_[rank].size());
      for (rank_t r = 0; r < ranks_; ++r)
        add(sum, r, r == rank ? blocks_.of(x.data, rank).data() : nullptr, message(in_, r), op, stream);
      encode(sum, rank, in_, 0, refused, stream);
      blocks_.gather(net, in_.data(), x);
      blocks_.end_call(stream);
    }
    if constexpr (requires { op.finalize(T{}, ranks_); }) kernel::start_finalize(x.data, n_, ranks_, op, stream);
  }

  /// The bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept {
    return sends() ? 2 * static_cast<std::uint64_t>(ranks_ - 1) * blocks_.bytes() : 0;
  }

 private:
  [[nodiscard]] std::byte* message(const device_array<std::byte>& of, rank_t r) const noexcept {
    return blocks_.message(of.data(), r);
  }
  /// A single rank encodes nothing.
  [[nodiscard]] bool sends() const noexcept { return ranks_ > 1 && n_ > 0; }

  /// Encodes values of block r, as the encoding `step`, to the message of rank r.
  void encode(std::span<const T> values, rank_t r, const device_array<std::byte>& to, std::uint64_t step,
              std::uint32_t* refused, cudaStream_t stream) const {
    blocks_.encode(values, blocks_[r].begin, message(to, r), step, refused, stream);
  }
  /// Adds what rank r contributes to `sum`: the values `own` of this rank, or those of a message if `own` is null. The
  /// first rank's become the sum.
  template <class Op>
  void add(std::span<T> sum, rank_t r, const T* own, const std::byte* message, Op op, cudaStream_t stream) const {
    if (r == 0) {
      if (own == nullptr) return blocks_.decode(message, sum, stream);
      return start_copy(reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<const std::byte*>(own),
                        sum.size_bytes(), cudaMemcpyDeviceToDevice, stream);
    }
    if (own == nullptr) {
      if constexpr (adds<Op> && reduces_encoded<Codec, T, Op>)
        return kernels::reduce_left(blocks_.codec(), message, sum, op, stream);
      blocks_.decode(message, std::span<T>(decoded_.data(), sum.size()), stream);
      own = decoded_.data();
    }
    kernel::start_combine(sum.data(), own, sum.size(), sum.data(), op, stream);
  }

  rank_t ranks_;
  std::uint64_t n_;
  ordered_blocks<T, Codec> blocks_;
  device_array<std::byte> out_, in_; // the messages of all ranks; what owners send is in `in_`, too
  device_array<T> sum_, decoded_;    // of this rank's block
};

} // namespace spar::inline v0_1::detail
