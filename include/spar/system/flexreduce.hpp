// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce: the allreduce over an asymmetric tree, planned once, executed often (FlexReduce, section III); of dense
// values, with a block codec or without, and of streams.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>

namespace spar {

/// Over a tree, for any n, or by a plan, for its n. What it is made for is borrowed until the last call has ended.
template <class Codec = storage::coo>
auto flexreduce(const tree_plans& plans, const Codec& codec = {}) {
  return compose(on_tree(plans), codec, chains{});
}
template <class Codec = storage::coo>
auto flexreduce(const flex_plan& plan, const Codec& codec = {}) {
  return compose(on_plan(plan), codec, chains{});
}
template <class Codec = storage::coo>
auto flexreduce(tree_plans&&, const Codec& = {}) = delete; // they are borrowed
template <class Codec = storage::coo>
auto flexreduce(flex_plan&&, const Codec& = {}) = delete; // it is borrowed

} // namespace spar
