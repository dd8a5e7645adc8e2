// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the values whose magnitude reaches a threshold, in one pass over a dense vector (Ok-Topk, section 3.1.3).
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/row.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/bits.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel {

/// An element type with a magnitude, that is, a floating-point or integer type, or a row of such values. Rejects types
/// defined by the program, because the bits of a struct have no order.
template <class T>
concept ranked = element<T> && (is_floating<component_of<T>> || std::integral<component_of<T>>);

namespace detail {

/// The type of the number by which a T is ranked: T itself, or the type of the squared norm of a row of two values or
/// more.
template <class T>
using norm_of = std::conditional_t<(width_of<T> > 1), double, component_of<T>>;

} // namespace detail

/// The type of the magnitude of a T: an unsigned integer with the size of T; of 64 bits for rows of two values or more.
template <ranked T>
using magnitude = detail::bits_of<detail::norm_of<T>>;

template <ranked T>
SPAR_HOST_DEVICE constexpr magnitude<T> magnitude_of(T x) noexcept;

namespace detail {

/// The magnitude of a row of two values or more. Not inlined, so that all passes over the rows round in the same way:
/// compilers contract products and sums in some places, but not in others.
template <class T, std::size_t W>
[[gnu::noinline]] std::uint64_t magnitude_of_row(const row<T, W>& x) noexcept {
  double sum = 0;
  bool zero = true;
  for (const T value : x.values) {
    const auto wide = static_cast<double>(value);
    sum += wide * wide;
    zero = zero && magnitude_of(value) == 0;
  }
  if (zero) return 0;
  if (spar::detail::is_nan(sum)) return static_cast<std::uint64_t>(-1) >> 1;
  return std::max<std::uint64_t>(magnitude_of(sum), 1);
}

} // namespace detail

/// Returns the magnitude of x as an integer that is ordered like |x|; only zeros have magnitude 0. The magnitude of a
/// floating-point number is its bits without the sign, so NaN ranks highest. The magnitude of a row of two values or
/// more is that of its squared Euclidean norm in double precision, and ranks highest if a value is NaN. Squares of
/// doubles that are too large count as infinite; those that are too small, as the smallest magnitude, 1.
template <ranked T>
SPAR_HOST_DEVICE constexpr magnitude<T> magnitude_of(T x) noexcept {
  using M = magnitude<T>;
  if constexpr (width_of<T> == 1) {
    return magnitude_of(x.values[0]);
  } else if constexpr (is_row<T>) {
    return detail::magnitude_of_row(x);
  } else if constexpr (is_floating<T>) {
    return static_cast<M>(static_cast<M>(__builtin_bit_cast(M, x) << 1) >> 1);
  } else if constexpr (std::unsigned_integral<T>) {
    return x;
  } else {
    const auto bits = static_cast<M>(x);
    return x < T{} ? static_cast<M>(0 - bits) : bits;
  }
}

/// The greatest magnitude of any value of type T: that of a NaN, of the most negative integer, or of the largest
/// unsigned integer.
template <ranked T>
inline constexpr auto greatest_magnitude =
    static_cast<magnitude<T>>(is_floating<T>            ? static_cast<magnitude<T>>(-1) >> 1
                              : std::signed_integral<T> ? magnitude<T>{1} << (8 * sizeof(T) - 1)
                                                        : static_cast<magnitude<T>>(-1));
template <class T, std::size_t W>
inline constexpr auto greatest_magnitude<row<T, W>> = greatest_magnitude<detail::norm_of<row<T, W>>>;

namespace detail {

#if defined(__x86_64__)

/// Compares 16 bytes of values with `threshold`, which must be in [1, greatest_magnitude<T>]. A lane of the result is
/// negative if the magnitude of its value is at least `threshold`.
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
  // Subtracts, because SSE2 cannot compare 64-bit integers. In a lane of b + 1 bits, the difference is in
  // [-2^b, 2^b - 1], so its sign is correct.
  return std::bit_cast<lanes>(static_cast<magnitude<T>>(threshold - 1) - m);
}

/// Returns a mask of 16 values: bit e is set if the lane of `values[e]` is negative. `lanes(at)` returns the lanes of
/// the 16 bytes of values at `at`. Packs the lanes with saturation, which keeps their signs.
template <class T, class Lanes>
[[gnu::always_inline]] inline unsigned signs_of_16(const T* values, const Lanes& lanes) {
  using shorts = lanes_of<2>::type;
  const auto part = [&](std::size_t e) { return lanes(values + e); };
  shorts low, high;
  if constexpr (sizeof(T) == 2) {
    low = part(0);
    high = part(8);
  } else if constexpr (sizeof(T) == 4) {
    low = __builtin_ia32_packssdw128(part(0), part(4));
    high = __builtin_ia32_packssdw128(part(8), part(12));
  } else {
    const auto upper = [&](std::size_t e) { // the upper halves of four 64-bit lanes
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

/// Returns a mask of 16 values: bit e is set if the magnitude of `values[e]` is at least `threshold`.
template <class T>
[[gnu::always_inline]] inline unsigned at_least_mask_of_16(const T* values, magnitude<T> threshold) {
  return signs_of_16(values, [threshold](const T* at) { return at_least(at, threshold); });
}

/// `signs_of_16` for 64 values.
template <class T, class Lanes>
[[gnu::always_inline]] inline std::uint64_t signs_of_64(const T* values, const Lanes& lanes) {
  return signs_of_16(values, lanes) | std::uint64_t{signs_of_16(values + 16, lanes)} << 16 |
         std::uint64_t{signs_of_16(values + 32, lanes)} << 32 | std::uint64_t{signs_of_16(values + 48, lanes)} << 48;
}

/// Returns a mask of 64 values: bit e is set if the magnitude of `values[e]` is at least `threshold`.
template <class T>
[[gnu::always_inline]] inline std::uint64_t at_least_mask(const T* values, magnitude<T> threshold) {
  return signs_of_64(values, [threshold](const T* at) { return at_least(at, threshold); });
}

#else

template <std::size_t Count, class T>
[[gnu::always_inline]] inline std::uint64_t at_least_mask_of(const T* values, magnitude<T> threshold) {
  std::uint8_t bytes[Count];
  for (std::size_t e = 0; e < Count; ++e) bytes[e] = static_cast<std::uint8_t>(magnitude_of(values[e]) >= threshold);
  return mask_of_bytes(bytes);
}
template <class T>
[[gnu::always_inline]] inline unsigned at_least_mask_of_16(const T* values, magnitude<T> threshold) {
  return static_cast<unsigned>(at_least_mask_of<16>(values, threshold));
}
template <class T>
[[gnu::always_inline]] inline std::uint64_t at_least_mask(const T* values, magnitude<T> threshold) {
  return at_least_mask_of<64>(values, threshold);
}

#endif

/// Writes the positions of the set bits of `mask` and returns their number, like `bit_positions`. Optimised for words
/// with at most two set bits: avoids a branch per word, which would be mispredicted half of the time.
template <std::size_t Words>
[[gnu::always_inline]] inline std::size_t few_positions(const std::uint64_t* mask, std::uint16_t* positions) {
  constexpr auto guard = std::uint64_t{1} << 63; // keeps the argument of countr_zero nonzero: 0 would need a branch
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

/// Calls `found(base, positions, count)` for consecutive ranges of `x`, until `found` returns false. In each range, the
/// chosen values are at `base + positions[i]` for i in [0, count). `chosen(at)` returns whether the value at `at` is
/// chosen, and `mask(at)` a mask of the 64 values at `at`, which is used unless `Masks` is false. Returns the number of
/// values before the range for which `found` returned false, or n if `found` never returned false.
template <bool Masks, class T, class Mask, class Chosen, class Found>
[[gnu::always_inline]] inline std::size_t for_chosen(const T* x, std::size_t n, const Mask& mask, const Chosen& chosen,
                                                     const Found& found) {
  // A range has 256 values, few enough to be processed before the next values arrive from memory.
  constexpr std::size_t words = 4;
  std::uint16_t positions[64 * words + 8];
  std::size_t e = 0;
  if constexpr (Masks) {
    // Prefetches 4 KiB ahead, because the hardware stops prefetching when `found` interrupts the reading of `x`.
    constexpr std::size_t ahead = 4096 / sizeof(T);
    constexpr std::size_t line = sizeof(T) < 64 ? 64 / sizeof(T) : 1;
    std::uint64_t masks[words];
    for (; n - e >= 64 * words; e += 64 * words) {
      if (n - e >= ahead + 64 * words) {
        for (std::size_t l = 0; l < 64 * words; l += line) __builtin_prefetch(x + e + ahead + l);
      }
      for (std::size_t w = 0; w < words; ++w) masks[w] = mask(x + e + 64 * w);
      if (!found(e, positions, few_positions<words>(masks, positions))) return e;
    }
  }
  do {
    const std::size_t length = std::min(64 * words, n - e);
    std::size_t count = 0;
    for (std::size_t i = 0; i < length; ++i) {
      positions[count] = static_cast<std::uint16_t>(i);
      count += static_cast<std::size_t>(chosen(x + e + i));
    }
    if (!found(e, positions, count)) return e;
    e += length;
  } while (e < n);
  return n;
}

/// `for_chosen` for the nonzero values whose magnitude is at least `threshold`.
template <class T, class Found>
[[gnu::always_inline]] inline std::size_t for_at_least(const T* x, std::size_t n, magnitude<T> threshold,
                                                       const Found& found) {
  if (threshold > greatest_magnitude<T>) return n;
  threshold = std::max<magnitude<T>>(threshold, 1);
  const auto mask = [threshold](const T* at) {
    if constexpr (!is_row<T>) return at_least_mask(at, threshold);
  };
  const auto chosen = [threshold](const T* at) {
    if constexpr (width_of<T> > 1)
      return magnitude_of_row(*at) >= threshold; // magnitude_of() copies the row
    else
      return magnitude_of(*at) >= threshold;
  };
  return for_chosen<!is_row<T>>(x, n, mask, chosen, found);
}

/// Moves the values x[at[0, count)] to the output arrays as entries `(begin + position, value)`, and leaves zeros in
/// `x`.
template <class T, class Position, class Index>
[[gnu::always_inline]] inline void move_entries(T* x, const Position* at, std::size_t count, std::uint64_t begin,
                                                Index* out_i, T* out_v) {
  for (std::size_t e = 0; e < count; ++e) {
    T& from = x[at[e]];
    out_i[e] = static_cast<Index>(begin + at[e]);
    out_v[e] = from;
    from = T{};
  }
}

} // namespace detail

/// The result of `take_at_least` or `copy_at_least`: the number of values moved or copied, and the number of values
/// examined. `seen` is less than n if the room in the output was too small.
struct taken {
  std::size_t count = 0;
  std::size_t seen = 0;
};

/// Moves the nonzero values with a magnitude of at least `threshold` to the output arrays as entries
/// `(begin + position, value)`, in ascending order of the positions, and leaves zeros in `x`. If more than `room`
/// values qualify, stops early, with up to 255 entries of the room unused.
template <ranked T, index_type Index>
[[gnu::noinline]] taken take_at_least(T* x, std::size_t n, magnitude<T> threshold, std::uint64_t begin, Index* out_i,
                                      T* out_v, std::size_t room) {
  taken all;
  all.seen = detail::for_at_least(x, n, threshold, [&](std::size_t base, const std::uint16_t* at, std::size_t found) {
    if (found > room - all.count) return false;
    detail::move_entries(x + base, at, found, begin + base, out_i + all.count, out_v + all.count);
    all.count += found;
    return true;
  });
  return all;
}

/// Copies the nonzero values with a magnitude of at least `threshold` to `out`, in ascending order of their positions.
/// If more than `room` values qualify, stops early, with up to 255 values of the room unused.
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

/// Returns the number of nonzero values whose magnitude is at least `threshold`.
template <ranked T>
[[gnu::noinline]] std::size_t count_at_least(const T* x, std::size_t n, magnitude<T> threshold) {
  std::size_t count = 0;
  detail::for_at_least(x, n, threshold, [&](std::size_t, const std::uint16_t*, std::size_t found) {
    count += found;
    return true;
  });
  return count;
}

} // namespace spar::inline v0_1::kernel
