// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of Ok-Topk (algorithm 1), in which ranks send only the values of entries that can be in the result.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/collective/topk/pruned/exchange.hpp>
#include <spar/collective/topk/pruned/gather_winners.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/storage.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// `balanced_owners` for slow networks: sums, residuals and thresholds have the same bits, but ranks send fewer bytes
/// in more messages.
///
/// Only sums that reach the threshold of the last call are in the result, unless the call finds a lower threshold. So
/// ranks send all their indices, but only the values whose magnitude reaches this threshold. From these values, and
/// from bounds of the others, each owner computes at which indices a sum can reach the threshold, and asks for the
/// values that are missing there. At the end, an owner tells each rank which of that rank's entries won, and sends no
/// sums to which only that rank contributed.
///
/// In a call that finds a lower threshold, the ranks send their entries again, with all values. In the first call,
/// which has no threshold, ranks send all values at once. They also do so in every call on integers, whose sums wrap
/// around, and on rows, which are ranked by their norms, so that neither have such bounds.
///
/// Entries travel in the code of the storage, which must keep all bits; index sets and values without indices always
/// travel in code. A rank sends 4 (P - 1) + ceil(log2 P) messages, without those of searches and of counting entries
/// (see balanced_owners). The bounds of `balanced_owners` on entries hold, except that a call that sends its entries
/// again sends twice as many.
struct pruned_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "pruned_owners";

  std::uint64_t tau = 64; ///< the owners' boundaries are computed again every `tau` calls; at least 1

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!selector_with_bounds<Selector>)
      return needs_k();
    else if constexpr (!straight_topology<Topology>)
      return because<
          "owners ask the ranks that have contributed for values, which needs a topology without a plan: use "
          "flat, or the schedule balanced_owners">();
    else if constexpr (!storage::streams_type<Storage>::exact)
      return because<"this schedule bounds sums by values that no storage has rounded: use a storage that keeps all "
                     "bits, or the schedule balanced_owners">();
    else
      return detail::accepts_entries_alone<Storage>();
  }

  /// The state that a call leaves for the next call.
  using state = owners_state;
  /// The statistics of the last call. `evened_out` is always false.
  struct report : owners_report {
    std::uint64_t asked = 0; ///< the number of values that this rank, as an owner, has asked for
    bool sent_again = false; ///< whether the threshold fell, and the ranks sent all values again
  };

  void validate(std::uint64_t) const {
    if (tau == 0) raise<invalid_argument>({"tau of pruned_owners is 0 calls; expected at least 1"});
  }
  void options(auto&& f) const { f("tau", tau); }

  /// Sums the selected entries `mine` of all ranks, and keeps the k largest sums. What a rank contributed to dropped
  /// sums goes into the residual of the `call`.
  template <transport Net, class Topology, class Storage, element T, index_type Index, reduction<T> Op>
  task<selected_sum<T, Index>> reduce(channel<Net> net, selected_call<Topology, Storage, T, state, report> call,
                                      sparse_stream<T, Index> mine, Op op) const& {
    net = net.in_order(call.over.order());
    call.report = {};
    owners_call owners(net, mine.view(), call.over.owners(mine.dimension(), net.size()), call, tau, true);
    pruned_exchange exchange(net, std::as_const(mine).view(), bounded_ownership{owners.boundaries()},
                             storage::streams_of(call.store), floor_of<T, Op>(call.state.global_threshold));
    const auto reduce = [&](block_quotas& quotas) { return exchange.reduce(op, quotas); };
    sparse_stream<T, Index> sums = co_await owners.exchange(reduce);
    co_await owners.count(sums);
    if (owners.lowest_threshold() < exchange.floor()) { // also sums below the floor may win
      call.report.sent_again = true;
      exchange.send_all();
      sums = co_await reduce(owners.quotas());
    }
    call.report.asked = exchange.asked();
    co_await owners.threshold(sums);
    sparse_stream<T, Index> sum = co_await gather_winners(net, sums.view(), owners.shares(), exchange);
    net.work().put_back_unlisted(mine, std::as_const(sum).indices(), call.residual);
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }

 private:
  /// The magnitude below which ranks keep values back, given the threshold of the last call, or 0. Infinities and NaN
  /// are always sent.
  template <element T, class Op>
  static kernel::magnitude<T> floor_of(std::uint64_t threshold) {
    if constexpr (detail::is_monotone<T, Op>) {
      const auto infinity = kernel::magnitude_of(spar::detail::highest<T>());
      return threshold <= 1 ? kernel::magnitude<T>{} : std::min(static_cast<kernel::magnitude<T>>(threshold), infinity);
    } else {
      return 0;
    }
  }
};

} // namespace spar::inline v0_1
