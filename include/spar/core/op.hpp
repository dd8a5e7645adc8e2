// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduction operations. Each is associative (up to rounding) and commutative, is applied coordinate by coordinate, and
// has a neutral element (SparCML, section 5.2). collective/algorithm.hpp states the order in which algorithms apply a
// reduction operation.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/row.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace spar::inline v0_1 {

namespace detail {

/// Returns f(a, b). Integers are first converted to an unsigned type, so that signed sums and products wrap around
/// without undefined behaviour.
template <class T, class F>
SPAR_HOST_DEVICE constexpr T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    // U is at least as wide as `unsigned`, because the operands of `f` would otherwise be promoted to int, which is
    // signed.
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return static_cast<T>(f(a, b));
  }
}

/// Returns the row of the values op(a[w], b[w]).
template <class Row, class Op>
SPAR_HOST_DEVICE constexpr Row of_rows(Row a, const Row& b, const Op& op) {
  for (std::size_t w = 0; w < width_of<Row>; ++w) a.values[w] = op(a.values[w], b.values[w]);
  return a;
}
/// Returns `value` or, if T is a row, a row of such values.
template <class T>
constexpr T repeated(component_of<T> value) {
  if constexpr (is_row<T>) {
    T all{};
    for (auto& each : all.values) each = value;
    return all;
  } else {
    return value;
  }
}

template <class T>
constexpr T lowest() {
  if constexpr (std::numeric_limits<T>::has_infinity)
    return -std::numeric_limits<T>::infinity();
  else if constexpr (is_floating<T>)
    return static_cast<T>(-std::numeric_limits<float>::infinity());
  else
    return std::numeric_limits<T>::lowest();
}

template <class T>
constexpr T highest() {
  if constexpr (is_floating<T>)
    return static_cast<T>(-lowest<T>());
  else
    return std::numeric_limits<T>::max();
}

/// A type of values, or of rows of values, that have an order. Rejects std::complex.
template <class T>
concept ordered = requires(const component_of<T>& x) {
  { x < x } -> std::convertible_to<bool>;
};

} // namespace detail

/// A reduction operation on values of type T: a pure function `op(a, b)`, a neutral element (which leaves the other
/// operand unchanged), and a name by which ranks detect that they use different operations. An entry that a sparse
/// stream does not contain has the neutral element as its value. Rejects std::plus, which has no neutral element.
template <class Op, class T>
concept reduction = std::copyable<Op> && requires(const Op& op, T a, T b) {
  { op(a, b) } -> std::same_as<T>;
  { op.template neutral<T>() } -> std::same_as<T>;
  { Op::name } -> std::convertible_to<std::string_view>;
};

/// The sum; that of integers wraps around.
struct sum {
  static constexpr std::string_view name = "sum";
  template <class T>
  SPAR_HOST_DEVICE constexpr T operator()(T a, T b) const {
    if constexpr (is_row<T>)
      return detail::of_rows(a, b, sum{});
    else
      return detail::wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
};

/// The product; that of integers wraps around.
struct product {
  static constexpr std::string_view name = "product";
  template <class T>
  SPAR_HOST_DEVICE constexpr T operator()(T a, T b) const {
    if constexpr (is_row<T>)
      return detail::of_rows(a, b, product{});
    else
      return detail::wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
  template <class T>
  static constexpr T neutral() {
    return detail::repeated<T>(static_cast<component_of<T>>(1));
  }
};

/// The smaller operand; NaN if either operand is NaN, so that a reduction never loses a NaN. The
/// values need an `operator<`.
struct minimum {
  static constexpr std::string_view name = "minimum";
  template <detail::ordered T>
  SPAR_HOST_DEVICE constexpr T operator()(T a, T b) const {
    if constexpr (is_row<T>)
      return detail::of_rows(a, b, minimum{});
    else
      return detail::is_less(a, b) || detail::is_nan(a) ? a : b;
  }
  template <detail::ordered T>
  static constexpr T neutral() {
    return detail::repeated<T>(detail::highest<component_of<T>>());
  }
};

/// The larger operand; NaN if either operand is NaN, so that a reduction never loses a NaN. The
/// values need an `operator<`.
struct maximum {
  static constexpr std::string_view name = "maximum";
  template <detail::ordered T>
  SPAR_HOST_DEVICE constexpr T operator()(T a, T b) const {
    if constexpr (is_row<T>)
      return detail::of_rows(a, b, maximum{});
    else
      return detail::is_less(b, a) || detail::is_nan(a) ? a : b;
  }
  template <detail::ordered T>
  static constexpr T neutral() {
    return detail::repeated<T>(detail::lowest<component_of<T>>());
  }
};

/// The sum of the contributions of all ranks, divided at the end by the number of ranks. Integer quotients are rounded
/// towards zero. Sums of 16-bit floats are divided as floats, because such a type cannot represent every number of
/// ranks.
struct average : sum {
  static constexpr std::string_view name = "average";
  /// The result, given the sum `total` over `ranks` ranks.
  template <class T>
  SPAR_HOST_DEVICE static constexpr T finalize(T total, std::int64_t ranks) {
    if constexpr (is_row<T>) {
      for (auto& value : total.values) value = finalize(value, ranks);
      return total;
    } else {
      using quotient = std::conditional_t<is_floating<T> && sizeof(T) == 2, float, T>;
      return static_cast<T>(static_cast<quotient>(total) / static_cast<quotient>(ranks));
    }
  }
};

namespace detail {

/// Whether Op is a sum of the library: the order of two operands changes no bits, except those of NaN.
template <class Op>
inline constexpr bool adds = std::same_as<Op, sum> || std::same_as<Op, average>;

/// Whether Op is an operation of the library, whose operands may be what uninitialised memory contains.
template <class Op>
inline constexpr bool takes_any_bits =
    adds<Op> || std::same_as<Op, product> || std::same_as<Op, minimum> || std::same_as<Op, maximum>;

} // namespace detail

} // namespace spar::inline v0_1
