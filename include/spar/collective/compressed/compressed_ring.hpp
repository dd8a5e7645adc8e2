// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ring allreduce with collective-level compression, in which the collective itself encodes and decodes the vector
// piece by piece (Zhou et al., algorithm 1).
#pragma once

#include <spar/collective/wire/encode_pipeline.hpp>
#include <spar/collective/wire/piece_coder.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Allreduce of dense values in place, compressed by `codec`. In the first phase, the partial sum of each block travels
/// to the block's owner: at each hop, the partial sum is encoded, sent, decoded and reduced with the values of the next
/// rank. The owner encodes the final sum once, and in the second phase the ranks forward these bytes around the ring.
/// All ranks, including the owner, use the decoded values, so all ranks have the same bits.
///
/// If P > 1, a rank encodes P blocks, decodes 2 P - 1 blocks, and sends 2 (P - 1) / P times the bytes of the encoded
/// vector. Blocks are sent in pieces of `piece` values: while one piece is in flight, another is encoded or decoded.
///
/// At each index, |result - exact sum| is at most ((1 + e)^P - 1) S. Here, e is the codec's relative error, and S is
/// the sum, over all ranks, of the largest |value| in the codec's block that contains the index.
///
/// Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
template <transport Net, element T, reduction<T> Op, block_codec<T> Codec>
task<void> compressed_ring(channel<Net> net, std::span<T> x, Op op, Codec codec, std::uint64_t piece,
                           residual_view<T> residual) {
  const rank_t p = net.size();
  if (p == 1) co_return;
  const rank_t right = (net.rank() + 1) % p, left = (net.rank() + p - 1) % p;
  const piece_coder coder(net, codec, piece);
  const auto owner = coder.blocks(x.size(), p);
  const std::uint64_t length = coder.template message_values<T>();
  // The messages of the block that this rank handles in a hop. In hop 0, the rank only sends a block; in each later
  // hop, the rank receives a block, which is a partial sum or, from hop P on, a final sum.
  const auto pieces = [&](rank_t hop) { return detail::pieces_of{owner[(net.rank() + 2 * p - 1 - hop) % p], length}; };
  const rank_t last = 2 * p - 2;
  const detail::pieces_of largest{owner[0], length};
  // A rank is at most one block ahead of its right neighbour, so one slot for each piece of a block and one additional
  // slot suffice.
  detail::outbox<Net> out(net, largest.count() + 1, codec.template encoded_bytes<T>(largest[0].size()));
  detail::read_ahead<Net> in(net);
  buffer<T> scratch(net.work().memory(), largest[0].size());

  in.start(left);
  for (rank_t hop = 0; hop <= last; ++hop) {
    const detail::pieces_of block = pieces(hop);
    for (std::size_t i = 0; i < block.count(); ++i) {
      const index_range range = block[i];
      const std::span<T> mine = x.subspan(range.begin, range.size());
      message_buffer* received = nullptr;
      payload message;
      if (hop > 0) {
        co_await in.next();
        received = &in.take();
        if (hop < last || i + 1 < block.count())
          in.start(left); // receives the next piece while this rank decodes `received`
        message = coder.template arrived<T>(*received, range.size());
      }
      if (hop > 0 && hop < p) {
        coder.reduce_left(message, mine, op, scratch.span());
        net.compute(mine.size());
      }
      if (hop < last) {
        auto& slot = out.next();
        if (slot.sending) co_await *slot.sending;
        const auto step = static_cast<std::uint64_t>(hop);
        if (hop < p)
          slot.message = co_await coder.message(std::span<const T>(mine), range.begin, step, slot.room, residual);
        else
          slot.message = coder.pass_on(message, slot.room);
        slot.send(net, right);
        if (hop < p) coder.keep_error(slot.message, std::span<const T>(mine), range.begin, residual, scratch.span());
        if (hop == p - 1) coder.adopt(slot.message, mine);
      }
      if (hop >= p) coder.decode(message, mine);
      if (received != nullptr) received->end_loan();
    }
  }
  for (auto& slot : out) {
    if (slot.sending) co_await *slot.sending;
  }
}

} // namespace spar::inline v0_1
