// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rabenseifner's allreduce: reduce-scatter by recursive halving, allgather by recursive doubling (Rabenseifner 2004;
// SparCML, section 5.3.2).
#pragma once

#include <spar/core/task.hpp>
#include <spar/storage/concatenate.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/fold.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/transport/channel.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// 2 log2 P rounds and 2 n (P - 1) / P values at powers of two; otherwise ranks are folded in pairs before and after,
/// which costs two rounds and, on the folded ranks, n values each way. The lower ranks' sum is the left operand.
struct rabenseifner {
  static constexpr std::string_view name = "rabenseifner";

  /// In place.
  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    const fold folded(net.rank(), net.size());
    const rank_t active = folded.active_ranks();
    const uniform_ownership owner{x.size(), active};
    const auto part = [x](index_range r) { return x.subspan(r.begin, r.size()); };
    message_buffer theirs(net.memory());

    if (folded.has_partner()) {
      const rank_t partner = folded.partner();
      if (!folded.active()) {
        co_await net.send(partner, encode<T>(x));
        theirs.place(0, x);
        co_await net.receive(partner, theirs);
        co_return;
      }
      theirs.expect(x.size_bytes());
      co_await net.receive(partner, theirs);
      kernel::reduce_left(x.data(), theirs.piece<T>(0).data(), x.size(), op);
      net.compute(x.size());
    }

    rank_t first = 0; // this rank is reducing the blocks [first, first + blocks)
    for (rank_t blocks = active; blocks > 1;) {
      blocks /= 2;
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const bool lower = (folded.number() & blocks) == 0;
      const index_range given =
          owner.range(lower ? first + blocks : first, lower ? first + 2 * blocks : first + blocks);
      if (!lower) first += blocks;
      const index_range kept = owner.range(first, first + blocks);
      auto sending = net.send(peer, encode<T>(part(given)));
      theirs.end_loan();
      theirs.expect(kept.size() * sizeof(T));
      co_await net.receive(peer, theirs);
      if (lower)
        kernel::reduce(x.data() + kept.begin, theirs.piece<T>(0).data(), kept.size(), op);
      else
        kernel::reduce_left(x.data() + kept.begin, theirs.piece<T>(0).data(), kept.size(), op);
      net.compute(kept.size());
      co_await sending;
    }

    for (rank_t blocks = 1; blocks < active; blocks *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const rank_t theirs_first = first ^ blocks;
      const index_range due = owner.range(theirs_first, theirs_first + blocks);
      auto sending = net.send(peer, encode<T>(part(owner.range(first, first + blocks))));
      message_buffer in(net.memory());
      in.place(0, part(due));
      co_await net.receive(peer, in);
      co_await sending;
      first &= ~blocks;
    }

    if (folded.has_partner()) co_await net.send(folded.partner(), encode<T>(x));
  }

  template <transport Net, element T, index_type Index, reduction<T> Op>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    const fold folded(net.rank(), net.size());
    const rank_t active = folded.active_ranks();
    const std::uint64_t n = mine.dimension();
    const uniform_ownership owner{n, active};
    pool& memory = net.memory();
    stream<T, Index> sum;
    stream_view<T, Index> have = mine;

    if (folded.has_partner()) {
      const rank_t partner = folded.partner();
      message_buffer theirs(memory);
      if (!folded.active()) {
        co_await net.send(partner, encode(have));
        co_await net.receive(partner, theirs);
        co_return stream<T, Index>::copy(memory, decode<T, Index>(theirs, {0, n}));
      }
      co_await net.receive(partner, theirs);
      const auto lower = decode<T, Index>(theirs, {0, n});
      sum = merge(lower, have, {0, n}, dense_threshold<T, Index>(n), op, memory);
      net.compute(lower.count() + have.count());
      have = sum.view();
    }

    rank_t first = 0;
    for (rank_t blocks = active; blocks > 1;) {
      blocks /= 2;
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const bool lower = (folded.number() & blocks) == 0;
      const index_range given =
          owner.range(lower ? first + blocks : first, lower ? first + 2 * blocks : first + blocks);
      if (!lower) first += blocks;
      const index_range kept = owner.range(first, first + blocks);
      auto sending = net.send(peer, encode(have.slice(given.begin, given.end)));
      message_buffer theirs(memory);
      co_await net.receive(peer, theirs);
      const auto other = decode<T, Index>(theirs, kept);
      const auto own = have.slice(kept.begin, kept.end);
      const std::uint64_t limit = dense_threshold<T, Index>(kept.size());
      auto next = lower ? merge(own, other, kept, limit, op, memory) : merge(other, own, kept, limit, op, memory);
      net.compute(other.count() + own.count());
      theirs.release();
      co_await sending;
      sum = std::move(next);
      have = sum.view();
    }

    for (rank_t blocks = 1; blocks < active; blocks *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const rank_t theirs_first = first ^ blocks;
      auto sending = net.send(peer, encode(have));
      message_buffer theirs(memory);
      co_await net.receive(peer, theirs);
      const auto other = decode<T, Index>(theirs, owner.range(theirs_first, theirs_first + blocks));
      const bool lower = first < theirs_first;
      const stream_view<T, Index> parts[] = {lower ? have : other, lower ? other : have};
      first &= ~blocks;
      auto next = concatenate(std::span<const stream_view<T, Index>>(parts), n, owner.range(first, first + 2 * blocks),
                              op.template neutral<T>(), memory);
      theirs.release();
      co_await sending;
      sum = std::move(next);
      have = sum.view();
    }

    if (folded.has_partner()) co_await net.send(folded.partner(), encode(have));
    if (net.size() == 1) sum = stream<T, Index>::copy(memory, mine);
    co_return sum;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
