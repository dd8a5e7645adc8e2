// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling with collective-level compression, in which the collective itself encodes and decodes the vector
// piece by piece, for any number of ranks (Zhou et al., algorithm 2).
#pragma once

#include <spar/collective/wire/encode_pipeline.hpp>
#include <spar/collective/wire/piece_coder.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Allreduce of dense values in place, compressed by `codec`. In each of floor(log2 P) rounds, pairs of ranks exchange
/// their encoded vectors. Both ranks of a pair decode both vectors, including their own, and add the decoded values, so
/// that both ranks have the same bits. If P = 2^m, a rank encodes each piece log2 P times, decodes each piece twice as
/// often, and sends log2 P encoded vectors.
///
/// If P is not a power of two, one rank of each folded pair first sends its vector to the other rank (see
/// folded_ranks). At the end, all active ranks encode the result once more and replace it by the decoded values, and
/// the encoded result is also sent to the inactive ranks.
///
/// The vector is sent in pieces of `piece` values: while one piece is in flight, another is encoded or decoded.
///
/// At each index, |result - exact sum| is at most ((1 + e)^h - 1) S. Here, e is the codec's relative error, h is
/// `recursive_doubling::encodings(P)`, and S is the sum, over all ranks, of the largest |value| in the codec's block
/// that contains the index.
///
/// Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty; if several ranks encode
/// the same values, only the lowest of these ranks adds the errors.
template <transport Net, element T, reduction<T> Op, block_codec<T> Codec>
task<void> compressed_recursive_doubling(channel<Net> net, std::span<T> x, Op op, Codec codec, std::uint64_t piece,
                                         residual_view<T> residual) {
  if (net.size() == 1) co_return;
  const folded_ranks folded(net.rank(), net.size());
  const rank_t partner = folded.has_partner() ? folded.partner() : net.rank();
  const piece_coder coder(net, codec, piece);
  const detail::pieces_of all{{0, x.size()}, coder.template message_values<T>()};
  detail::outbox<Net> out(net, all.count(), codec.template encoded_bytes<T>(all[0].size()));
  detail::read_ahead<Net> in(net);
  buffer<T> scratch(net.work().memory(), all[0].size());
  const auto part = [](std::span<T> of, index_range r) { return of.empty() ? of : of.subspan(r.begin, r.size()); };
  // Ranks that encode the same sum pass the same step to the codec and therefore round alike; other ranks pass other
  // steps.
  const auto step_number = [](rank_t round, rank_t group) {
    return static_cast<std::uint64_t>(round) << 24 | static_cast<std::uint64_t>(group);
  };
  const auto encoded = [&](std::size_t i, std::uint64_t step, residual_view<T> errors) {
    return coder.message(std::span<const T>(part(x, all[i])), all[i].begin, step, out[i].room, errors);
  };
  const auto keep_error = [&](std::size_t i) {
    const std::span<const T> mine = part(x, all[i]);
    coder.keep_error(out[i].message, mine, all[i].begin, residual, scratch.span());
  };

  if (!folded.active()) {
    for (std::size_t i = 0; i < all.count(); ++i) {
      out[i].message = co_await encoded(i, step_number(0, net.rank()), residual);
      keep_error(i);
      out[i].send(net, partner);
    }
    in.start(partner);
    for (std::size_t i = 0; i < all.count(); ++i) {
      co_await in.next();
      message_buffer& received = in.take();
      if (i + 1 < all.count()) in.start(partner);
      coder.decode(coder.template arrived<T>(received, all[i].size()), part(x, all[i]));
      received.end_loan();
    }
    for (auto& slot : out) co_await *slot.sending;
    co_return;
  }

  // In stage 0, an active rank of a folded pair receives the inactive rank's vector; in each stage s > 0, active ranks
  // at distance 2^(s-1) exchange their vectors.
  const rank_t rounds = folded.rounds();
  const auto peer_of = [&](rank_t stage) {
    return stage == 0 ? partner : folded.rank_of(folded.number() ^ (rank_t{1} << (stage - 1)));
  };
  in.start(peer_of(folded.has_partner() ? 0 : 1));
  for (rank_t stage = 0; stage <= rounds; ++stage) {
    const rank_t peer = peer_of(stage);
    for (std::size_t i = 0; i < all.count(); ++i) {
      const std::span<T> mine = part(x, all[i]);
      if (stage > 0 || folded.has_partner()) {
        co_await in.next();
        message_buffer& received = in.take();
        if (i + 1 < all.count())
          in.start(peer);
        else if (stage < rounds)
          in.start(peer_of(stage + 1));
        if (stage > 0) coder.adopt(out[i].message, mine);
        const payload theirs = coder.template arrived<T>(received, mine.size());
        if (peer < net.rank())
          coder.reduce_left(theirs, mine, op, scratch.span());
        else
          coder.reduce(theirs, mine, op, scratch.span());
        received.end_loan();
        net.compute(mine.size());
      }
      const bool goes_back = stage == rounds; // in the last stage, the result is sent to the inactive ranks, if any
      if (goes_back && folded.extra() == 0) continue;
      if (out[i].sending) co_await *std::exchange(out[i].sending, std::nullopt);
      const bool first =
          (folded.number() & ((rank_t{1} << stage) - 1)) == 0; // whether this rank is the lowest rank that has this sum
      out[i].message =
          co_await encoded(i, step_number(stage + 1, folded.number() >> stage), first ? residual : residual_view<T>());
      if (first) keep_error(i);
      if (!goes_back)
        out[i].send(net, peer_of(stage + 1));
      else if (folded.has_partner())
        out[i].send(net, partner);
      if (goes_back) coder.adopt(out[i].message, mine);
    }
  }
  for (auto& slot : out) {
    if (slot.sending) co_await *slot.sending;
  }
}

} // namespace spar::inline v0_1
