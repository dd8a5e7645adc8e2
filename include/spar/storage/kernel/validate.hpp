// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks the indices of a coordinate stream. spar checks every stream that comes from a user or from a message.
#pragma once

#include <spar/storage/kernel/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::kernel {

/// Returns the position of the first invalid index, or `indices.size()` if all indices are valid. An index is invalid
/// if it is at least n, or not greater than the index before it.
template <index_type Index>
std::size_t first_bad_index(std::span<const Index> indices, std::uint64_t n) {
  const std::size_t count = indices.size();
  const Index* __restrict at = indices.data();
  constexpr std::size_t block = 64;
  std::size_t increasing = count == 0 ? 0 : 1; // indices[0, increasing) are strictly ascending
  for (; increasing + block <= count; increasing += block) {
    Index wrong = 0; // no early exit, so that the loop over the block vectorises
    for (std::size_t e = 0; e < block; ++e)
      wrong = static_cast<Index>(wrong | static_cast<Index>(at[increasing + e] <= at[increasing + e - 1]));
    if (wrong != 0) break;
  }
  while (increasing < count && at[increasing] > at[increasing - 1]) ++increasing;
  // If the last of the ascending indices is below n, all of them are, so only invalid input needs a search.
  if (increasing != 0 && at[increasing - 1] >= n) return lower_bound(indices.first(increasing), n);
  return increasing;
}

} // namespace spar::kernel
