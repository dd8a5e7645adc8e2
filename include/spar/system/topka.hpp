// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkA: exact top-k selection and an allgather (a baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/composition.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>

#include <cstdint>

namespace spar {

/// The composition of TopkA, without a residual.
using topka_allreduce = composition<selector::exact_topk, storage::coo, flat, gather_and_merge>;
/// TopkA with error feedback.
template <element T, index_type Index = std::uint32_t>
using topka = error_feedback<T, topka_allreduce, Index>;

} // namespace spar
