// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The code of values: distances from the smallest or largest magnitude, in blocks of Rice codes or of numbers of equal
// width.
#pragma once

#include <spar/core/element.hpp>
#include <spar/storage/kernel/rice.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

/// How a value becomes a magnitude, which fits into one bit less than the value, and a sign, so that values of about
/// the same size have about the same magnitude. Values of other types are copied.
template <class T>
concept has_magnitude = is_floating<T> || (std::is_integral_v<T> && sizeof(T) >= 4);

/// The numbers that stand for values of type T.
template <class T>
using number_of = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
inline constexpr unsigned mantissa_digits = code_of<T> == element_code::float32   ? 23
                                            : code_of<T> == element_code::float64 ? 52
                                            : code_of<T> == element_code::float16 ? 10
                                                                                  : 7;

/// The bits of `from[0]`, `from[1]`, ... as unsigned numbers: one element for each lane of a vector.
template <class T>
[[gnu::always_inline]] inline vector<number_of<T>> bits_at(const T* from) {
  if constexpr (sizeof(T) == sizeof(number_of<T>)) {
    return load<vector<number_of<T>>>(from);
  } else {
    vector<number_of<T>> bits{};
    for (unsigned e = 0; e < lanes<number_of<T>>; ++e) bits[e] = std::bit_cast<bits_of<T>>(from[e]);
    return bits;
  }
}

/// Drops the lowest `Dropped` bits of the magnitudes of floating-point numbers, rounding to nearest, ties to even. A
/// finite number stays finite, so one that would become infinite is rounded towards zero. NaN stays NaN.
template <class T, unsigned Dropped>
[[gnu::always_inline]] inline vector<number_of<T>> round_magnitudes(vector<number_of<T>> v) {
  using U = number_of<T>;
  using S = std::make_signed_t<U>;
  const auto mask = [](auto comparison) { return std::bit_cast<vector<U>>(comparison); };
  const auto as_signed = [](vector<U> u) { return std::bit_cast<vector<S>>(u); }; // compared in one instruction
  constexpr U infinite = low_bits<U>(8 * sizeof(T) - 1) >> mantissa_digits<T> << mantissa_digits<T>;
  constexpr U largest = (infinite >> Dropped) - 1;
  const vector<U> up = (v + low_bits<U>(Dropped - 1) + (v >> Dropped & 1)) >> Dropped, cut = v >> Dropped;
  const vector<U> fits = mask(as_signed(up) <= S{largest});
  const vector<U> is_finite = mask(as_signed(v) < S{infinite});
  const vector<U> looks_infinite = mask(as_signed(v) > S{infinite}) & mask(as_signed(cut) == S{infinite >> Dropped});
  const vector<U> finite = (up & fits) | (largest & ~fits);
  return (finite & is_finite) | ((cut | (looks_infinite & 1)) & ~is_finite);
}

template <class T>
inline constexpr unsigned top_bit = 8 * sizeof(T) - 1;

/// The magnitudes of values, given their bits: of v < 0, an integer, -v - 1.
template <class T, unsigned Dropped>
[[gnu::always_inline]] inline vector<number_of<T>> magnitudes_of(vector<number_of<T>> bits) {
  if constexpr (is_floating<T> && Dropped != 0)
    return round_magnitudes<T, Dropped>(bits & low_bits<number_of<T>>(top_bit<T>));
  else if constexpr (is_floating<T>)
    return bits & low_bits<number_of<T>>(top_bit<T>);
  else if constexpr (std::is_signed_v<T>)
    return bits ^ -(bits >> top_bit<T>);
  else
    return bits;
}
template <class T, unsigned Dropped>
[[gnu::always_inline]] SPAR_HOST_DEVICE inline T join(number_of<T> magnitude, number_of<T> sign) {
  using U = number_of<T>;
  U bits = magnitude;
  if constexpr (is_floating<T>)
    bits = magnitude << Dropped | sign << top_bit<T>;
  else if constexpr (std::is_signed_v<T>)
    bits = magnitude ^ (U{} - sign);
  return __builtin_bit_cast(T, static_cast<bits_of<T>>(bits)); // std::bit_cast is not for devices
}

template <class T>
inline constexpr bool has_sign = is_floating<T> || std::is_signed_v<T>;

