// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Branch-free building blocks of the kernels: choosing one of two values, and converting bitmaps to positions.
#pragma once

#include <spar/core/compiler.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

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

/// An optimization barrier: returns `value`, and prevents the compiler from deducing anything about the result.
template <class U>
[[gnu::always_inline]] inline U opaque(U value) {
  __asm__("" : "+r"(value));
  return value;
}

/// Stores `condition ? yes : no` in `*out` by a conditional move, because a branch would be mispredicted half of the
/// time on random indices. A compiler may still produce a branch if the branch saves an operation, or a move between
/// floating-point and integer registers. To prevent such a branch, both values become integers behind an optimization
/// barrier, and stay integers up to the store.
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

/// Stores `a < b ? left : b < a ? right : both` in `*out` by conditional moves, because branches would be mispredicted
/// on random indices.
template <class T, class Index>
[[gnu::always_inline]] inline void store_merged(T* out, Index a, Index b, T left, T right, T both) {
  if constexpr (has_bits<T>) {
    const auto left_bits = opaque(std::bit_cast<bits_of<T>>(left));
    const auto right_bits = opaque(std::bit_cast<bits_of<T>>(right));
    const auto both_bits = opaque(std::bit_cast<bits_of<T>>(both));
    // Hides the value of b from the compiler, which would otherwise infer that a < b excludes a == b, and branch on
    // a < b.
    const Index again = opaque(b);
    bits_of<T> chosen = __builtin_expect_with_probability(a < b, 1, 0.5) ? left_bits : right_bits;
    chosen = __builtin_expect_with_probability(a == again, 1, 0.5) ? both_bits : chosen;
    std::memcpy(static_cast<void*>(out), &chosen, sizeof(T));
  } else {
    *out = a < b ? left : b < a ? right : both;
  }
}

/// The number of set bits in `word`. On baseline x86-64, which has no popcount instruction, GCC's builtin would call a
/// function, so this function computes the number arithmetically. If the target has the instruction, GCC recognises the
/// arithmetic, and uses the instruction.
[[gnu::always_inline]] inline unsigned popcount(std::uint64_t word) {
#if defined(__x86_64__) && !defined(__clang__)
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<unsigned>((word * 0x0101010101010101u) >> 56);
#else
  return static_cast<unsigned>(std::popcount(word));
#endif
}

/// Packs up to 64 bytes, each 0 or 1, into a mask: bit e is `bytes[e]`. On little-endian machines, one multiplication
/// packs eight bytes.
template <std::size_t Count>
[[gnu::always_inline]] inline std::uint64_t mask_of_bytes(const std::uint8_t (&bytes)[Count]) {
  std::uint64_t mask = 0;
  for (std::size_t e = 0; e < Count; e += 8) {
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

/// Vectors of 16 bytes with lanes of `Bytes` bytes; the lanes of `type` are signed integers. Uses the vector extension
/// of GCC and clang. Every x86-64 processor supports these vectors.
template <std::size_t Bytes>
struct lanes_of {};
template <>
struct lanes_of<1> {
  using type [[gnu::vector_size(16)]] = char;
};
template <>
struct lanes_of<2> {
  using type [[gnu::vector_size(16)]] = std::int16_t;
  using unsigned_type [[gnu::vector_size(16)]] = std::uint16_t;
};
template <>
struct lanes_of<4> {
  using type [[gnu::vector_size(16)]] = std::int32_t;
  using unsigned_type [[gnu::vector_size(16)]] = std::uint32_t;
  using float_type [[gnu::vector_size(16)]] = float;
};
template <>
struct lanes_of<8> {
  using type [[gnu::vector_size(16)]] = std::int64_t;
  using unsigned_type [[gnu::vector_size(16)]] = std::uint64_t;
};

/// Returns a position in [0, range) that looks random but depends only on `i` and `range`.
SPAR_HOST_DEVICE constexpr std::size_t scatter_of(std::size_t i, std::size_t range) noexcept {
  return ((i * 0x9e3779b97f4a7c15u) >> 32) * range >> 32; // requires range < 2^32
}

/// The largest number of words that `bit_positions` processes per call. With 64 words, a position fits into 16 bits,
/// and the result fits into the first-level cache.
inline constexpr std::size_t position_words = 64;
/// The length of the output array that `bit_positions` needs. `bit_positions` writes positions four at a time, and thus
/// up to three positions more than there are set bits.
inline constexpr std::size_t position_room = 64 * position_words + 8;

/// Writes the positions of the set bits of `words[0, count)` in ascending order, for `count <= position_words`. Returns
/// the number of positions.
inline std::size_t bit_positions(const std::uint64_t* __restrict words, std::size_t count,
                                 std::uint16_t* __restrict positions) {
  constexpr auto guard = std::uint64_t{1} << 63; // keeps the argument of countr_zero nonzero: 0 would need a branch
  std::size_t written = 0;
  for (std::size_t w = 0; w < count; ++w) {
    std::uint64_t word = words[w];
    if (word == 0) continue;
    const auto base = static_cast<unsigned>(64 * w);
    const unsigned ones = popcount(word);
    std::uint16_t* at = positions + written;
    written += ones;
    // Always writes four positions: most words of a sparse bitmap have at most four set bits, and a loop that ended at
    // the last set bit would cost one misprediction per word.
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

/// Copies `count` elements between arrays that do not overlap. Unlike memcpy, accepts null pointers if `count` is 0.
template <class T>
void copy(T* out, const T* in, std::size_t count) {
  if (count != 0) std::memcpy(static_cast<void*>(out), in, count * sizeof(T));
}

/// Sets `count` elements to `value`. Compilers make a call of memset of a loop over zeros only if the type is integral,
/// and vectorise at -O2 only loops of constant length.
template <class T>
void fill(T* out, std::size_t count, const T& value) {
  constexpr std::size_t block = 32;
  static constexpr unsigned char zeros[sizeof(T)] = {};
  if (std::memcmp(static_cast<const void*>(&value), zeros, sizeof(T)) == 0) {
    if (count != 0) std::memset(static_cast<void*>(out), 0, count * sizeof(T));
    return;
  }
  const T copy = value; // which `out` cannot alias
  std::size_t e = 0;
  for (; e + block <= count; e += block)
    for (std::size_t b = 0; b < block; ++b) out[e + b] = copy;
  for (; e < count; ++e) out[e] = copy;
}

} // namespace spar::inline v0_1::kernel::detail
