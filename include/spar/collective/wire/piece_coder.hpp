// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes blocks of a dense vector piece by piece, in one message for each piece or, among ranks that lend each other
// their memory, for each block.
#pragma once

#include <spar/collective/wire/block_coder.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// A `block_coder` of blocks that consist of pieces of `piece` values, or of the nearest multiple of the codec's grain
/// that is at most as long, but at least one grain. The codec encodes or refuses each piece alone. A
/// message has a piece, so that its transfer overlaps with the coding of others. Among ranks that lend each other
/// their memory, where there is no transfer and each message takes as long as the work on a large piece, a message has
/// a whole block, with the same decoded values.
template <transport Net, class Codec>
class piece_coder : public block_coder<Net, Codec> {
 public:
  /// Keeps a pointer to `codec`, which must outlive the piece_coder.
  piece_coder(channel<Net> net, const Codec& codec, std::uint64_t piece) noexcept
      : piece_coder::block_coder(net, codec), piece_(whole_grains(codec, piece)) {}
  piece_coder(channel<Net> net, Codec&& codec, std::uint64_t piece) = delete;

  /// The blocks of n values among `count` owners: uniform, in multiples of the codec's grain.
  [[nodiscard]] auto blocks(std::uint64_t n, rank_t count) const noexcept {
    return detail::blocks_for(*codec_, n, count);
  }
  /// The greatest number of values in a message; the same on all ranks. Throws `invalid_argument` for invalid options
  /// of the codec.
  template <element T>
  [[nodiscard]] std::uint64_t message_values() const {
    if constexpr (workspace_of<Net>::may_lend) {
      (void)codec_->template encoded_bytes<T>(1);
      // The encoding of a piece must be the same wherever in a block it is.
      if (net_.work().lends() && piece_ % net_.work().template together<T>(*codec_) == 0)
        return std::numeric_limits<std::uint64_t>::max();
    }
    return piece_;
  }

  /// Like `block_coder::message`, for `values` of one message, whose bytes are in `room`. If the codec refuses a piece
  /// of several, the message has plain values: those of the other pieces are rounded as if they had been encoded, and
  /// the rounding errors are added to `residual`, unless it is empty. For `first` and `step`, see
  /// `block_coder::encode`. For errors, see \ref call_errors.
  template <element T>
  answer<Net, payload> message(std::span<const T> values, std::uint64_t first, std::uint64_t step,
                               buffer<std::byte>& room, [[maybe_unused]] residual_view<T> residual) const {
    if constexpr (workspace_of<Net>::may_lend) {
      if (values.size() > piece_) return block_message(net_, *this, values, first, step, &room, residual);
    }
    return block_coder<Net, Codec>::message(values, first, step, room);
  }

 private:
  static std::uint64_t whole_grains(const Codec& codec, std::uint64_t piece) noexcept {
    const std::uint64_t grain = detail::grain_of(codec);
    return std::max(piece / grain, std::uint64_t{1}) * grain;
  }
  template <element T>
  static task<payload> block_message(channel<Net> net, piece_coder coder, std::span<const T> values,
                                     std::uint64_t first, std::uint64_t step, buffer<std::byte>* room,
                                     residual_view<T> residual) {
    (void)net; // a parameter only because its scheduler resumes this coroutine
    auto encoding = static_cast<const block_coder<Net, Codec>&>(coder).message(values, first, step, *room);
    const payload whole = co_await std::move(encoding);
    if (whole.format == wire_format::block_coded) co_return whole;
    const std::span<T> rounded(reinterpret_cast<T*>(room->data()), values.size());
    buffer<std::byte> encoded;
    for (std::size_t at = 0; at < values.size(); at += coder.piece_) {
      const std::size_t size = std::min<std::size_t>(coder.piece_, values.size() - at);
      const std::span<const T> piece = values.subspan(at, size);
      auto again = static_cast<const block_coder<Net, Codec>&>(coder).message(piece, first + at, step, encoded);
      const payload one = co_await std::move(again);
      if (one.format != wire_format::block_coded) continue;
      coder.decode(one, rounded.subspan(at, size));
      if (!residual.empty()) residual.add_error(first + at, piece, std::as_const(rounded).data() + at);
    }
    co_return whole;
  }

  using block_coder<Net, Codec>::codec_;
  using block_coder<Net, Codec>::net_;

  std::uint64_t piece_;
};

} // namespace spar::inline v0_1
