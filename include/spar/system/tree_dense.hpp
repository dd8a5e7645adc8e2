// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dense allreduce over a tree that uses the cheapest of the ring, Rabenseifner's algorithm, BlueConnect and
// FlexReduce.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// `plans` must outlive the last call.
inline auto tree_dense(const tree_plans& plans) { return compose(on_tree(plans), cheapest{}); }
auto tree_dense(tree_plans&&) = delete; // a temporary would not outlive the calls

} // namespace spar
