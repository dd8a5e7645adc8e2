// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce by recursive doubling, sparse and dense, for any number of ranks (SparCML, section 5.3.1).
#pragma once

#include <spar/collective/allreduce/fold_in.hpp>
#include <spar/collective/compressed/compressed_recursive_doubling.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/topology/fold.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// If P is a power of two: log2 P rounds; in round t, ranks at distance 2^t exchange their sums. Otherwise one more
/// round before, in which ranks are folded in pairs, and one after, in which the folded ranks get the result. The lower
/// ranks' sum is the left operand.
///
/// With k entries on each of P = 2^m ranks, a rank sends between k log2 P entries (equal indices) and k (P - 1) entries
/// (disjoint indices), as long as no sum has more than delta entries; such a sum turns dense.
struct recursive_doubling {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "recursive_doubling";

  /// The fraction of delta above which a sum turns dense; less than 1 if merging costs more than the saved bytes.
  double dense_from = 1;
  std::uint64_t piece = 32768; ///< number of dense values that a block codec encodes at a time

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  /// Throws `invalid_argument` if `piece` is 0 or `dense_from` is not 0 or more.
  void validate(std::uint64_t) const {
    detail::check_piece(piece);
    if (!(dense_from >= 0)) raise<invalid_argument>({"dense_from is ", dense_from, "; expected 0 or more"});
  }
  template <class F>
  void options(F&& f) const {
    f("dense_from", dense_from), f("piece", piece);
  }

  /// How often a contribution of dense values is encoded on its way, on P ranks.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return fold(0, ranks).hops(); }

  /// In each round both ranks continue with the decoded values of both sums. Adds the rounding errors of this rank's
  /// encodings to `residual`, unless `residual` is empty; if several ranks encode the same sum, only the first of them
  /// adds the errors.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           std::span<T> residual = {}) const& {
    const fold folded(net.rank(), net.size());
    const index_range all{0, mine.dimension()};
    const auto delta = storage::delta<T, Index>(store, mine.dimension());
    const auto limit = dense_from < 1 ? static_cast<std::uint64_t>(dense_from * static_cast<double>(delta)) : delta;
    pool& memory = net.memory();
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = mine;

    if (folded.has_partner()) {
      auto folding = fold_in(net, folded, mine, limit, op, store, residual);
      sum = co_await std::move(folding);
      if (!folded.active()) {
        auto receiving = fold_out<Index, T>(net, folded, mine.dimension(), store);
        co_return co_await std::move(receiving);
      }
      have = sum.view();
    }

    // Before the round at distance d, groups of d ranks have the same sum: those with the same number / d.
    const auto group = [&](rank_t ranks) {
      return step_of(static_cast<std::uint64_t>(ranks), folded.number() / ranks);
    };
    const auto kept = [&](rank_t ranks) { return folded.number() % ranks == 0 ? residual : std::span<T>(); };
    for (rank_t distance = 1; distance < folded.active_ranks(); distance *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ distance);
      outgoing<Storage, T, Index> out;
      auto sending = net.send(peer, out(net, store, have, all, group(distance)));
      incoming<Storage, T, Index> theirs(memory);
      co_await net.receive(peer, theirs);
      const auto other = theirs.view(net, store, all);
      const auto own = out.settled(net, store, have, all, kept(distance));
      const bool lower = peer > net.rank();
      auto next = merge(lower ? own : other, lower ? other : own, all, limit, op, memory);
      net.compute(other.count() + own.count());
      theirs.release();
      co_await sending;
      sum = std::move(next);
      have = sum.view();
    }

    constexpr bool exact = storage::is_exact<Storage>;
    if (exact ? folded.has_partner() : folded.extra() > 0) {
      outgoing<Storage, T, Index> out;
      const payload last = out(net, store, have, all, group(folded.active_ranks()));
      if (folded.has_partner()) co_await net.send(folded.partner(), last);
      if constexpr (!exact) { // the folded ranks get decoded values, so all ranks continue with these
        const auto own = out.settled(net, store, have, all, kept(folded.active_ranks()));
        sum = sparse_stream<T, Index>::copy(memory, own);
      }
    }
    if (net.size() == 1) sum = sparse_stream<T, Index>::copy(memory, mine);
    co_return sum;
  }

  /// In place. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage = storage::coo>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store = {},
                        std::span<T> residual = {}) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, x, op);
    else
      return compressed_recursive_doubling(net, x, op, storage::blocks_of(store), piece, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  template <transport Net, element T, class Op>
  static task<void> plain(channel<Net> net, std::span<T> x, Op op) {
    const fold folded(net.rank(), net.size());
    if (folded.has_partner()) {
      auto folding = fold_in(net, folded, x, op);
      co_await std::move(folding);
    }
    if (!folded.active()) co_return;

    message_buffer theirs(net.memory());
    theirs.expect(x.size_bytes()); // in memory of this rank, as the peer is about to change its own
    for (rank_t distance = 1; distance < folded.active_ranks(); distance *= 2) {
      const rank_t peer = folded.rank_of(folded.number() ^ distance);
      auto sending = net.send(peer, encode<T>(x));
      theirs.end_loan();
      co_await net.receive(peer, theirs);
      co_await sending; // before x changes
      if (peer < net.rank())
        kernel::reduce_left(x.data(), theirs.piece<T>(0).data(), x.size(), op);
      else
        kernel::reduce(x.data(), theirs.piece<T>(0).data(), x.size(), op);
      net.compute(x.size());
    }

    if (folded.has_partner()) co_await net.send(folded.partner(), encode<T>(x));
  }
};

} // namespace spar
