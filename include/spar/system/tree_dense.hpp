// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce of dense values over a tree that runs whichever of four algorithms is the cheapest according to the
// model of the tree's links: the ring, Rabenseifner's algorithm, BlueConnect (Cho et al. 2019) or
// FlexReduce (section III).
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// Returns the allreduce of dense values over the tree of `plans` as a composition, which refers to `plans`: `plans`
/// must outlive the last call.
inline auto tree_dense(const tree_plans& plans) { return compose(on_tree(plans), cheapest{}); }
auto tree_dense(tree_plans&&) = delete; // the composition would refer to a destroyed temporary

} // namespace spar
