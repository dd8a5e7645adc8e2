// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A field of one dimension and any length, for tests that link libzfp.
#pragma once

#include <spar/storage/zfp_field.hpp>

#include <cstdint>

namespace spar_test {

struct line : spar::storage::zfp_field {
  constexpr line() : zfp_field{.shape = {1}, .accuracy = 0.001} {}
  static constexpr void validate(std::uint64_t) noexcept {}
};

} // namespace spar_test
