// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The allreduce of quantised top-k SGD: exact top-k selection, and a split-allgather whose second phase is quantised
// (SparCML, section 6 and algorithm 1).
#pragma once

#include <spar/collective/allreduce/split_allgather.hpp>
#include <spar/collective/composition.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/storage/codec.hpp>

#include <cstdint>

namespace spar {

/// The composition: exact selection, and dense blocks in `Bits` bits per value; without a residual.
template <int Bits = 4>
using quantised_sparcml_allreduce =
    composition<selector::exact_topk, storage::then<storage::coo, storage::qsgd<Bits>>, flat, dsar_split>;
/// Quantised top-k SGD's allreduce with error feedback.
template <element T, int Bits = 4, index_type Index = std::uint32_t>
using quantised_sparcml = error_feedback<T, quantised_sparcml_allreduce<Bits>, Index>;

} // namespace spar
