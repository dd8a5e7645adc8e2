// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the collectives for tree-shaped networks: the topologies on_tree and on_plan, the schedules
// that use these topologies, and the systems flexreduce, tree_dense and tree_sparcml.
#pragma once

#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/spar.hpp>
#include <spar/system/flexreduce.hpp>
#include <spar/system/tree_dense.hpp>
#include <spar/system/tree_sparcml.hpp>
