// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the part of a coordinate stream that lies in an index range, for the split phase of SparCML's split-allgather
// (section 5.3.2).
#pragma once

#include <spar/core/coo_span.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::kernel {

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

} // namespace spar::kernel
