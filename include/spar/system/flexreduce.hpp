// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce: the allreduce over an asymmetric tree by a plan that is made once and executed often (FlexReduce, section
// III); for dense values, with or without a block codec, and for streams.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// FlexReduce over a tree, for any n, or by a single plan, for the plan's n. `plans` or `plan` must outlive the last
/// call.
template <class Codec = storage::coo>
auto flexreduce(const tree_plans& plans, const Codec& codec = {}) {
  return compose(on_tree(plans), codec, chains{});
}
template <class Codec = storage::coo>
auto flexreduce(const flex_plan& plan, const Codec& codec = {}) {
  return compose(on_plan(plan), codec, chains{});
}
template <class Codec = storage::coo>
auto flexreduce(tree_plans&&, const Codec& = {}) = delete; // a temporary would not outlive the calls
template <class Codec = storage::coo>
auto flexreduce(flex_plan&&, const Codec& = {}) = delete; // a temporary would not outlive the calls

} // namespace spar
