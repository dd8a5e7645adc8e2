// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of Ok-Topk: the k largest entries of the sum of every rank's k largest entries, in O(k) words (Ok-Topk,
// algorithm 1).
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/collective/topk/balanced_ownership.hpp>
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

/// Each rank sends its selected entries to the owners of their indices, whose boundaries balance the load. The owners
/// keep the k largest sums, by a threshold that all ranks share, and all ranks gather these sums. The selector's
/// `bounds(n)` give k, and its `period`, if it has one, gives the number of calls from one computation of the global
/// threshold to the next (the paper's tau'). Only the entries that reach the global result leave `x`.
///
/// If each call of the selector stays within its bounds, for which `epsilon` is the tolerance, a rank sends owners at
/// most (1 + epsilon) k entries, an owner gets at most (1 + epsilon) k + P entries, and the result has at most
/// (1 + epsilon) k entries; with epsilon 0 the result has k entries, or all nonzeros if there are fewer. A rank sends
/// or receives at most 2 (1 + epsilon) k + 4 (1 + epsilon) k (P - 1) / P + 10 P words (of 4 bytes, with values and
/// indices of 4 bytes); more in calls that search for thresholds (see keep_global_topk) or boundaries (see
/// balance_ownership). On a tree an owner gets its portion of P times as many entries.
struct balanced_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "balanced_owners";

  std::uint64_t tau = 64; ///< number of calls from one computation of the owners' boundaries to the next

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!selector_with_bounds<Selector>)
      return needs_k();
    else if constexpr (!topology_with_owners<Topology>)
      return needs_owners();
    else
      return detail::accepts_entries_alone<Storage>();
  }

  /// The state that changes from call to call; it is the same on all ranks.
  struct state {
    std::uint64_t calls = 0;
    std::uint64_t global_threshold = 1;
    std::vector<std::uint64_t> boundaries{}; ///< P + 1 boundaries of owners; on a tree, of its cells

    template <class F>
    void shared_state(F&& f) {
      f(calls), f(global_threshold), f(boundaries);
    }
    template <class F>
    void own_state(F&&) const noexcept {}
  };
  /// What the last call did.
  struct report {
    std::uint64_t boundary_rounds = 0;  ///< rounds of 2 ceil(log2 P) messages each
    std::uint64_t threshold_rounds = 0; ///< rounds of ceil(log2 P) messages each
    bool evened_out = false;            ///< whether the owners' shares were balanced before the allgather
  };

  void validate(std::uint64_t) const {
    if (tau == 0) raise<invalid_argument>({"tau is 0 calls; expected at least 1"});
  }
  template <class F>
  void options(F&& f) const {
    f("tau", tau);
  }

  template <index_type Index, transport Net, class Composition, element T, reduction<T> Op, class Prepare>
  task<selected_sum<T, Index>>
  selected(channel<Net> net, const Composition* parts, typename Composition::state* state_now,
           typename Composition::report* report_now, std::span<T> x, Op op, Prepare prepare) const& {
    using Topology = typename Composition::topology_type;
    using Storage = typename Composition::storage_type;
    if constexpr (straight_topology<Topology>) net = net.in_order(parts->over.order());
    const auto ranks = static_cast<std::size_t>(net.size());
    const selector::topk_bounds bounds = parts->select.bounds(x.size());
    state& now = state_now->by;
    report& last = report_now->by;

    sparse_stream<T, Index> mine = select_for<Index>(net, *parts, state_now, report_now, x, prepare);
    const auto owners = parts->over.owners(x.size(), net.size());
    now.boundaries.resize(static_cast<std::size_t>(owners.count()) + 1);
    const std::uint64_t most = (bounds.most + ranks) * ranks / (now.boundaries.size() - 1); // for the average block
    last.boundary_rounds = co_await balance_ownership(net, std::as_const(mine).indices(), owners, now.boundaries,
                                                      now.calls % tau == 0, most);

    // On a tree, ranks also encode partial sums. `lost` collects the rounding errors of this rank's encodings. Only the
    // errors of entries of the global result go to the residual, because all ranks put their whole contributions to
    // other entries back.
    constexpr bool rounds_on_the_way = !straight_topology<Topology> && !storage::streams_type<Storage>::exact;
    buffer<T> lost(net.memory(), rounds_on_the_way ? x.size() : 0);
    std::fill_n(lost.data(), lost.size(), T{});
    const std::span<T> residual = rounds_on_the_way ? lost.span() : x;
    sparse_stream<T, Index> reduced =
        co_await reduce_to_owners(net, parts->over, mine.view(), now.boundaries, op, parts->store, residual);
    if (reduced.is_dense()) reduced = to_sparse(reduced.view(), op, net.memory());
    buffer<std::uint64_t> shares(net.memory(), ranks + 1); // where each rank's share begins among all shares
    last.threshold_rounds = co_await keep_global_topk(net, reduced, bounds, now.calls % period_of(parts->select) == 0,
                                                      now.global_threshold, shares.span());
    sparse_stream<T, Index> sum = co_await gather_shares(net, parts->over, std::move(reduced), now.boundaries,
                                                         shares.span(), last.evened_out, parts->store, x);
    put_back_losers(mine, sum.view(), x, net.memory());
    if constexpr (rounds_on_the_way) add_at(sum.view().indices(), std::as_const(lost).span(), x);
    ++now.calls;
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }

 private:
  template <class Index, class T>
  static void add_at(std::span<const Index> indices, std::span<const T> from, std::span<T> to) {
    for (const Index i : indices) to[i] = static_cast<T>(to[i] + from[i]);
  }
  /// The number of calls from one computation of the global threshold to the next: 1 for a selector without `period`,
  /// which computes its own threshold in every call.
  template <class Selector>
  static std::uint64_t period_of(const Selector& select) {
    if constexpr (requires { select.period; })
      return select.period;
    else
      return 1;
  }
};

} // namespace spar
