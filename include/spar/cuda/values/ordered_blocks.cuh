// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of dense values in the order of a CUDA stream, each encoded by its owner: all ranks know the sizes of all
// messages.
#pragma once

#include <spar/collective/wire/encode_pipeline.hpp>
#include <spar/core/element.hpp>
#include <spar/core/index_range.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/storage/codec.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace spar::inline v0_1::detail {

/// Whether the encoding by `Codec` draws random numbers. They depend on the number of the call, which a graph that is
/// launched again cannot get from the host.
template <class Codec>
concept draws_on_device = requires(const Codec& codec, std::span<const float> x, std::byte* out,
                                   const std::uint64_t* calls, cudaStream_t stream) {
  device_codec<Codec>::encode(codec, x, out, std::uint64_t{}, calls, std::uint64_t{}, stream);
};

/// The number of values in a piece that consists of whole grains of the codec and has about `piece` values.
template <class Codec>
std::uint64_t whole_grains(const Codec& codec, std::uint64_t piece) {
  return std::max<std::uint64_t>(piece / grain_of(codec), 1) * grain_of(codec);
}

/// The blocks of n values, one for each rank, and their encodings, in messages of equal size. A block is encoded at
/// once, or in pieces, each of which has a message.
template <element T, class Codec>
class ordered_blocks {
  using kernels = device_codec<Codec>;

 public:
  ordered_blocks(rank_t ranks, std::uint64_t n, const Codec& codec,
                 std::uint64_t piece = std::numeric_limits<std::uint64_t>::max())
      : ranks_(ranks), n_(n), codec_(codec), piece_(whole_grains(codec, piece)),
        bytes_((codec.template encoded_bytes<T>(most()) + 15) / 16 * 16) {
    if constexpr (draws_on_device<Codec>) calls_.assign({0});
  }

  [[nodiscard]] const Codec& codec() const noexcept { return codec_; }
  [[nodiscard]] index_range operator[](rank_t r) const noexcept { return blocks_for(codec_, n_, ranks_)[r]; }
  /// The pieces of a block.
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_in(0).count(); }
  /// The indices of piece i of block r.
  [[nodiscard]] index_range range(rank_t r, std::size_t i) const noexcept { return pieces_in(r)[i]; }
  /// The values of the largest piece, and the bytes of a message, and of those of all ranks and pieces.
  [[nodiscard]] std::uint64_t most() const noexcept { return range(0, 0).size(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t all_bytes() const noexcept {
    return pieces() * static_cast<std::uint64_t>(ranks_) * bytes_;
  }
  /// The message of piece i of block r in an array with those of all, in which those of a piece are neighbours.
  [[nodiscard]] std::byte* message(std::byte* all, rank_t r, std::size_t i = 0) const noexcept {
    return all + (i * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(r)) * bytes_;
  }
  /// The values of piece i of block r in `x`, which has all n.
  [[nodiscard]] std::span<T> of(T* x, rank_t r, std::size_t i = 0) const noexcept {
    return std::span<T>(x, n_).subspan(range(r, i).begin, range(r, i).size());
  }

  /// Encodes values from the index `first` on, as the encoding `step` of a call (see `block_coder::encode`). Sets
  /// `*refused` to 1 if the codec cannot encode a value.
  void encode(std::span<const T> values, std::uint64_t first, std::byte* out, std::uint64_t step,
              std::uint32_t* refused, cudaStream_t stream) const {
    if constexpr (draws_on_device<Codec>) {
      kernels::encode(codec_, values, out, first, calls_.data(), step, stream);
    } else if constexpr (encodes_or_refuses<Codec, T>) {
      kernels::encode(codec_, values, out, block_position{}, stream, refused);
    } else {
      if constexpr (requires { typename kernels::refuses; })
        kernel::start_find_any(values.data(), values.size(), refused, typename kernels::refuses{}, stream);
      kernels::encode(codec_, values, out, block_position{}, stream);
    }
  }
  void decode(const std::byte* in, std::span<T> out, cudaStream_t stream) const {
    kernels::decode(codec_, in, out, stream);
  }
  /// Ends a call, after which other random numbers are drawn.
  void end_call(cudaStream_t stream) const {
    if constexpr (draws_on_device<Codec>) kernel::start_count_call(calls_.data(), stream);
  }

 private:
  [[nodiscard]] pieces_of pieces_in(rank_t r) const noexcept { return {(*this)[r], piece_}; }

  rank_t ranks_;
  std::uint64_t n_;
  Codec codec_;
  std::uint64_t piece_;               // the values of a piece
  std::uint64_t bytes_;               // of a message
  device_array<std::uint64_t> calls_; // the number of calls so far, of a codec that draws random numbers
};

} // namespace spar::inline v0_1::detail
