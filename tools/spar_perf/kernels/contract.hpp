// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks that a policy keeps the contract of its concept, before anything is measured.
#pragma once

#include "policies.hpp"

#include <stdexcept>

namespace spar::perf {

/// The sentence names the policy, the rule, the input and the values.
struct broken_contract : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Each function throws `broken_contract` for the first rule that the policy breaks.

/// Of a selector: the selected entries and what is left are the input, bit for bit; indices ascend; no zero is
/// selected; NaN ranks above every number, if the selector ranks values; two runs with the same inputs give the same
/// entries; and if the selector has bounds, the number of entries is not far outside them. Vectors have 0 to 4096
/// values, or up to 2^20 if the selector refuses these, with ties, zeros, -0.0, infinities and NaN. Throws what
/// `validate` throws if it refuses all vectors.
void check_contract(const selector_policy& select);

/// Of a stream codec: `encode` writes no more bytes than `bound` announces; `decode` returns the same indices, and the
/// values within the stated error, see `block_codec` for codecs that round; hostile bytes (cut off, flipped, random)
/// give valid indices or `corrupt_message`, and nothing is written outside the arrays.
void check_contract(const stream_policy& codec);

/// Of a block codec: `encode` writes exactly the announced bytes; `decode` returns the values within the stated error;
/// the same values at the same position give the same bytes. Leaves out blocks that `can_encode` refuses.
void check_contract(const block_policy& codec);

/// Of an operation: commutative, associative on whole numbers, with a neutral element.
void check_contract(const merge_policy& op);

} // namespace spar::perf
