// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A contiguous range of indices.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>

namespace spar::inline v0_1 {

/// The range of the indices from `begin` to `end` - 1, inclusive.
struct index_range {
  std::uint64_t begin = 0; ///< the first index
  std::uint64_t end = 0;   ///< the index after the last one
  /// The number of indices.
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end - begin; }
  friend constexpr bool operator==(const index_range&, const index_range&) = default;
};

} // namespace spar::inline v0_1
