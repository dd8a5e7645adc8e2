// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gTopk: exact top-k and a tree of re-selections (Shi et al., ICDCS 2019; a baseline of Ok-Topk, sections 2 and 5).
#pragma once

#include <spar/collective/gtopk.hpp>
#include <spar/optimizer/error_feedback.hpp>

#include <cstdint>

namespace spar {

template <element T, index_type Index = std::uint32_t>
using gtopk = error_feedback<T, gtopk_allreduce<>, Index>;

} // namespace spar
