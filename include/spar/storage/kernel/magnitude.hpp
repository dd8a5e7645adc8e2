// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds, in one pass over dense values, those whose magnitude reaches a threshold (Ok-Topk, section 3.1.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/coo.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spar::kernel {

/// An element type with a magnitude. The concept rejects types defined by the program: the bits of a struct have no
/// order.
template <class T>
concept ranked = element<T> && (is_floating<T> || std::integral<T>);

/// |x| as an unsigned integer of the same size.
template <ranked T>
using magnitude = detail::bits_of<T>;

/// The magnitude of x, ordered like |x|; 0 only for zeros. For a floating-point number, these are its bits without the
/// sign; NaN ranks highest.
template <ranked T>
constexpr magnitude<T> magnitude_of(T x) noexcept {
  using M = magnitude<T>;
  if constexpr (is_floating<T>) {
    return static_cast<M>(static_cast<M>(std::bit_cast<M>(x) << 1) >> 1);
  } else {
    const auto bits = static_cast<M>(x);
    return x < T{} ? static_cast<M>(0 - bits) : bits;
  }
}

/// The greatest magnitude of T: that of a NaN, of the most negative integer, or of the largest unsigned integer.
template <ranked T>
inline constexpr auto greatest_magnitude =
    static_cast<magnitude<T>>(is_floating<T>            ? static_cast<magnitude<T>>(-1) >> 1
                              : std::signed_integral<T> ? magnitude<T>{1} << (8 * sizeof(T) - 1)
                                                        : static_cast<magnitude<T>>(-1));

namespace detail {

#if defined(__SSE2__)

/// 16 bytes of elements, as signed integers, in the vector types of GCC and clang; the baseline x86-64 supports them.
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

/// The sign of each lane is set if the magnitude in that lane is at least `threshold`, which is in
/// [1, greatest_magnitude<T>].
template <class T>
[[gnu::always_inline]] inline typename lanes_of<sizeof(T)>::type at_least(const T* values, magnitude<T> threshold) {
  using lanes = typename lanes_of<sizeof(T)>::type;
  using unsigned_lanes = typename lanes_of<sizeof(T)>::unsigned_type;
  lanes x;
  std::memcpy(&x, values, sizeof x);
  unsigned_lanes m = std::bit_cast<unsigned_lanes>(x);
  if constexpr (std::unsigned_integral<T>) return std::bit_cast<lanes>(m >= threshold);
  if constexpr (is_floating<T>) {
    m &= greatest_magnitude<T>;
  } else {
    const auto sign = std::bit_cast<unsigned_lanes>(x >> (8 * static_cast<int>(sizeof(T)) - 1));
    m = (m ^ sign) - sign;
  }
  // The difference is in [-2^b, 2^b - 1], so its sign is right; SSE2 cannot compare 64-bit integers.
  return std::bit_cast<lanes>(static_cast<magnitude<T>>(threshold - 1) - m);
}

/// Bit e is set if the magnitude of `values[e]` is at least `threshold`, for 16 values. Packing saturates, so it keeps
/// the signs.
template <class T>
[[gnu::always_inline]] inline unsigned at_least_16(const T* values, magnitude<T> threshold) {
  using shorts = lanes_of<2>::type;
  const auto part = [&](std::size_t e) { return at_least(values + e, threshold); };
  shorts low, high;
  if constexpr (sizeof(T) == 2) {
    low = part(0);
    high = part(8);
  } else if constexpr (sizeof(T) == 4) {
    low = __builtin_ia32_packssdw128(part(0), part(4));
    high = __builtin_ia32_packssdw128(part(8), part(12));
  } else {
    const auto upper = [&](std::size_t e) { // the upper halves of four lanes
      using floats = lanes_of<4>::float_type;
      return std::bit_cast<lanes_of<4>::type>(
          __builtin_ia32_shufps(std::bit_cast<floats>(part(e)), std::bit_cast<floats>(part(e + 2)), 0xdd));
    };
    low = __builtin_ia32_packssdw128(upper(0), upper(4));
    high = __builtin_ia32_packssdw128(upper(8), upper(12));
  }
  return static_cast<unsigned>(
      __builtin_ia32_pmovmskb128(std::bit_cast<lanes_of<1>::type>(__builtin_ia32_packsswb128(low, high))));
}

/// Bit e is set if the magnitude of `values[e]` is at least `threshold`, for 64 values.
template <class T>
[[gnu::always_inline]] inline std::uint64_t at_least_mask(const T* values, magnitude<T> threshold) {
  return at_least_16(values, threshold) | std::uint64_t{at_least_16(values + 16, threshold)} << 16 |
         std::uint64_t{at_least_16(values + 32, threshold)} << 32 |
         std::uint64_t{at_least_16(values + 48, threshold)} << 48;
}

#else

template <class T>
[[gnu::always_inline]] inline std::uint64_t at_least_mask(const T* values, magnitude<T> threshold) {
  std::uint8_t bytes[64];
  for (std::size_t e = 0; e < 64; ++e) bytes[e] = static_cast<std::uint8_t>(magnitude_of(values[e]) >= threshold);
  return mask_of_bytes(bytes);
}

#endif

/// Like `bit_positions`, for words that mostly have at most two bits: a branch on whether a word has a bit would be
/// mispredicted half the time.
template <std::size_t Words>
[[gnu::always_inline]] inline std::size_t few_positions(const std::uint64_t* mask, std::uint16_t* positions) {
  constexpr auto guard = std::uint64_t{1} << 63; // countr_zero(0) would be a branch
  std::uint64_t any = 0, more = 0;
  for (std::size_t w = 0; w < Words; ++w) any |= mask[w];
  if (any == 0) return 0;
  std::size_t written = 0;
  for (std::size_t w = 0; w < Words; ++w) {
    const std::uint64_t first = mask[w], second = first & (first - 1);
    positions[written] = static_cast<std::uint16_t>(64 * w + static_cast<unsigned>(std::countr_zero(first | guard)));
    written += static_cast<std::size_t>(first != 0);
    positions[written] = static_cast<std::uint16_t>(64 * w + static_cast<unsigned>(std::countr_zero(second | guard)));
    written += static_cast<std::size_t>(second != 0);
    more |= second & (second - 1);
  }
  return more == 0 ? written : bit_positions(mask, Words, positions);
}

/// Calls `found(base, positions, count)` for consecutive parts of `x`, until `found` returns false; the values at
/// `base + positions[i]` have a magnitude of at least `threshold`. Zeros are never found. Returns the number of values
/// that were examined.
template <class T, class Found>
[[gnu::always_inline]] inline std::size_t for_at_least(const T* x, std::size_t n, magnitude<T> threshold, Found found) {
  if (threshold > greatest_magnitude<T>) return n;
  threshold = std::max<magnitude<T>>(threshold, 1);
  constexpr std::size_t words = 4;                // few enough to finish before the next ones arrive from memory
  constexpr std::size_t ahead = 4096 / sizeof(T); // pauses for the found values would stop hardware prefetching
  constexpr std::size_t line = 64 / sizeof(T);
  std::uint64_t mask[words];
  std::uint16_t positions[64 * words + 8];
  std::size_t e = 0;
  for (; n - e >= 64 * words; e += 64 * words) {
    if (n - e >= ahead + 64 * words) {
      for (std::size_t l = 0; l < 64 * words; l += line) __builtin_prefetch(x + e + ahead + l);
    }
    for (std::size_t w = 0; w < words; ++w) mask[w] = at_least_mask(x + e + 64 * w, threshold);
    if (!found(e, positions, few_positions<words>(mask, positions))) return e;
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < n - e; ++i) {
    positions[count] = static_cast<std::uint16_t>(i);
    count += static_cast<std::size_t>(magnitude_of(x[e + i]) >= threshold);
  }
  return found(e, positions, count) ? n : e;
}

} // namespace detail

