// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule that divides indices among owners needs a topology that assigns owners; a plan for one n does not.
#include <spar/tree.hpp>

#ifdef POSITIVE_CONTROL
auto make(const spar::tree_plans& plans) { return spar::compose(spar::on_tree(plans), spar::quantile_owners{}); }
#else
auto make(const spar::flex_plan& plan) { return spar::compose(spar::on_plan(plan), spar::quantile_owners{}); }
#endif
