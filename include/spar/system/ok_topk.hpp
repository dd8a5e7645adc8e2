// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk: an allreduce in which each rank contributes approximately its k largest entries, and the result keeps
// approximately the k largest entries of the sum (Ok-Topk, algorithm 1). On a flat topology, each rank sends O(k + P)
// words.
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <cstdint>

namespace spar {

/// Ok-Topk as a composition, without error feedback. `Topology` is `flat` or `on_tree`.
template <class Topology = flat>
using ok_topk_allreduce = composition<selector::threshold_reuse, storage::coo, Topology, balanced_owners>;

/// Ok-Topk with error feedback. An object keeps the residual, the thresholds and the block boundaries between calls. A
/// program creates one object, `ok_topk<float> reduce{{.select = {.density = 0.01}}}`, and calls
/// `reduce(net, gradient)` in each step.
template <element T, index_type Index = std::uint32_t, class Topology = flat>
using ok_topk = error_feedback<T, ok_topk_allreduce<Topology>, Index>;

} // namespace spar
