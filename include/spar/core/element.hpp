// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types that values and indices may have, and the codes by which message headers name these types.
#pragma once

#include <spar/core/compiler.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1 {

// On 64-bit Arm, g++ 12 defines the limits of `_Float16`, but has this type only in C.
#if defined(__FLT16_MAX__) && (defined(__clang__) || !defined(__aarch64__) || __GNUC__ > 12)
#define SPAR_HAS_HALF 1
/// The 16-bit floating-point type IEEE binary16; defined only if the compiler supports `_Float16`.
using half = _Float16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
#define SPAR_HAS_BFLOAT16 1
/// The 16-bit floating-point type bfloat16, the upper half of an IEEE binary32; defined only if the compiler supports
/// bfloat16.
using bfloat16 = decltype(0.0bf16);
#endif

/// The codes by which message headers name the element types of the library.
enum class element_code : std::uint8_t { float32 = 1, float64, int32, int64, uint32, uint64, float16, bfloat16, bytes };

namespace detail {

/// Whether T is one of `Types`.
template <class T, class... Types>
inline constexpr bool one_of = (std::same_as<T, Types> || ...);

/// The code of an integer of 32 or 64 bits; `long` and `long long` have one code if they have one size.
template <class T>
constexpr element_code integer_code() noexcept {
  if constexpr (one_of<T, int, long, long long>)
    return sizeof(T) == 4 ? element_code::int32 : element_code::int64;
  else if constexpr (one_of<T, unsigned, unsigned long, unsigned long long>)
    return sizeof(T) == 4 ? element_code::uint32 : element_code::uint64;
  else
    return element_code{};
}

} // namespace detail

/// The code by which message headers name the element type T; 0 if T is not an element type. Users specialise `code_of`
/// for their own types, with codes of at least 64. Types of integers with the same size and sign have the same code.
template <class T>
inline constexpr element_code code_of = detail::integer_code<T>();
/// The code of float; those of the other floating-point types of the library follow.
template <>
inline constexpr element_code code_of<float> = element_code::float32;
/// The code of double.
template <>
inline constexpr element_code code_of<double> = element_code::float64;
#ifdef SPAR_HAS_HALF
template <>
inline constexpr element_code code_of<half> = element_code::float16;
#endif
#ifdef SPAR_HAS_BFLOAT16
template <>
inline constexpr element_code code_of<bfloat16> = element_code::bfloat16;
#endif

/// Size in bytes of a value of the element type with this code; 0 for `bytes` and for the codes of rows and of
/// user-defined types.
constexpr std::size_t size_of(element_code code) noexcept {
  constexpr std::array<std::uint8_t, 9> sizes{0, 4, 8, 4, 8, 4, 8, 2, 2};
  return static_cast<std::size_t>(code) < sizes.size() ? sizes[static_cast<std::size_t>(code)] : 0;
}

namespace detail {

/// The code of rows (core/row.hpp) of values with the code `value`, which is that of a type of the library.
constexpr element_code rows_of(element_code value) noexcept {
  return static_cast<element_code>(static_cast<unsigned>(value) + 32);
}
/// Whether `code` is the code of rows of a type of the library.
constexpr bool are_rows(element_code code) noexcept {
  const unsigned number = static_cast<unsigned>(code);
  return number > 32 && size_of(static_cast<element_code>(number - 32)) != 0;
}

} // namespace detail

/// A type of values that messages can contain. Such a type is trivially copyable, because messages contain the bytes of
/// the values, and has a code in `code_of`. Rejects std::string (not trivially copyable) and long double (no code,
/// because its size and padding differ between machines).
template <class T>
concept element = std::is_trivially_copyable_v<T> && code_of<T> != element_code{};

/// A type of indices: an unsigned integer of 32 or 64 bits. Rejects signed types such as int: indices are never
/// negative, so half of the range of a signed type would be lost.
template <class Index>
concept index_type = detail::one_of<Index, unsigned, unsigned long, unsigned long long>;

/// True for floating-point element types, including `half` and `bfloat16`, which std::is_floating_point may exclude.
template <class T>
inline constexpr bool is_floating = code_of<T> == element_code::float32 || code_of<T> == element_code::float64 ||
                                    code_of<T> == element_code::float16 || code_of<T> == element_code::bfloat16;

namespace detail {

/// Stops the compilation with a sentence, beside which the compiler names T, unless T is an element type. Returns
/// whether it is one, so that no other error follows.
template <class T>
constexpr bool expect_element() {
  static_assert(element<T>,
                "values must be writable and of an element type: float, double, spar::half, spar::bfloat16, "
                "an integer of 32 or 64 bits, a spar::row of these, or a type with a code in spar::code_of");
  return element<T>;
}

/// Like `expect_element`, for a type of indices.
template <class Index>
constexpr bool expect_index() {
  static_assert(index_type<Index>, "indices must be unsigned integers of 32 or 64 bits, such as std::uint32_t");
  return index_type<Index>;
}

/// The smallest positive number of the floating-point type T.
template <element T>
  requires is_floating<T>
inline constexpr double smallest_of = code_of<T> == element_code::float16    ? 0x1p-24
                                      : code_of<T> == element_code::bfloat16 ? 0x1p-133
                                      : code_of<T> == element_code::float32  ? 0x1p-149
                                                                             : 0x1p-1074;

} // namespace detail

} // namespace spar::inline v0_1
