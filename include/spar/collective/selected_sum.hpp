// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a schedule that keeps only some sums gets and returns.
#pragma once

#include <spar/core/policy/slot.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstdint>
#include <utility>

namespace spar::inline v0_1 {

/// What one rank gets from an allreduce of selected entries.
template <element T, index_type Index = std::uint32_t>
struct selected_sum {
  selected_sum() = default;
  /// The sum `all`, and this rank's contribution `own`.
  selected_sum(sparse_stream<T, Index> all, sparse_stream<T, Index> own) noexcept
      : sum(std::move(all)), contributed(std::move(own)) {}

  /// The reduced entries, equal on all ranks.
  sparse_stream<T, Index> sum;
  /// The entries that this rank contributed. In gTopk, some of these entries may be in other ranks' residuals instead
  /// of in `sum`; on a device, some may be in this rank's residual.
  sparse_stream<T, Index> contributed;
};

/// What a schedule that keeps only some sums of a call gets from the composition, beside the entries that this rank has
/// selected. `state` and `report` are those of the schedule.
template <class Topology, class Storage, element T, class State = no_state, class Report = detail::no_report>
struct selected_call {
  Topology over;                ///< the topology
  Storage store;                ///< the storage
  selector::topk_bounds bounds; ///< how many of the n entries of a rank the selector selects; all without `bounds(n)`
  std::uint64_t period;         ///< calls from one new threshold of the selector to the next; 1 without `period`
  State& state;                 ///< what the schedule keeps from call to call; changes
  Report& report;               ///< becomes the report about this call
  residual_view<T> residual;    ///< gets what this rank contributed to dropped sums, and its rounding errors

  /// The same call with the storage `by`, of a schedule that writes `other`.
  template <class Storing, class Reports>
  selected_call<Topology, Storing, T, State, Reports> with(const Storing& by, Reports& other) const {
    return {over, by, bounds, period, state, other, residual};
  }
};

} // namespace spar::inline v0_1
