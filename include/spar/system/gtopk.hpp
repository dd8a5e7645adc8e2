// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gTopk: exact top-k selection, and a reduction tree that selects again at each inner node (Shi et al., ICDCS 2019; a
// baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>

#include <cstdint>

namespace spar {

/// The composition of gTopk, without a residual.
using gtopk_allreduce = composition<selector::exact_topk, storage::coo, flat, tree_of_topk>;
/// gTopk with error feedback.
template <element T, index_type Index = std::uint32_t>
using gtopk = error_feedback<T, gtopk_allreduce, Index>;

} // namespace spar
