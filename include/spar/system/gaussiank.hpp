// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gaussiank: top-k selection by a threshold that is computed from a normal distribution, and an allgather (a baseline
// of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/composition.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/gaussian.hpp>

#include <cstdint>

namespace spar {

/// The composition of Gaussiank, without a residual.
using gaussiank_allreduce = composition<selector::gaussian, storage::coo, flat, gather_and_merge>;
/// Gaussiank with error feedback.
template <element T, index_type Index = std::uint32_t>
using gaussiank = error_feedback<T, gaussiank_allreduce, Index>;

} // namespace spar
