// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split-allgather over a tree, in which each owner gets the portion of the entries that the tree prescribes.
// Neither the SparCML paper nor the FlexReduce paper contains this combination.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// Returns the split-allgather over the tree of `plans` as a composition, which refers to `plans`: `plans` must outlive
/// the last call.
inline auto tree_sparcml(const tree_plans& plans) { return compose(on_tree(plans), quantile_owners{}); }
auto tree_sparcml(tree_plans&&) = delete; // the composition would refer to a destroyed temporary

} // namespace spar
