// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkA: exact top-k and an allgather (the baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/gather_and_merge.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>

#include <cstdint>

namespace spar {

template <element T, index_type Index = std::uint32_t>
using topka = error_feedback<T, selected<selector::exact_topk, gather_and_merge>, Index>;

} // namespace spar
