// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the schedules of Ok-Topk keep from call to call, and what they report.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>
#include <vector>

namespace spar::inline v0_1 {

/// The entries in each block in the last call, from which the quotas of the next call follow.
struct block_counts {
  std::vector<std::uint64_t> received{}; ///< all ranks' entries in each block, equal on all ranks; empty: not known
  std::uint64_t quotas_hold = 1;         ///< 0 if a rank exceeded one of its quotas, else 1; equal on all ranks
  std::vector<std::uint64_t> sent{};     ///< this rank's entries in each block
};

/// The state that a call leaves for the next call, equal on all ranks except `counts.sent`.
struct owners_state {
  std::uint64_t calls = 0;            ///< the number of calls so far
  std::uint64_t global_threshold = 1; ///< magnitudes from which the last result began (kernel::magnitude_of)
  /// The P + 1 boundaries of the owners' ranges. On a tree, each range consists of cells (see tree_cells), and the
  /// vector contains the boundaries of all cells.
  std::vector<std::uint64_t> boundaries{};
  block_counts counts{}; ///< on a flat topology, the entries in the last call, from which the next quotas follow

  void shared_state(auto&& f) {
    f(calls), f(global_threshold), f(boundaries), f(counts.received), f(counts.quotas_hold);
  }
  void own_state(auto&& f) { f(counts.sent); }
};

/// The statistics of the last call. In each refinement of the boundaries, a rank sends 2 ceil(log2 P) messages.
struct owners_report {
  std::uint64_t boundary_rounds = 0; ///< the number of refinements of the owners' boundaries
  bool counted_first = false;        ///< whether the ranks added up the entries of each block before they sent entries
  bool repeated = false; ///< whether a rank exceeded a quota, so that all ranks counted, and sent their entries again
  /// Number of rounds of the search for the threshold; in each round, a rank sends ceil(log2 P) messages.
  std::uint64_t threshold_rounds = 0;
  bool evened_out = false; ///< whether ranks moved entries to balance the owners' shares before the allgather
};

} // namespace spar::inline v0_1
