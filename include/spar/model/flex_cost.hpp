// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The expected time of an allreduce by any plan (`flex_plan`) over the links of a tree (FlexReduce, section IV).
#pragma once

#include <spar/model/tree_cost.hpp>
#include <spar/topology/flex_plan.hpp>

#include <cstddef>

namespace spar::inline v0_1 {

/// Expected seconds of an allreduce by `plan` with values of `value_bytes` bytes. Levels run one after the other. On a
/// level, all chains send their first messages at the same time, then their second messages, and so on. If `plan` was
/// made for `topology`, and links inside a branch have more bandwidth than links between branches, the result is that
/// of equation 6 of FlexReduce, but with the latencies of the paths that the messages take.
inline double seconds_of_plan(const tree& topology, const flex_plan& plan, double value_bytes) {
  tree_traffic links(topology);
  double seconds = 0;
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    for (std::size_t hop = 0; hop + 1 < plan.longest_chain(level); ++hop) {
      for (const flex_plan::call& c : plan.calls(level)) {
        const auto chain = plan.chain(c);
        if (hop + 1 >= chain.size()) continue;
        links.add(chain[hop], chain[hop + 1], value_bytes * static_cast<double>(c.range.size()));
      }
      seconds += links.seconds();
    }
  }
  return 2 * seconds; // the loops cover the reduce-scatter, and the allgather takes as long
}

} // namespace spar::inline v0_1
