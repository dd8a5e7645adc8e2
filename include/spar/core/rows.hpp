// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors of rows as vectors of their values, and the other way round, without copying.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/row.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar::inline v0_1 {

namespace detail {

/// Gives a row of type To the constness of From.
template <class From, class To>
using as_const_as = std::conditional_t<std::is_const_v<From>, const To, To>;

} // namespace detail

/// Returns the values of `rows`, a span of rows, in order, as a span without copying; a span of other values is
/// returned as it is.
template <class T>
[[nodiscard]] constexpr auto components(std::span<T> rows) noexcept {
  if constexpr (is_row<std::remove_const_t<T>>) {
    using value = detail::as_const_as<T, component_of<std::remove_const_t<T>>>;
    return std::span<value>(reinterpret_cast<value*>(rows.data()), rows.size() * width_of<std::remove_const_t<T>>);
  } else {
    return rows;
  }
}

/// Returns `values`, a span, vector or array, as rows of W values, without copying. Rejects a temporary vector or
/// array, which would be gone when the rows are used. Throws `invalid_argument` if W does not divide the number of
/// values.
template <std::size_t W, class Values>
[[nodiscard]] auto rows(Values&& values) {
  if constexpr (detail::expect_lasting<Values>()) {
    const std::span all(values);
    using value = typename decltype(all)::element_type;
    using row_type = detail::as_const_as<value, row<std::remove_const_t<value>, W>>;
    if (all.size() % W != 0) {
      raise<invalid_argument>(
          {"the vector has length ", all.size(), ", which is not a whole number of rows; expected a multiple of ", W});
    }
    return std::span<row_type>(reinterpret_cast<row_type*>(all.data()), all.size() / W);
  }
}

} // namespace spar::inline v0_1
