// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce by recursive doubling, sparse and dense, for any number of ranks (SparCML, section 5.3.1).
#pragma once

#include <spar/collective/compressed/compressed_recursive_doubling.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/check_number.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Allreduce by recursive doubling. If P is a power of two, there are log2 P rounds; in round t, ranks at distance 2^t
/// exchange their sums. Otherwise one rank of each folded pair (see folded_ranks) sends its contribution to the other
/// rank in an additional first round, and receives the result in an additional last round. In every reduction of two
/// dense or two sparse sums, the sum of the lower ranks is the left operand.
///
/// With k entries on each of P = 2^m ranks, a rank sends between k log2 P entries (if the ranks have equal indices) and
/// k (P - 1) entries (if the ranks have disjoint indices), provided that no sum turns dense (see `dense_from`).
struct recursive_doubling {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "recursive_doubling";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;
  static constexpr bool whole_pieces = true; ///< pieces begin at multiples of a codec's grain

  /// A sum turns dense if its two operands have more than `dense_from` times delta entries together. A factor below 1
  /// pays off if merging sparse sums takes more time than their smaller messages save; a factor above 1 has the same
  /// effect as 1.
  double dense_from = 1;
  std::uint64_t piece = 32768; ///< number of dense values that a block codec encodes at a time
  /// Number of equal parts of the index range, from 1 to 8. Ranks sum the parts of encoded streams at the same time,
  /// each in its own messages, so that a rank encodes, decodes and merges one part while messages of another are on
  /// the way. This saves time if the messages are long and the work on them takes as long as they do. Streams that are
  /// not encoded, which are less work, and dense values are summed as a whole.
  std::uint64_t parts = 1;

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  /// Throws `invalid_argument` if `piece` is 0, if `dense_from` is negative or NaN, or if `parts` is not in [1, 8].
  void validate(std::uint64_t) const {
    detail::check_piece(piece);
    detail::check_number(dense_from, {0, detail::valid::infinity, "0 or more"},
                         "recursive_doubling: the option dense_from");
    if (parts < 1 || parts > max_lanes)
      raise<invalid_argument>({"recursive_doubling: the option parts is ", parts, "; expected 1 to ", max_lanes});
  }
  void options(auto&& f) const { f("dense_from", dense_from), f("piece", piece), f("parts", parts); }

