// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view of a coordinate stream, the operand type of the kernels (SparCML, section 5.1).
#pragma once

#include <spar/core/element.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar::kernel {

/// Entries `(indices[e], values[e])`, sorted by index, without duplicates; both spans have the same length. The kernels
/// do not check the indices; `first_bad_index` does.
template <element T, index_type Index>
struct coo_span {
  std::span<const Index> indices;
  std::span<const T> values;

  constexpr std::size_t size() const { return indices.size(); }
  constexpr bool empty() const { return indices.empty(); }
  /// Returns a view of `count` entries, starting at entry `first`.
  constexpr coo_span subspan(std::size_t first, std::size_t count) const {
    return {indices.subspan(first, count), values.subspan(first, count)};
  }
};

template <class Index, class T>
coo_span(std::span<Index>, std::span<T>) -> coo_span<std::remove_const_t<T>, std::remove_const_t<Index>>;

} // namespace spar::kernel
