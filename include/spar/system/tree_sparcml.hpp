// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split-allgather over a tree: owners by the tree's portions of where the entries are. Beyond both papers.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// The plans are borrowed until the last call has ended.
inline auto tree_sparcml(const tree_plans& plans) { return compose(on_tree(plans), quantile_owners{}); }
auto tree_sparcml(tree_plans&&) = delete; // they are borrowed

} // namespace spar