  /// The largest number of successive encodings of a rank's dense values on their way to the result, on `ranks` ranks;
  /// the error bound of the result grows with this number.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return folded_ranks(0, ranks).hops(); }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept {
    return folded_ranks(0, ranks).additions();
  }

  /// Allreduce of streams. In each round, both ranks of a pair continue with the decoded values of both sums, so that
  /// both have the same bits. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is
  /// empty; if several ranks encode the same sum, only the lowest of these ranks adds the errors.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    if constexpr (!lending_codec<storage::streams_type<Storage>, T, Index>) {
      if (parts > 1 && net.size() > 1) return in_parts(net, mine, op, store, residual);
    }
    return one_part(net, mine, index_range{0, mine.dimension()}, op, store, residual);
  }

  /// Allreduce of dense values in place. Adds the rounding errors of this rank's encodings to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage = storage::coo>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store = {},
                        residual_view<T> residual = {}) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, x, op);
    else
      return compressed_recursive_doubling(net, x, op, storage::blocks_of(store), piece, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// Returns the streams `parts` as one. Part b has the indices of `range_of[b]`; these ranges divide [0, n). The
  /// result is sparse if all parts are sparse, otherwise it is dense.
  template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op>
  static sparse_stream<T, Index> join(channel<Net> net, std::span<const sparse_stream<T, Index>> parts,
                                      const Ownership& range_of, Op op) {
    const std::uint64_t n = parts[0].dimension();
    std::uint64_t entries = 0;
    bool dense = false;
    for (const auto& part : parts) {
      entries += part.count();
      dense = dense || part.is_dense();
    }
    auto whole = dense ? sparse_stream<T, Index>::dense(net.work().memory(), n, 0, n)
                       : sparse_stream<T, Index>::sparse(net.work().memory(), n, entries);
    std::size_t at = 0;
    for (std::size_t b = 0; b < parts.size(); ++b) {
      const auto part = parts[b].view();
      const index_range range = range_of[static_cast<rank_t>(b)];
      if (dense)
        net.work().reduce_dense(std::span(&part, 1), range, whole.values().data() + range.begin, op);
      else
        net.work().write(whole, at, part);
      at += part.count();
    }
    return whole;
  }

  /// Allreduce of `parts` parts of the index range at the same time, each on its own lane.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
  task<sparse_stream<T, Index>> in_parts(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store,
                                         residual_view<T> residual) const& {
    const uniform_ownership range_of{mine.dimension(), static_cast<rank_t>(parts)};
    const auto slice = co_await net.work().slices(mine, range_of, range_of.count());
    fixed_vector<task<sparse_stream<T, Index>>> running(net.memory(), parts);
    for (rank_t p = 0; p < range_of.count(); ++p) {
      const auto lane = net.lane(static_cast<std::uint8_t>(p));
      running.push_back(one_part(lane, slice[p], range_of[p], op, store, residual));
    }
    for (auto& sum : running) co_await detail::until_ended<task<sparse_stream<T, Index>>>(sum);
    fixed_vector<sparse_stream<T, Index>> sums(net.memory(), parts);
    for (auto& sum : running) sums.push_back(sum.result());
    co_return join(net, sums.span(), range_of, op);
  }

  /// Allreduce of streams whose indices lie in `range`.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
  task<sparse_stream<T, Index>> one_part(channel<Net> net, stream_view<T, Index> mine, index_range range, Op op,
                                         Storage store, residual_view<T> residual) const& {
    const folded_ranks folded(net.rank(), net.size());
    const auto delta = storage::delta<T, Index>(store, range.size());
    const auto limit = dense_from < 1 ? static_cast<std::uint64_t>(dense_from * static_cast<double>(delta)) : delta;
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = mine;

    // Before the round at distance d, the active ranks with equal `folded.number() / d` form a group of d ranks that
    // have the same sum. All ranks of a group pass the same step to the codec, so that they encode the sum alike.
    const auto group = [&](rank_t ranks) {
      return step_of(static_cast<std::uint64_t>(ranks), ranks == 0 ? net.rank() : folded.number() / ranks);
    };
    const auto kept = [&](rank_t ranks) {
      return ranks == 0 || folded.number() % ranks == 0 ? residual : residual_view<T>();
    };
    // A folded pair begins with a round at distance 0, in which its active rank sends nothing, and its inactive rank
    // receives the result.
    for (rank_t distance = folded.has_partner() ? 0 : 1; distance < folded.active_ranks();
         distance += std::max(distance, 1)) {
      const rank_t peer = distance == 0 ? folded.partner() : folded.rank_of(folded.number() ^ distance);
      outgoing<Storage, T, Index> out;
      std::optional<decltype(net.send(peer, payload()))> sending;
      if (distance > 0 || !folded.active())
        static_cast<void>(sending.emplace(net.send(peer, co_await out(net, store, have, range, group(distance)))));
      incoming<Storage, T, Index> theirs(net.work().memory());
      co_await net.receive(peer, theirs);
      const auto other = co_await theirs.view(net, store, range);
      sparse_stream<T, Index> next;
      if (folded.active()) {
        const auto own = co_await out.as_decoded(net, store, have, range, kept(distance));
        const bool lower = peer > net.rank();
        next = co_await net.work().merge(lower ? own : other, lower ? other : own, range, limit, op);
        net.compute(other.count() + own.count());
      } else {
        co_await out.keep_error(net, store, have, range, residual);
        next = net.work().duplicate(other);
      }
      theirs.release();
      if (sending) co_await *sending; // the send must end before `sum` changes
      sum = std::move(next);
      if (!folded.active()) co_return sum;
      have = sum.view();
    }

    constexpr bool exact = storage::is_exact<Storage>;
    if (exact ? folded.has_partner() : folded.extra() > 0) {
      outgoing<Storage, T, Index> out;
      const payload last = co_await out(net, store, have, range, group(folded.active_ranks()));
      if (folded.has_partner()) co_await net.send(folded.partner(), last);
      if constexpr (!exact) { // inactive ranks get the decoded result, so active ranks also return the decoded result
        const auto own = co_await out.as_decoded(net, store, have, range, kept(folded.active_ranks()));
        sum = net.work().duplicate(own);
      }
    }
    if (net.size() == 1) sum = net.work().duplicate(mine);
    co_return sum;
  }

  template <transport Net, element T, class Op>
  static task<void> plain(channel<Net> net, std::span<T> x, Op op) {
    const folded_ranks folded(net.rank(), net.size());
    message_buffer theirs(net.work().memory());
    if (!folded.active()) {
      co_await net.send(folded.partner(), view_message<T>(x));
      theirs.place(0, x);
      co_await net.receive(folded.partner(), theirs);
      co_return;
    }

    // Copies the peer's values to this rank's memory, because the peer changes its `x` in the same round.
    theirs.expect(x.size_bytes());
    for (rank_t distance = folded.has_partner() ? 0 : 1; distance < folded.active_ranks();
         distance += std::max(distance, 1)) {
      const rank_t peer = distance == 0 ? folded.partner() : folded.rank_of(folded.number() ^ distance);
      std::optional<decltype(net.send(peer, payload()))> sending;
      if (distance > 0) static_cast<void>(sending.emplace(net.send(peer, view_message<T>(x))));
      theirs.end_loan();
      co_await net.receive(peer, theirs);
      if (sending) co_await *sending; // the send must end before `x` changes
      if (peer < net.rank())
        net.work().reduce_left(x, theirs.piece<T>(0).data(), op);
      else
        net.work().reduce(x, theirs.piece<T>(0).data(), op);
      net.compute(x.size());
    }

    if (folded.has_partner()) co_await net.send(folded.partner(), view_message<T>(x));
  }
};

} // namespace spar::inline v0_1
