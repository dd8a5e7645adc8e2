// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the part of a coordinate stream that lies in an index range, for the split phase of SparCML's split-allgather
// (section 5.3.2), and checks the indices of every stream that comes from a user or from a message.
#pragma once

#include <spar/core/coo_span.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::kernel {

/// Returns the position of the first index in the sorted `indices` that is at least `bound`, or `indices.size()` if all
/// indices are below `bound`.
template <index_type Index>
constexpr std::size_t lower_bound(std::span<const Index> indices, std::uint64_t bound) {
  std::size_t first = 0;
  for (std::size_t length = indices.size(); length > 0;) {
    const std::size_t half = length / 2;
    const bool below = indices[first + half] < bound;
    first += below ? half + 1 : 0;
    length = below ? length - half - 1 : half;
  }
  return first;
}

/// Returns a view of the entries of `stream` with `begin <= index < end`; the view is empty if `end <= begin`. Takes
/// O(log `stream.size()`) time.
template <element T, index_type Index>
constexpr coo_span<T, Index> slice(coo_span<T, Index> stream, std::uint64_t begin, std::uint64_t end) {
  const std::size_t first = lower_bound(stream.indices, begin);
  const std::size_t last = lower_bound(stream.indices, end);
  return stream.subspan(first, last < first ? 0 : last - first);
}

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

} // namespace spar::inline v0_1::kernel