/// The lowest bits of magnitudes that are left out of sums, so that a sum is exact: a block's sum fits into a lane, and
/// that of 2^40 values into 64 bits.
template <class U>
inline constexpr unsigned left_out_of_sums = digits<U> - 24;
/// Whether the value at this position of a block is one of the quarter whose sum decides on the `origin`.
template <class U>
SPAR_HOST_DEVICE constexpr bool is_in_sum(unsigned position) {
  return position / (16 / sizeof(U)) % 4 == 0;
}

/// The magnitude from which the numbers of values count, before bits are dropped: the smallest or, if the mean is
/// closer to it, the largest one. Of magnitudes with a highest bit, it is another magnitude, so that the code is
/// correct, but longer.
template <class T>
class origin {
  using U = number_of<T>;
  using S = std::make_signed_t<U>;

 public:
  explicit origin(std::span<const T> values) {
    S least{}, most{};
    constexpr U half = U{1} << (digits<U> - 1);
    constexpr unsigned low = left_out_of_sums<U>;
    std::int64_t sum = 0;
    for (std::size_t at = 0; at < values.size(); at += rice_block) {
      const whole_block<T> block(values.data() + at, std::min(rice_block, values.size() - at));
      const auto magnitudes = [&](std::size_t e) __attribute__((always_inline)) {
        return std::bit_cast<vector<S>>(magnitudes_of<T, 0>(bits_at(block.data() + e)));
      };
      if (at == 0) least = most = magnitudes(0)[0];
      // v is beyond least or most if v - least, which is unsigned, is above most - least. Both are lowered by half of
      // the range of U, so that one comparison of signed numbers tells.
      const U offset = static_cast<U>(least) - half;
      const S limit = static_cast<S>(static_cast<U>(most) - offset);
      four_vectors<S> beyond{};
      vector<S> upper{};
      for (std::size_t e = 0; e < rice_block; e += 4 * lanes<U>) {
        for (unsigned i = 0; i < 4; ++i) {
          const vector<S> v = magnitudes(e + i * lanes<U>);
          beyond[i] |= std::bit_cast<vector<S>>(std::bit_cast<vector<U>>(v) - offset) > limit;
          if (i == 0) upper += v >> low; // a quarter of the values suffices for the mean
        }
      }
      if (union_of<S>(beyond) != 0) { // seldom: an update of each number would take twice as long as these tests
        vector<S> lowest = vector<S>{} + least, highest = vector<S>{} + most;
        for (std::size_t e = 0; e < rice_block; e += lanes<U>) {
          const vector<S> v = magnitudes(e);
          lowest ^= (v ^ lowest) & (v < lowest);
          highest ^= (v ^ highest) & (v > highest);
        }
        for (unsigned e = 0; e < lanes<U>; ++e) {
          least = std::min<S>(least, lowest[e]);
          most = std::max<S>(most, highest[e]);
        }
      }
      for (unsigned e = 0; e < lanes<U>; ++e) sum += upper[e];
    }
    *this = origin(values.size(), least, most, sum);
  }
  /// The same of so many values, given their least and largest magnitude, as signed numbers, and the sum of a quarter
  /// of them, of which `left_out_of_sums` bits are left out: in each block, of every fourth vector (see `is_in_sum`).
  SPAR_HOST_DEVICE constexpr origin(std::uint64_t values, S least, S most, std::int64_t sum) {
    const auto blocks = static_cast<std::int64_t>((values + rice_block - 1) / rice_block);
    const std::int64_t twice = std::int64_t{least >> left_out_of_sums<U>} + (most >> left_out_of_sums<U>);
    counts_from_most = 2 * sum > blocks * std::int64_t{rice_block / 4} * twice;
    base = static_cast<U>(counts_from_most ? most : least);
  }

  bool counts_from_most;
  U base;
};

/// What the first byte of encoded values says: that numbers count from the largest magnitude, and that the numbers
/// have equal widths.
inline constexpr unsigned from_most_bit = 1, equal_widths_bit = 2;

} // namespace detail

/// An upper bound on the bytes of `count` encoded values, and the room that `encode_values` needs.
template <element T>
constexpr std::size_t coded_values_bound(std::size_t count) noexcept {
  if constexpr (detail::has_magnitude<T>)
    return 1 + sizeof(T) + packed_alignment + rice_bound<detail::number_of<T>>(count);
  else
    return count * sizeof(T);
}

