// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkDSA: exact top-k and SparCML's dynamic sparse allreduce (a baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/split_allgather.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>

#include <cstdint>

namespace spar {

template <element T, index_type Index = std::uint32_t>
using topkdsa = error_feedback<T, selected<selector::exact_topk, split_allgather<>>, Index>;

} // namespace spar
