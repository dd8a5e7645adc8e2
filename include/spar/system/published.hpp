// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The published systems: each is a composition, and error feedback around it. SparCML is in
// collective/allreduce/compose.hpp, FlexReduce in tree.hpp, and eager-SGD in system/eager_sgd.hpp.
#pragma once

#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/allreduce/split_allgather.hpp>
#include <spar/collective/composition.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/storage.hpp>

#include <cstdint>

namespace spar::inline v0_1 {

/// Ok-Topk without error feedback: each rank contributes approximately its k largest entries, and the result keeps
/// approximately the k largest entries of the sum (Ok-Topk, algorithm 1). `Topology` is `flat` or `on_tree`. On a flat
/// topology, each rank sends O(k + P) words.
template <class Topology = flat>
using ok_topk_allreduce = composition<selector::threshold_reuse, storage::coo, Topology, balanced_owners>;
/// Ok-Topk with error feedback. An object keeps the residual, the thresholds and the block boundaries between calls. A
/// program creates one object, `ok_topk<float> reduce{{.select = {.density = 0.01}}}`, and calls
/// `reduce(net, gradient)` in each step.
template <element T, index_type Index = std::uint32_t, class Topology = flat>
using ok_topk = error_feedback<T, ok_topk_allreduce<Topology>, Index>;

/// TopkA without a residual: exact top-k selection and an allgather (a baseline of Ok-Topk, sections 2 and 5).
using topka_allreduce = composition<selector::exact_topk, storage::coo, flat, gather_and_merge>;
/// TopkA with error feedback.
template <element T, index_type Index = std::uint32_t>
using topka = error_feedback<T, topka_allreduce, Index>;

/// TopkDSA without a residual: exact top-k selection and SparCML's dynamic sparse allreduce (a baseline of Ok-Topk,
/// sections 2 and 5).
using topkdsa_allreduce = composition<selector::exact_topk, storage::coo, flat, split_allgather<>>;
/// TopkDSA with error feedback.
template <element T, index_type Index = std::uint32_t>
using topkdsa = error_feedback<T, topkdsa_allreduce, Index>;

/// Gaussiank without a residual: top-k selection by a threshold that is computed from a normal distribution, and an
/// allgather (a baseline of Ok-Topk, sections 2 and 5).
using gaussiank_allreduce = composition<selector::gaussian, storage::coo, flat, gather_and_merge>;
/// Gaussiank with error feedback.
template <element T, index_type Index = std::uint32_t>
using gaussiank = error_feedback<T, gaussiank_allreduce, Index>;

/// gTopk without a residual: exact top-k selection, and a reduction tree that selects again at each inner node (Shi et
/// al., ICDCS 2019; a baseline of Ok-Topk, sections 2 and 5).
using gtopk_allreduce = composition<selector::exact_topk, storage::coo, flat, tree_of_topk>;
/// gTopk with error feedback.
template <element T, index_type Index = std::uint32_t>
using gtopk = error_feedback<T, gtopk_allreduce, Index>;

/// The allreduce of quantised top-k SGD without a residual: exact top-k selection, and a split-allgather whose second
/// phase sends dense blocks in `Bits` bits per value (SparCML, section 6 and algorithm 1).
template <int Bits = 4>
using quantised_sparcml_allreduce =
    composition<selector::exact_topk, storage::then<storage::coo, storage::qsgd<Bits>>, flat, dsar_split>;
/// Quantised top-k SGD's allreduce with error feedback.
template <element T, int Bits = 4, index_type Index = std::uint32_t>
using quantised_sparcml = error_feedback<T, quantised_sparcml_allreduce<Bits>, Index>;

} // namespace spar::inline v0_1
