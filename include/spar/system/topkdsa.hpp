// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkDSA: exact top-k selection and SparCML's dynamic sparse allreduce (a baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/allreduce/split_allgather.hpp>
#include <spar/collective/composition.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>

#include <cstdint>

namespace spar {

/// The composition of TopkDSA, without a residual.
using topkdsa_allreduce = composition<selector::exact_topk, storage::coo, flat, split_allgather<>>;
/// TopkDSA with error feedback.
template <element T, index_type Index = std::uint32_t>
using topkdsa = error_feedback<T, topkdsa_allreduce, Index>;

} // namespace spar
