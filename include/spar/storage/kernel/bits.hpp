// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Branch-free pieces that the kernels share: selection by mask, and from bitmaps to positions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::kernel::detail {

template <std::size_t Bytes>
struct unsigned_of {};
template <>
struct unsigned_of<1> : std::type_identity<std::uint8_t> {};
template <>
struct unsigned_of<2> : std::type_identity<std::uint16_t> {};
template <>
struct unsigned_of<4> : std::type_identity<std::uint32_t> {};
template <>
struct unsigned_of<8> : std::type_identity<std::uint64_t> {};

template <class T>
using bits_of = typename unsigned_of<sizeof(T)>::type;

template <class T>
concept has_bits = requires { typename bits_of<T>; };

/// The same value, of which the compiler knows nothing.
template <class U>
[[gnu::always_inline]] inline U opaque(U value) {
  __asm__("" : "+r"(value));
  return value;
}

/// `*out = condition ? yes : no` by a conditional move; on random indices a branch is mispredicted every second time.
/// Compilers make a branch of it all the same where they can save an operation or a move between floating-point and
/// integer registers, so both values are made integers first, and opaque, and stay integers up to the store.
template <class T>
[[gnu::always_inline]] inline void store_select(T* out, bool condition, T yes, T no) {
  if constexpr (has_bits<T>) {
    const auto yes_bits = opaque(std::bit_cast<bits_of<T>>(yes)), no_bits = opaque(std::bit_cast<bits_of<T>>(no));
    const bits_of<T> chosen = __builtin_expect_with_probability(condition, 1, 0.5) ? yes_bits : no_bits;
    std::memcpy(static_cast<void*>(out), &chosen, sizeof(T));
  } else {
    *out = condition ? yes : no;
  }
}

/// `*out = a < b ? left : b < a ? right : both` in the same way.
template <class T, class Index>
[[gnu::always_inline]] inline void store_merged(T* out, Index a, Index b, T left, T right, T both) {
  if constexpr (has_bits<T>) {
    const auto left_bits = opaque(std::bit_cast<bits_of<T>>(left));
    const auto right_bits = opaque(std::bit_cast<bits_of<T>>(right));
    const auto both_bits = opaque(std::bit_cast<bits_of<T>>(both));
    const Index again =
        opaque(b); // else the second comparison is found to follow from the first, and a branch saves it
    bits_of<T> chosen = __builtin_expect_with_probability(a < b, 1, 0.5) ? left_bits : right_bits;
    chosen = __builtin_expect_with_probability(a == again, 1, 0.5) ? both_bits : chosen;
    std::memcpy(static_cast<void*>(out), &chosen, sizeof(T));
  } else {
    *out = a < b ? left : b < a ? right : both;
  }
}

/// Number of one bits. The baseline x86-64 has no instruction for it, and GCC's builtin is then a call.
[[gnu::always_inline]] inline unsigned popcount(std::uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<unsigned>((word * 0x0101010101010101u) >> 56);
#else
  return static_cast<unsigned>(std::popcount(word));
#endif
}

/// Bit e is `bytes[e]`, each 0 or 1, for 64 of them: eight at a time by a multiplication.
[[gnu::always_inline]] inline std::uint64_t mask_of_bytes(const std::uint8_t* bytes) {
  std::uint64_t mask = 0;
  for (std::size_t e = 0; e < 64; e += 8) {
    std::uint64_t eight = 0;
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(&eight, bytes + e, 8);
      eight = (eight * 0x0102040810204080u) >> 56;
    } else {
      for (std::size_t b = 0; b < 8; ++b) eight |= static_cast<std::uint64_t>(bytes[e + b]) << b;
    }
    mask |= eight << e;
  }
  return mask;
}

/// Words that `bit_positions` takes in one call, so that a position fits into 16 bits and the result into the
/// first-level cache.
inline constexpr std::size_t position_words = 64;
/// Room that `bit_positions` needs: it writes some positions more than it counts.
inline constexpr std::size_t position_room = 64 * position_words + 8;

/// Positions of the one bits of `words[0, count)`, ascending; `count <= position_words`. Returns how many.
inline std::size_t bit_positions(const std::uint64_t* __restrict words, std::size_t count,
                                 std::uint16_t* __restrict positions) {
  constexpr auto guard = std::uint64_t{1} << 63; // countr_zero(0) would be a branch
  std::size_t written = 0;
  for (std::size_t w = 0; w < count; ++w) {
    std::uint64_t word = words[w];
    if (word == 0) continue;
    const auto base = static_cast<unsigned>(64 * w);
    const unsigned ones = popcount(word);
    std::uint16_t* at = positions + written;
    written += ones;
    // A loop that ends at the last bit is mispredicted once a word; most words of a sparse bitmap end here.
    for (unsigned e = 0; e < 4; ++e) {
      at[e] = static_cast<std::uint16_t>(base + static_cast<unsigned>(std::countr_zero(word | guard)));
      word &= word - 1;
    }
    for (unsigned e = 4; e < ones; e += 4) {
      for (unsigned f = 0; f < 4; ++f) {
        at[e + f] = static_cast<std::uint16_t>(base + static_cast<unsigned>(std::countr_zero(word | guard)));
        word &= word - 1;
      }
    }
  }
  return written;
}

/// Copies `count` elements between arrays that do not overlap; unlike memcpy, null pointers are fine where `count` is
/// 0.
template <class T>
void copy(T* out, const T* in, std::size_t count) {
  if (count != 0) std::memcpy(static_cast<void*>(out), in, count * sizeof(T));
}

} // namespace spar::kernel::detail
