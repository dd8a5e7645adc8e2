// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of Ok-Topk (algorithm 1): every rank contributes its k largest entries and gets the k largest entries of
// the sum. On a flat topology, a rank sends and receives O(k + P) words.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/collective/topk/balanced_ownership.hpp>
#include <spar/collective/topk/block_quotas.hpp>
#include <spar/collective/topk/flat_exchange.hpp>
#include <spar/collective/topk/global_threshold.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/storage.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// Each rank owns a range of indices and sends its selected entries to the owners of the indices. The boundaries of the
/// ranges are chosen so that the owners get about equally many entries. An owner sums the entries that it receives and
/// keeps the sums that reach a threshold. The threshold is the same on all ranks, and leaves about k sums in all, which
/// an allgather gives to every rank. The selector's `bounds(n)` contain k; the selector's optional `period` (the
/// paper's tau') is the number of calls from one search for the threshold to the next. A selected entry returns to the
/// rank's residual if the index of the entry is not in the result.
///
/// The following bounds hold if each call of the selector stays within its `bounds(n)`; `epsilon` is the selector's
/// tolerance:
/// - The result has at most (1 + epsilon) k entries; with epsilon 0 it has k entries, or all nonzero sums if there are
///   fewer.
/// - On a flat topology, a rank sends at most (1 + epsilon) k entries to owners, and an owner gets at most B = M + 4
///   sqrt(M P) entries, M = (1 + epsilon) k + P. In a call that first adds up the entries of each block, an owner gets
///   at most M entries; in a call in which a rank exceeds a quota, at most B + M (see reduce_within_quotas).
/// - On a flat topology, with values and indices of 4 bytes, a rank sends at most 2 (1 + epsilon) k + 4 (1 + epsilon) k
///   (P - 1) / P + 10 P words of 4 bytes, and receives at most 2 (B - M) words more. In calls that search for a
///   threshold (see keep_global_topk) or for boundaries (see balance_ownership), or in which a rank exceeds a quota, a
///   rank sends and receives more words.
/// - On a tree, an owner that should get the fraction f of all entries gets at most f P ((1 + epsilon) k + P) entries.
struct balanced_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "balanced_owners";
  /// Whether streams may be in device memory, on a flat topology: there are kernels for all work on them.
  static constexpr bool streams_on_device = true;

  std::uint64_t tau = 64; ///< the owners' boundaries are computed again every `tau` calls; at least 1

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!selector_with_bounds<Selector>)
      return needs_k();
    else if constexpr (!topology_with_owners<Topology>)
      return needs_owners();
    else
      return detail::accepts_entries_alone<Storage>();
  }

  /// The state that a call leaves for the next call, equal on all ranks.
  struct state {
    std::uint64_t calls = 0;            ///< the number of calls so far
    std::uint64_t global_threshold = 1; ///< the least magnitude in the last result, as returned by kernel::magnitude_of
    /// The P + 1 boundaries of the owners' ranges. On a tree, each range consists of cells (see tree_cells), and the
    /// vector contains the boundaries of all cells.
    std::vector<std::uint64_t> boundaries{};
    block_counts counts{}; ///< on a flat topology, the entries in the last call, from which the next quotas follow

    template <class F>
    void shared_state(F&& f) {
      f(calls), f(global_threshold), f(boundaries), f(counts.received), f(counts.quotas_hold);
    }
    template <class F>
    void own_state(F&& f) {
      f(counts.sent);
    }
  };
  /// The statistics of the last call. In each refinement of the boundaries, a rank sends 2 ceil(log2 P) messages.
  struct report : block_report {
    /// Number of rounds of the search for the threshold; in each round, a rank sends ceil(log2 P) messages.
    std::uint64_t threshold_rounds = 0;
    bool evened_out = false; ///< whether ranks moved entries to balance the owners' shares before the allgather
  };

  void validate(std::uint64_t) const {
    if (tau == 0) raise<invalid_argument>({"tau of balanced_owners is 0 calls; expected at least 1"});
  }
  template <class F>
  void options(F&& f) const {
    f("tau", tau);
  }

  /// Sums the selected entries `mine` of all ranks, and keeps the k largest sums. The composition calls this function,
  /// with its options `parts`, its state `state_now` and its report `report_now`; what a rank contributed to dropped
  /// sums goes into `residual`.
  template <transport Net, class Composition, element T, index_type Index, reduction<T> Op>
  task<selected_sum<T, Index>> reduce_selected(channel<Net> net, const Composition* parts,
                                               typename Composition::state* state_now,
                                               typename Composition::report* report_now, sparse_stream<T, Index> mine,
                                               residual_view<T> residual, Op op) const& {
    return reduce_selected(net, parts, state_now, report_now, std::move(mine), residual, op, parts->store);
  }
  /// The same with the storage `store` in place of that of the composition `parts`; changes `state_now` and
  /// `report_now` in the same way, and returns what a rank contributed to dropped sums to `residual`.
  template <transport Net, class Composition, element T, index_type Index, reduction<T> Op, class Storage>
  task<selected_sum<T, Index>> reduce_selected(channel<Net> net, const Composition* parts,
                                               typename Composition::state* state_now,
                                               typename Composition::report* report_now, sparse_stream<T, Index> mine,
                                               residual_view<T> residual, Op op, Storage store) const& {
    using Topology = typename Composition::topology_type;
    if constexpr (straight_topology<Topology>) net = net.in_order(parts->over.order());
    const auto ranks = static_cast<std::size_t>(net.size());
    const std::uint64_t n = mine.dimension();
    const selector::topk_bounds bounds = parts->select.bounds(n);
    state& now = state_now->by;
    report& last = report_now->by;

    const auto owners = parts->over.owners(n, net.size());
    now.boundaries.resize(static_cast<std::size_t>(owners.count()) + 1);
    // The maximum number of entries in a block of average size.
    const std::uint64_t most = (bounds.most + ranks) * ranks / (now.boundaries.size() - 1);
    // On a tree, ranks also encode partial sums. `lost` collects all rounding errors of this rank's encodings. Only the
    // errors at indices of the result go into the residual. At any other index all ranks put their exact contributions
    // back, so the rounding lost nothing.
    constexpr bool rounds_on_the_way = !straight_topology<Topology> && !storage::streams_type<Storage>::exact;
    buffer<T> lost(net.memory(), rounds_on_the_way ? n : 0);
    std::fill_n(lost.data(), lost.size(), T{});
    const residual_view<T> errors = rounds_on_the_way ? residual_view<T>(lost.span()) : residual;
    const bool anew = now.calls % tau == 0;
    buffer<std::uint64_t> riders(net.memory(), has_quotas<Topology, Storage> ? ranks : 0);
    sparse_stream<T, Index> reduced;
    if constexpr (has_quotas<Topology, Storage>) {
      const auto reduce = [&](split_quotas& within) {
        return reduce_to_owners(net, parts->over, mine.view(), now.boundaries, op, store, errors, within);
      };
      reduced = co_await reduce_within_quotas(net, mine.view(), owners, now.boundaries, anew, most, now.counts, last,
                                              riders.span()[static_cast<std::size_t>(net.rank())], reduce);
    } else {
      last = {{.counted_first = true}};
      last.boundary_rounds =
          co_await balance_ownership(net, std::as_const(mine).indices(), owners, now.boundaries, anew, most);
      reduced = co_await reduce_to_owners(net, parts->over, mine.view(), now.boundaries, op, store, errors);
    }
    if (reduced.is_dense()) reduced = co_await local::to_sparse(net, reduced.view(), op);
    // The share of rank r is [shares[r], shares[r + 1]) of all kept entries.
    buffer<std::uint64_t> shares(net.memory(), ranks + 1);
    last.threshold_rounds =
        co_await keep_global_topk(net, reduced, bounds, now.calls % detail::period_of(parts->select) == 0,
                                  now.global_threshold, shares.span(), riders.span());
    if constexpr (has_quotas<Topology, Storage>) keep_counts(riders.span(), now.counts);
    sparse_stream<T, Index> sum = co_await gather_shares(net, parts->over, std::move(reduced), now.boundaries,
                                                         shares.span(), last.evened_out, store, residual);
    put_back_dropped(net, mine, sum.view(), residual);
    if constexpr (rounds_on_the_way) add_at(sum.view().indices(), lost.span(), residual);
    ++now.calls;
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }

 private:
  /// Whether ranks send entries within quotas. On a tree, ranks add up the entries of each block in every call, and
  /// also with a lossy storage, because a call that is repeated would add its rounding errors to the residual twice.
  template <class Topology, class Storage>
  static constexpr bool has_quotas = straight_topology<Topology> && storage::streams_type<Storage>::exact;

  /// Adds the values of `lost` at `indices` to `residual`. Overwrites `lost`.
  template <class Index, class T>
  static void add_at(std::span<const Index> indices, std::span<T> lost, residual_view<T> residual) {
    std::size_t count = 0; // the indices ascend, so no value is overwritten before it is read
    for (const Index i : indices) lost[count++] = lost[i];
    residual.add(coo_span<T, Index>{indices, lost.first(count)});
  }
};

} // namespace spar
