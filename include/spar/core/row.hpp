// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows: W adjacent values under one index, such as the rows of an embedding's gradient.
#pragma once

#include <spar/core/element.hpp>

#include <cstddef>
#include <type_traits>

namespace spar::inline v0_1 {

/// W adjacent values of type T as one value of a vector: a stream has one index for each row, selectors rank rows by
/// their Euclidean norms, and the operations of the library apply to each of the W values. A vector of rows has the
/// layout of its values, so `rows<W>(values)` makes rows of a vector without copying. A row has at most 4096 bytes,
/// because kernels process blocks of this size.
template <class T, std::size_t W>
struct row {
  static_assert(size_of(code_of<T>) != 0, "the values of a spar::row have one of the library's own element types");
  static_assert(W >= 1 && W * sizeof(T) <= 4096, "a spar::row has 1 value or more, and at most 4096 bytes");
  using value_type = T; ///< the type of the values

  T values[W]; ///< the values

  /// The value `w` of the row.
  constexpr T& operator[](std::size_t w) noexcept { return values[w]; }
  constexpr const T& operator[](std::size_t w) const noexcept { return values[w]; }
  /// Whether all values are equal.
  friend constexpr bool operator==(const row&, const row&) = default;
};

/// The number of values of the row T, or 0 if T is not a row.
template <class T>
inline constexpr std::size_t width_of = 0;
/// The number of values of a row.
template <class T, std::size_t W>
inline constexpr std::size_t width_of<row<T, W>> = W;

/// Whether T is a row.
template <class T>
inline constexpr bool is_row = width_of<T> != 0;

/// The code of a row says that it is a row, and the type of its values; ranks compare the number W apart.
template <class T, std::size_t W>
inline constexpr element_code code_of<row<T, W>> = detail::rows_of(code_of<T>);

namespace detail {

template <class T>
struct component : std::type_identity<T> {};
template <class T, std::size_t W>
struct component<row<T, W>> : std::type_identity<T> {};

} // namespace detail

/// The type of the values of the row T, or T itself if T is not a row.
template <class T>
using component_of = typename detail::component<T>::type;

} // namespace spar::inline v0_1
