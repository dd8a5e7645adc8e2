// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of values and indices, and their codes on the wire.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar {

#ifdef __FLT16_MAX__
#define SPAR_HAS_HALF 1
/// IEEE binary16, if the compiler supports it.
using half = _Float16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
#define SPAR_HAS_BFLOAT16 1
/// The upper half of an IEEE binary32, if the compiler supports it.
using bfloat16 = decltype(0.0bf16);
#endif

enum class element_code : std::uint8_t { float32 = 1, float64, int32, int64, uint32, uint64, float16, bfloat16, bytes };

/// Code of an element type on the wire. Users specialise it for their own types with a code of at least 64.
template <class T>
inline constexpr element_code code_of{};
template <>
inline constexpr element_code code_of<float> = element_code::float32;
template <>
inline constexpr element_code code_of<double> = element_code::float64;
template <>
inline constexpr element_code code_of<std::int32_t> = element_code::int32;
template <>
inline constexpr element_code code_of<std::int64_t> = element_code::int64;
template <>
inline constexpr element_code code_of<std::uint32_t> = element_code::uint32;
template <>
inline constexpr element_code code_of<std::uint64_t> = element_code::uint64;
#ifdef SPAR_HAS_HALF
template <>
inline constexpr element_code code_of<half> = element_code::float16;
#endif
#ifdef SPAR_HAS_BFLOAT16
template <>
inline constexpr element_code code_of<bfloat16> = element_code::bfloat16;
#endif

/// Size in bytes of a value of one of the library's own element types; 0 for other types.
constexpr std::size_t size_of(element_code code) noexcept {
  constexpr std::array<std::uint8_t, 9> sizes{0, 4, 8, 4, 8, 4, 8, 2, 2};
  return static_cast<std::size_t>(code) < sizes.size() ? sizes[static_cast<std::size_t>(code)] : 0;
}

/// A value type that is sent as its bytes and has a code on the wire. Rejects std::string (not trivially copyable) and
/// long double (no code, because its size and padding differ between machines).
template <class T>
concept element = std::is_trivially_copyable_v<T> && code_of<T> != element_code{};

/// The type of indices, 32 or 64 bits, unsigned. Rejects int: indices are never negative, and half of the range would
/// be lost.
template <class Index>
concept index_type = std::same_as<Index, std::uint32_t> || std::same_as<Index, std::uint64_t>;

/// True for floating-point elements, including the extended types that std::is_floating_point excludes.
template <class T>
inline constexpr bool is_floating = code_of<T> == element_code::float32 || code_of<T> == element_code::float64 ||
                                    code_of<T> == element_code::float16 || code_of<T> == element_code::bfloat16;

} // namespace spar
