// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce: an allreduce over an asymmetric tree, with a plan that is made once and used for any number of calls
// (FlexReduce, section III). Reduces dense values, with or without a block codec, and streams.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// Returns FlexReduce as a composition. With `plans`, the composition reduces vectors of any length over the tree of
/// `plans`; with `plan`, the composition only reduces vectors of the length for which the plan was made. The
/// composition refers to `plans` or `plan`, which must outlive the last call, and encodes by `codec`.
template <class Codec = storage::coo>
auto flexreduce(const tree_plans& plans, const Codec& codec = {}) {
  return compose(on_tree(plans), codec, chains{});
}
/// Returns FlexReduce as a composition for the length for which `plan` was made; encodes by `codec`.
template <class Codec = storage::coo>
auto flexreduce(const flex_plan& plan, const Codec& codec = {}) {
  return compose(on_plan(plan), codec, chains{});
}
template <class Codec = storage::coo>
auto flexreduce(tree_plans&&, const Codec& = {}) = delete; // the composition would refer to a destroyed temporary
template <class Codec = storage::coo>
auto flexreduce(flex_plan&&, const Codec& = {}) = delete; // the composition would refer to a destroyed temporary

} // namespace spar
