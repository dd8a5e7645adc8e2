// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split-allgather over a tree: each owner gets the tree's portion of the entries. This combination is in
// neither paper (SparCML, FlexReduce).
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// `plans` must outlive the last call.
inline auto tree_sparcml(const tree_plans& plans) { return compose(on_tree(plans), quantile_owners{}); }
auto tree_sparcml(tree_plans&&) = delete; // a temporary would not outlive the calls

} // namespace spar
