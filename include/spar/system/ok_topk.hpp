// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk: the k largest entries of the sum of every rank's k largest, in O(k) words (Ok-Topk, algorithm 1).
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <cstdint>

namespace spar {

/// `Topology`: flat, or on_tree.
template <class Topology = flat>
using ok_topk_allreduce = composition<selector::threshold_reuse, storage::coo, Topology, balanced_owners>;

/// Keeps the state: `ok_topk<float> reduce{{.select = {.density = 0.01}}}`, then `reduce(net, gradient)` again and
/// again.
template <element T, index_type Index = std::uint32_t, class Topology = flat>
using ok_topk = error_feedback<T, ok_topk_allreduce<Topology>, Index>;

} // namespace spar
