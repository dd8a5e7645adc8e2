// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rabenseifner's allreduce: reduce-scatter by recursive halving, allgather by recursive doubling (Rabenseifner 2004;
// SparCML, section 5.3.2).
#pragma once

#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/concatenate.hpp>
#include <spar/storage/merge.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Allreduce by recursive halving and doubling. If P is a power of two, there are 2 log2 P rounds, in which each rank
/// sends 2 n (P - 1) / P values. Otherwise one rank of each folded pair (see folded_ranks) sends its n values to the
/// other rank in an additional first round, and receives the n values of the result in an additional last round. In
/// every reduction of two dense or two sparse sums, the sum of the lower ranks is the left operand.
struct rabenseifner {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "rabenseifner";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = storage::plain_blocks<Storage>;
  static constexpr bool whole_pieces = true; ///< blocks begin at multiples of a codec's grain

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  static constexpr void validate(std::uint64_t) noexcept {}
  static constexpr void options(auto&&) noexcept {}

  /// The largest number of successive encodings of a rank's entries on their way to the result: in a fold, in each
  /// round of the halving, and in the block of the sum.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept {
    return ranks > 1 ? folded_ranks(0, ranks).additions() + 1 : 0;
  }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept {
    return folded_ranks(0, ranks).additions();
  }

  /// Allreduce of dense values in place, for a storage that sends dense values unencoded. With any other storage, a
  /// composition passes dense values to the overload for streams, as a dense stream.
  template <transport Net, element T, reduction<T> Op, class Storage = storage::coo>
    requires storage::plain_blocks<Storage>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage = {}, residual_view<T> = {}) const& {
    const folded_ranks folded(net.rank(), net.size());
    const rank_t active = folded.active_ranks();
    const uniform_ownership owner{x.size(), active};
    const auto part = [x](index_range r) { return x.subspan(r.begin, r.size()); };
    message_buffer theirs(net.work().memory());
    if (!folded.active()) {
      co_await net.send(folded.partner(), view_message<T>(x));
      theirs.place(0, x);
      co_await net.receive(folded.partner(), theirs);
      co_return;
    }
    if (folded.has_partner()) {
      theirs.expect(x.size_bytes()); // a copy, because the partner's `x` will receive the result
      co_await net.receive(folded.partner(), theirs);
      net.work().reduce_left(x, theirs.piece<T>(0).data(), op);
      net.compute(x.size());
      theirs.release();
    }

    rank_t first = 0; // the first of the `blocks` blocks that this rank still has to reduce
    for (rank_t blocks = active; blocks > 1;) {
      blocks /= 2;
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const bool lower = (folded.number() & blocks) == 0;
      const index_range given =
          owner.range(lower ? first + blocks : first, lower ? first + 2 * blocks : first + blocks);
      if (!lower) first += blocks;
      const index_range kept = owner.range(first, first + blocks);
      auto sending = net.send(peer, view_message<T>(part(given)));
      theirs.end_loan();
      theirs.expect(kept.size() * sizeof(T));
      co_await net.receive(peer, theirs);
      if (lower)
        net.work().reduce(part(kept), theirs.piece<T>(0).data(), op);
      else
        net.work().reduce_left(part(kept), theirs.piece<T>(0).data(), op);
      net.compute(kept.size());
      co_await sending;
    }

    for (rank_t blocks = 1; blocks < active; blocks *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const rank_t theirs_first = first ^ blocks;
      const index_range arriving = owner.range(theirs_first, theirs_first + blocks);
      auto sending = net.send(peer, view_message<T>(part(owner.range(first, first + blocks))));
      message_buffer in(net.work().memory());
      in.place(0, part(arriving));
      co_await net.receive(peer, in);
      co_await sending;
      first &= ~blocks;
    }

    if (folded.has_partner()) co_await net.send(folded.partner(), view_message<T>(x));
  }

  /// Allreduce of streams. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    const folded_ranks folded(net.rank(), net.size());
    const rank_t active = folded.active_ranks();
    const std::uint64_t n = mine.dimension();
    const auto owner = detail::blocks_for(storage::blocks_of(store), n, active);
    pool& memory = net.memory();
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = mine;

    const index_range all{0, n};
    if (!folded.active()) {
      outgoing<Storage, T, Index> out;
      co_await net.send(folded.partner(), co_await out(net, store, mine, all, step_of(0, net.rank())));
      co_await out.keep_error(net, store, mine, all, residual);
    } else if (folded.has_partner()) {
      incoming<Storage, T, Index> theirs(memory);
      co_await net.receive(folded.partner(), theirs);
      const auto lower = co_await theirs.view(net, store, all);
      sum = merge(lower, mine, all, storage::delta<T, Index>(store, n), op, memory);
      net.compute(lower.count() + mine.count());
      have = std::as_const(sum).view();
    }

    rank_t first = 0;
    for (rank_t blocks = folded.active() ? active : 1; blocks > 1;) {
      blocks /= 2;
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const bool lower = (folded.number() & blocks) == 0;
      const index_range given =
          owner.range(lower ? first + blocks : first, lower ? first + 2 * blocks : first + blocks);
      if (!lower) first += blocks;
      const index_range kept = owner.range(first, first + blocks);
      const auto theirs_to_be = have.slice(given.begin, given.end);
      outgoing<Storage, T, Index> out;
      auto sending = net.send(peer, co_await out(net, store, theirs_to_be, given, step_of(1, net.rank())));
      co_await out.keep_error(net, store, theirs_to_be, given, residual);
      incoming<Storage, T, Index> theirs(memory);
      co_await net.receive(peer, theirs);
      const auto other = co_await theirs.view(net, store, kept);
      const auto own = have.slice(kept.begin, kept.end);
      const std::uint64_t limit = storage::delta<T, Index>(store, kept.size());
      auto next = lower ? merge(own, other, kept, limit, op, memory) : merge(other, own, kept, limit, op, memory);
      net.compute(other.count() + own.count());
      theirs.release();
      co_await sending;
      sum = std::move(next);
      have = sum.view();
    }
    if (net.size() == 1) co_return sparse_stream<T, Index>::copy(memory, mine);
    co_return co_await gather(net, folded, std::move(sum), owner, op.template neutral<T>(), store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// Gathers the blocks of all active ranks by recursive doubling, then sends the result to the inactive ranks. If the
  /// result turns dense, an index without an entry gets the value `absent`.
  template <transport Net, element T, index_type Index, class Storage>
    requires storage::copies_nothing<Storage, T, Index>
  static task<sparse_stream<T, Index>> gather(channel<Net> net, folded_ranks folded, sparse_stream<T, Index> sum,
                                              uniform_ownership owner, T absent, Storage store, residual_view<T>) {
    const std::uint64_t n = owner.n;
    if (!folded.active()) {
      incoming<Storage, T, Index> whole(net.memory());
      co_await net.receive(folded.partner(), whole);
      const index_range all{0, n};
      co_return sparse_stream<T, Index>::copy(net.memory(), co_await whole.view(net, store, all));
    }
    for (rank_t blocks = 1, first = folded.number(); blocks < folded.active_ranks(); blocks *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ blocks);
      const rank_t theirs_first = first ^ blocks;
      const auto have = std::as_const(sum).view();
      auto sending = net.send(peer, view_message(have));
      incoming<Storage, T, Index> theirs(net.memory());
      co_await net.receive(peer, theirs);
      const auto other = co_await theirs.view(net, store, owner.range(theirs_first, theirs_first + blocks));
      const bool lower = first < theirs_first;
      const stream_view<T, Index> parts[] = {lower ? have : other, lower ? other : have};
      first &= ~blocks;
      const index_range both = owner.range(first, first + 2 * blocks);
      auto next = concatenate(std::span<const stream_view<T, Index>>(parts), n, both, absent,
                              storage::delta<T, Index>(store, both.size()), net.work());
      theirs.release();
      co_await sending;
      sum = std::move(next);
    }
    if (folded.has_partner()) co_await net.send(folded.partner(), view_message(std::as_const(sum).view()));
    co_return sum;
  }
  /// Gathers the blocks of all active ranks by recursive doubling, then sends all blocks to the inactive ranks. Each
  /// block is encoded once, by its owner, and every rank decodes all blocks at the end. If the result turns dense, an
  /// index without an entry gets the value `absent`.
  template <transport Net, element T, index_type Index, class Ownership, class Storage>
    requires(!storage::copies_nothing<Storage, T, Index>)
  static task<sparse_stream<T, Index>> gather(channel<Net> net, folded_ranks folded, sparse_stream<T, Index> sum,
                                              Ownership owner, T absent, Storage store, residual_view<T> residual) {
    const auto number = static_cast<std::size_t>(folded.number());
    const auto active = static_cast<std::size_t>(folded.active_ranks());
    encoded_parts<Net, Storage, T, Index> parts(net, active, 1);
    buffer<std::uint64_t> sizes;
    if (folded.active()) {
      co_await parts.encode(store, number, std::as_const(sum).view(), owner[folded.number()], residual);
      for (std::size_t blocks = 1; blocks < active; blocks *= 2) {
        const rank_t peer = folded.rank_of(static_cast<rank_t>(number ^ blocks));
        const std::size_t first = number & ~(blocks - 1);
        auto sending = net.send(peer, parts.message(first, blocks));
        message_buffer theirs(net.memory());
        co_await net.receive(peer, theirs);
        co_await parts.take(theirs, first ^ blocks, blocks, sizes);
        theirs.release();
        co_await sending;
        parts.release_messages();
      }
      if (folded.has_partner()) co_await net.send(folded.partner(), parts.message(0, active));
    } else {
      message_buffer whole(net.memory());
      co_await net.receive(folded.partner(), whole);
      co_await parts.take(whole, 0, active, sizes);
    }
    const auto range_of = [&](std::size_t block) { return owner[static_cast<rank_t>(block)]; };
    co_return co_await parts.joined(store, owner.n, range_of, absent, storage::delta<T, Index>(store, owner.n));
  }
};

} // namespace spar::inline v0_1
