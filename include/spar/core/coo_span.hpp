// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The indices and the values of a sparse stream, in two arrays (SparCML, section 5.1).
#pragma once

#include <spar/core/element.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar::inline v0_1 {

/// Entries `(indices[e], values[e])`, sorted by index, without duplicates; both spans have the same length. Nothing
/// checks the indices, except functions that say so, such as `check_indices`.
template <element T, index_type Index>
struct coo_span {
  std::span<const Index> indices; ///< the indices, in ascending order
  std::span<const T> values;      ///< the value at each index

  /// The number of entries.
  constexpr std::size_t size() const { return indices.size(); }
  /// Whether there are no entries.
  constexpr bool empty() const { return indices.empty(); }
  /// Returns a view of `count` entries, starting at entry `first`.
  constexpr coo_span subspan(std::size_t first, std::size_t count) const {
    return {indices.subspan(first, count), values.subspan(first, count)};
  }
};

/// `coo_span{indices, values}`, from spans whose elements may be changed.
template <class Index, class T>
coo_span(std::span<Index>, std::span<T>) -> coo_span<std::remove_const_t<T>, std::remove_const_t<Index>>;

} // namespace spar::inline v0_1