/// What `take_at_least` did: the number of entries moved, and the number of values examined, which is less than n if
/// the room was too small.
struct taken {
  std::size_t count = 0;
  std::size_t seen = 0;
};

/// Moves the entries whose magnitude is at least `threshold`, except zeros, to `(begin + index, value)` in ascending
/// order of the indices, and leaves zeros behind. If there are more than `room` such entries, stops up to 255 entries
/// before the room is full.
template <ranked T, index_type Index>
[[gnu::noinline]] taken take_at_least(T* x, std::size_t n, magnitude<T> threshold, std::uint64_t begin, Index* out_i,
                                      T* out_v, std::size_t room) {
  taken all;
  all.seen = detail::for_at_least(x, n, threshold, [&](std::size_t base, const std::uint16_t* at, std::size_t found) {
    if (found > room - all.count) return false;
    for (std::size_t f = 0; f < found; ++f) {
      T& from = x[base + at[f]];
      out_i[all.count + f] = static_cast<Index>(begin + base + at[f]);
      out_v[all.count + f] = from;
      from = T{};
    }
    all.count += found;
    return true;
  });
  return all;
}

/// Copies the values that `take_at_least` would move.
template <ranked T>
[[gnu::noinline]] taken copy_at_least(const T* x, std::size_t n, magnitude<T> threshold, T* __restrict out,
                                      std::size_t room) {
  taken all;
  all.seen = detail::for_at_least(x, n, threshold, [&](std::size_t base, const std::uint16_t* at, std::size_t found) {
    if (found > room - all.count) return false;
    for (std::size_t f = 0; f < found; ++f) out[all.count + f] = x[base + at[f]];
    all.count += found;
    return true;
  });
  return all;
}

/// The number of values, except zeros, whose magnitude is at least `threshold`.
template <ranked T>
[[gnu::noinline]] std::size_t count_at_least(const T* x, std::size_t n, magnitude<T> threshold) {
  std::size_t count = 0;
  detail::for_at_least(x, n, threshold, [&](std::size_t, const std::uint16_t*, std::size_t found) {
    count += found;
    return true;
  });
  return count;
}

} // namespace spar::kernel
