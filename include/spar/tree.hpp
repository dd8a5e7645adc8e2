// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the collectives for tree-shaped networks: the topologies on_tree and on_plan, the schedules
// that use these topologies, and the systems flexreduce, tree_dense and tree_sparcml.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/spar.hpp>

namespace spar::inline v0_1 {

/// Returns FlexReduce as a composition: an allreduce over an asymmetric tree, with a plan that is made once and used
/// for any number of calls (FlexReduce, section III). FlexReduce reduces dense values, with or without a block codec,
/// and streams. With `plans`, the composition reduces vectors of any length over the tree of `plans`; with `plan`, the
/// composition only reduces vectors of the length for which the plan was made. The composition refers to `plans` or
/// `plan`, which must outlive the last call, and encodes by `codec`.
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

/// Returns an allreduce of dense values over the tree of `plans` that runs whichever of four algorithms is the cheapest
/// according to the model of the tree's links: the ring, Rabenseifner's algorithm, BlueConnect (Cho et al. 2019) or
/// FlexReduce (section III). The composition refers to `plans`, which must outlive the last call.
inline auto tree_dense(const tree_plans& plans) { return compose(on_tree(plans), cheapest{}); }
auto tree_dense(tree_plans&&) = delete; // the composition would refer to a destroyed temporary

/// Returns SparCML's split-allgather over the tree of `plans`, in which each owner gets the portion of the entries that
/// the tree prescribes. Neither the SparCML paper nor the FlexReduce paper contains this combination. The composition
/// refers to `plans`, which must outlive the last call.
inline auto tree_sparcml(const tree_plans& plans) { return compose(on_tree(plans), quantile_owners{}); }
auto tree_sparcml(tree_plans&&) = delete; // the composition would refer to a destroyed temporary

} // namespace spar::inline v0_1