/// Encodes values, of whose mantissas the lowest `Dropped` bits are rounded away; `Dropped` is 0 for integers. Returns
/// the end of the encoded bytes. Layout of values with a magnitude: a byte that says whether numbers count from the
/// largest magnitude, and whether they have equal widths; the magnitude from which numbers count, rounded, in as many
/// bytes as a value; the numbers (see `number_writer`), in a message whose positions count from `out`.
template <unsigned Dropped, element T>
std::byte* encode_values(std::span<const T> values, coding how, std::byte* out) {
  if constexpr (!detail::has_magnitude<T>) {
    detail::copy(out, std::as_bytes(values).data(), values.size_bytes());
    return out + values.size_bytes();
  } else {
    using U = detail::number_of<T>;
    if (values.empty()) return out;
    const detail::origin<T> from(values);
    // No value is rounded to beyond the rounded base.
    const U base = detail::magnitudes_of<T, Dropped>(detail::vector<U>{} + from.base)[0];
    std::byte* const origin = out;
    *out++ = static_cast<std::byte>((from.counts_from_most ? detail::from_most_bit : 0U) |
                                    (how == coding::fastest ? detail::equal_widths_bit : 0U));
    const auto base_bits = static_cast<detail::bits_of<T>>(base);
    std::memcpy(out, &base_bits, sizeof base_bits);
    number_writer<U> to(how, values.size(), origin, out + sizeof base_bits);
    // Of a magnitude m and its sign in the lowest bit, (m ^ turn) - turned_base is m - base, or base - m if the numbers
    // count from the largest magnitude, and the same sign.
    constexpr unsigned sign_bits = detail::has_sign<T> ? 1 : 0;
    const U turn = (from.counts_from_most ? ~U{} : U{}) << sign_bits, turned_base = base << sign_bits ^ turn;
    rice_numbers<U> x;
    for (std::size_t at = 0; at < values.size(); at += rice_block) {
      const std::size_t count = std::min(rice_block, values.size() - at);
      const detail::whole_block<T> block(values.data() + at, count);
      const U any = detail::fill_block(x, [&](std::size_t e) __attribute__((always_inline)) {
        const auto bits = detail::bits_at(block.data() + e);
        auto number = detail::magnitudes_of<T, Dropped>(bits);
        if constexpr (detail::has_sign<T>) number = number << 1 | bits >> detail::top_bit<T>;
        return (number ^ turn) - turned_base;
      });
      for (std::size_t e = count; e < rice_block; ++e) x[e] = 0;
      to.add(x, any, count);
    }
    return to.end();
  }
}

/// Decodes values. Returns the end of their encoding, or nullptr if the bytes from `in` to `end` are too few or cannot
/// be decoded.
template <unsigned Dropped, element T>
const std::byte* decode_values(const std::byte* in, const std::byte* end, std::span<T> values) {
  if constexpr (!detail::has_magnitude<T>) {
    if (static_cast<std::size_t>(end - in) < values.size_bytes()) return nullptr;
    detail::copy(std::as_writable_bytes(values).data(), in, values.size_bytes());
    return in + values.size_bytes();
  } else {
    using U = detail::number_of<T>;
    if (values.empty()) return in;
    if (static_cast<std::size_t>(end - in) < 1 + sizeof(T)) return nullptr;
    const std::byte* const origin = in;
    const auto head = static_cast<unsigned>(*in++);
    if (head > (detail::from_most_bit | detail::equal_widths_bit)) return nullptr;
    const auto how = (head & detail::equal_widths_bit) != 0 ? coding::fastest : coding::smallest;
    const U turn = U{} - U{head & detail::from_most_bit};
    detail::bits_of<T> base_bits;
    std::memcpy(&base_bits, in, sizeof base_bits);
    number_reader<U> from(how, values.size(), origin, in + sizeof base_bits, end);
    const U turned_base = U{base_bits} ^ turn;
    rice_numbers<U> x;
    T* __restrict to = values.data();
    for (std::size_t at = 0; at < values.size(); at += rice_block, to += rice_block) {
      const std::size_t count = std::min(rice_block, values.size() - at);
      if (!from.next(count, x)) return nullptr;
      const auto value = [&](U number) {
        const U distance = detail::has_sign<T> ? number >> 1 : number;
        return detail::join<T, Dropped>((distance + turned_base) ^ turn, number & 1);
      };
      if (count == rice_block) {
        for (std::size_t e = 0; e < rice_block; ++e) to[e] = value(x[e]);
      } else {
        for (std::size_t e = 0; e < count; ++e) to[e] = value(x[e]);
      }
    }
    return from.rest();
  }
}

} // namespace spar::inline v0_1::kernel
