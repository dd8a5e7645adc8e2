// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The code of sparse streams: indices as gaps or runs, values as distances from the smallest or largest magnitude, both
// in blocks of Rice codes or of numbers of equal width.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/element.hpp>
#include <spar/core/index_range.hpp>
#include <spar/storage/kernel/rice.hpp>
#include <spar/storage/kernel/validate.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace spar::kernel {

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

/// The numbers that the bits of the elements from[0], from[1], ... are, as many as a vector has lanes.
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
[[gnu::always_inline]] inline T join(number_of<T> magnitude, number_of<T> sign) {
  using U = number_of<T>;
  U bits = magnitude;
  if constexpr (is_floating<T>)
    bits = magnitude << Dropped | sign << top_bit<T>;
  else if constexpr (std::is_signed_v<T>)
    bits = magnitude ^ (U{} - sign);
  return std::bit_cast<T>(static_cast<bits_of<T>>(bits));
}

/// A block of elements: those of the user, or a copy of a short block, whose rest repeats the first element.
template <class T>
class whole_block {
 public:
  whole_block(const T* from, std::size_t count) : data_(from) {
    if (count == rice_block) return;
    std::memcpy(static_cast<void*>(copy_.data()), from, count * sizeof(T));
    for (std::size_t e = count; e < rice_block; ++e) copy_[e] = from[0];
    data_ = copy_.data();
  }
  whole_block(const whole_block&) = delete;
  [[nodiscard]] const T* data() const noexcept { return data_; }

 private:
  std::array<T, rice_block> copy_;
  const T* data_;
};

template <class T>
inline constexpr bool has_sign = is_floating<T> || std::is_signed_v<T>;

/// Writes the indices before + 1 + x[0], before + 2 + x[0] + x[1], ... to `to`. Returns the union of the bits of x.
template <class U>
U add_gaps(const rice_numbers<U>& x, U before, U* __restrict to) {
  vector<U> sum = vector<U>{} + before, any{};
  const vector<U> zero{};
  for (std::size_t e = 0; e < rice_block; e += lanes<U>) {
    auto v = load<vector<U>>(x.data() + e);
    any |= v;
    v += 1;
    if constexpr (lanes<U> == 4) {
      v += __builtin_shufflevector(zero, v, 0, 4, 5, 6);
      v += __builtin_shufflevector(zero, v, 0, 0, 4, 5);
      v += sum;
      sum = __builtin_shufflevector(v, v, 3, 3, 3, 3);
    } else {
      v += __builtin_shufflevector(zero, v, 0, 2);
      v += sum;
      sum = __builtin_shufflevector(v, v, 1, 1);
    }
    store(to + e, v);
  }
  for (unsigned e = 1; e < lanes<U>; ++e) any[0] |= any[e];
  return any[0];
}

/// The smallest and the largest magnitude of values, and whether the mean is closer to the largest one. Of magnitudes
/// with a highest bit, the results are other magnitudes, so that the code is correct, but longer.
template <class T, unsigned Dropped>
class magnitude_range {
  using U = number_of<T>;
  using S = std::make_signed_t<U>;

 public:
  explicit magnitude_range(std::span<const T> values) {
    vector<S> least = vector<S>{} + std::numeric_limits<S>::max(), most{};
    constexpr unsigned low = 8; // bits that are left out of sums, so that a block's sum fits into a lane
    double sum = 0;
    for (std::size_t at = 0; at < values.size(); at += rice_block) {
      const whole_block<T> block(values.data() + at, std::min(rice_block, values.size() - at));
      vector<U> upper{};
      vector<S> below{}, above{};
      for (std::size_t e = 0; e < rice_block; e += lanes<U>) {
        const auto bits = magnitudes_of<T, Dropped>(bits_at(block.data() + e));
        const auto v = std::bit_cast<vector<S>>(bits);
        below |= v<least, above |= v> most;
        upper += bits >> low;
      }
      if (has_any(below | above)) { // seldom: an update of each number would take twice as long as these tests
        for (std::size_t e = 0; e < rice_block; e += lanes<U>) {
          const auto v = std::bit_cast<vector<S>>(magnitudes_of<T, Dropped>(bits_at(block.data() + e)));
          least ^= (v ^ least) & (v < least);
          most ^= (v ^ most) & (v > most);
        }
      }
      for (unsigned e = 0; e < lanes<U>; ++e) sum += static_cast<double>(static_cast<S>(upper[e]));
    }
    for (unsigned e = 1; e < lanes<U>; ++e) {
      least[0] = std::min<S>(least[0], least[e]);
      most[0] = std::max<S>(most[0], most[e]);
    }
    const auto blocks = static_cast<double>((values.size() + rice_block - 1) / rice_block);
    const auto twice = static_cast<double>((least[0] >> low) + (most[0] >> low));
    counts_from_most = 2 * sum > blocks * rice_block * twice;
    base = static_cast<U>(counts_from_most ? most[0] : least[0]);
  }

  bool counts_from_most;
  U base;

 private:
  static bool has_any(vector<S> mask) {
    S any{};
    for (unsigned e = 0; e < lanes<U>; ++e) any |= mask[e];
    return any != 0;
  }
};

} // namespace detail

/// An upper bound on the bytes of `count` encoded indices, and the room that `encode_indices` needs.
template <index_type Index>
constexpr std::size_t coded_indices_bound(std::size_t count) noexcept {
  return 1 + sizeof(Index) + 16 + rice_bound<Index>(count); // 16: for the number of runs and two short blocks
}
/// An upper bound on the bytes of `count` encoded values, and the room that `encode_values` needs.
template <element T>
constexpr std::size_t coded_values_bound(std::size_t count) noexcept {
  if constexpr (detail::has_magnitude<T>)
    return 1 + sizeof(T) + rice_bound<detail::number_of<T>>(count);
  else
    return count * sizeof(T);
}

namespace detail {

enum class index_code : std::uint8_t { gaps = 1, runs = 2 };

/// Encodes the gap before each index.
template <index_type Index>
std::byte* encode_gaps(std::span<const Index> indices, Index before, coding how, std::byte* out) {
  rice_numbers<Index> gap;
  for (std::size_t at = 0; at < indices.size(); at += rice_block) {
    const std::size_t count = std::min(rice_block, indices.size() - at);
    const whole_block<Index> block(indices.data() + at, count);
    const Index* const index = block.data();
    gap[0] = static_cast<Index>(index[0] - before - 1);
    for (std::size_t e = 1; e < lanes<Index>; ++e) gap[e] = static_cast<Index>(index[e] - index[e - 1] - 1);
    for (std::size_t e = lanes<Index>; e < rice_block; e += lanes<Index>)
      store(gap.data() + e, bits_at(index + e) - bits_at(index + e - 1) - 1);
    for (std::size_t e = count; e < rice_block; ++e) gap[e] = 0;
    before = index[count - 1];
    out = encode_numbers(gap, count, how, out);
  }
  return out;
}

template <index_type Index>
const std::byte* decode_gaps(const std::byte* in, const std::byte* end, index_range range, std::span<Index> indices) {
  rice_numbers<Index> gap, last_block;
  auto before = static_cast<Index>(range.begin - 1);
  for (std::size_t at = 0; at < indices.size(); at += rice_block) {
    const std::size_t count = std::min(rice_block, indices.size() - at);
    in = decode_numbers(in, end, count, gap);
    if (in == nullptr) return nullptr;
    const bool whole = count == rice_block;
    Index* const to = whole ? indices.data() + at : last_block.data();
    const Index any = add_gaps(gap, before, to);
    // The indices ascend unless a sum overflows. If all gaps are small, this happens once at most, and the last index
    // shows it.
    const bool ascends = at == 0 ? to[0] >= range.begin : to[0] > before;
    if (!ascends || to[count - 1] < to[0] || to[count - 1] >= range.end) return nullptr;
    const bool small = any < std::numeric_limits<Index>::max() / (2 * rice_block);
    if (!small && first_bad_index(std::span<const Index>(to, count), range.end) != count) return nullptr;
    if (!whole) std::memcpy(indices.data() + at, to, count * sizeof(Index));
    before = to[count - 1];
  }
  return in;
}

/// The number of runs of adjacent indices, or any number above half of the indices if there are more runs than that.
template <index_type Index>
std::size_t count_runs(std::span<const Index> indices) {
  std::size_t runs = indices.empty() ? 0 : 1, e = 1;
  for (; e + rice_block <= indices.size() && runs <= indices.size() / 2; e += rice_block) {
    vector<Index> adjacent{};
    for (std::size_t f = e; f < e + rice_block; f += lanes<Index>)
      adjacent += std::bit_cast<vector<Index>>(bits_at(&indices[f]) - bits_at(&indices[f - 1]) == 1);
    runs += rice_block;
    for (unsigned f = 0; f < lanes<Index>; ++f) runs -= static_cast<std::size_t>(Index{} - adjacent[f]);
  }
  for (; e < indices.size() && runs <= indices.size() / 2; ++e) runs += indices[e] != indices[e - 1] + 1;
  return runs;
}

/// Encodes the number of runs and, for up to 256 runs at a time, the gaps before the runs and the lengths of the runs.
template <index_type Index>
std::byte* encode_runs(std::span<const Index> indices, std::size_t runs, Index before, coding how, std::byte* out) {
  const auto number = static_cast<Index>(runs);
  std::memcpy(out, &number, sizeof number);
  out += sizeof number;
  rice_numbers<Index> gap, more; // `more`: the length of the run, without its first index
  for (std::size_t at = 0; at < indices.size();) {
    gap.fill(0), more.fill(0);
    std::size_t count = 0;
    for (; count < rice_block && at < indices.size(); ++count) {
      const std::size_t first = at;
      for (++at; at < indices.size() && indices[at] == indices[at - 1] + 1;) ++at;
      gap[count] = static_cast<Index>(indices[first] - before - 1);
      more[count] = static_cast<Index>(at - first - 1);
      before = indices[at - 1];
    }
    out = encode_numbers(gap, count, how, out);
    out = encode_numbers(more, count, how, out);
  }
  return out;
}

template <index_type Index>
const std::byte* decode_runs(const std::byte* in, const std::byte* end, index_range range, std::span<Index> indices) {
  Index runs;
  if (static_cast<std::size_t>(end - in) < sizeof runs) return nullptr;
  std::memcpy(&runs, in, sizeof runs);
  in += sizeof runs;
  if (runs > indices.size()) return nullptr;
  rice_numbers<Index> gap, more;
  Index* to = indices.data();
  std::uint64_t next = range.begin;
  auto left = static_cast<std::uint64_t>(indices.size());
  for (std::size_t done = 0; done < runs;) {
    const std::size_t count = std::min<std::size_t>(rice_block, runs - done);
    in = decode_numbers(in, end, count, gap);
    if (in != nullptr) in = decode_numbers(in, end, count, more);
    if (in == nullptr) return nullptr;
    for (std::size_t run = 0; run < count; ++run) {
      if (gap[run] >= range.end - next) return nullptr;
      next += gap[run];
      if (more[run] >= left || more[run] >= range.end - next) return nullptr;
      const std::uint64_t length = std::uint64_t{more[run]} + 1;
      for (std::uint64_t e = 0; e < length; ++e) *to++ = static_cast<Index>(next + e);
      next += length, left -= length;
    }
    done += count;
  }
  return left == 0 ? in : nullptr;
}

/// Whether `runs` runs of `count` indices, which span `range` indices, take fewer bits than `count` gaps, even if both
/// numbers of a run have the width of an index, so that the encoding fits into `coded_indices_bound`.
inline bool runs_are_smaller(std::size_t runs, std::size_t count, std::uint64_t range) {
  if (runs > count / 2) return false;
  const auto bits_of_numbers = [](double numbers, double sum) {
    return numbers * (__builtin_log2(sum / numbers + 1) + 1.5);
  };
  const auto r = static_cast<double>(runs), k = static_cast<double>(count), n = static_cast<double>(range);
  return bits_of_numbers(r, n - k) + bits_of_numbers(r, k - r) + 8 * 16 < bits_of_numbers(k, n - k);
}

} // namespace detail

/// Encodes ascending indices, none below `first`. Returns the end of the encoded bytes. Layout: a byte, whose lowest
/// two bits are 1 for gaps or 2 for runs, and whose other bits are the number of bytes of the next number; the distance
/// of the lowest index from `first`, which may exceed all gaps, so that it is not one of their block; the numbers of
/// the gaps or runs, which begin at the lowest index.
template <index_type Index>
std::byte* encode_indices(std::span<const Index> indices, std::uint64_t first, coding how, std::byte* out) {
  if (indices.empty()) return out;
  const std::size_t runs = detail::count_runs(indices);
  const Index lowest = indices.front();
  const auto code = detail::runs_are_smaller(runs, indices.size(), indices.back() - lowest + 1)
                        ? detail::index_code::runs
                        : detail::index_code::gaps;
  const auto distance = static_cast<Index>(lowest - first);
  const unsigned bytes = (static_cast<unsigned>(std::bit_width(distance)) + 7) / 8;
  *out++ = static_cast<std::byte>(static_cast<unsigned>(code) | bytes << 2);
  std::memcpy(out, &distance, sizeof distance);
  out += bytes;
  const auto before = static_cast<Index>(lowest - 1);
  return code == detail::index_code::runs ? detail::encode_runs(indices, runs, before, how, out)
                                          : detail::encode_gaps(indices, before, how, out);
}

/// Decodes indices of `range`. Returns the end of their encoding, or nullptr if the bytes from `in` to `end` do not
/// encode ascending indices of `range`.
template <index_type Index>
const std::byte* decode_indices(const std::byte* in, const std::byte* end, index_range range,
                                std::span<Index> indices) {
  if (in == end || indices.empty()) return indices.empty() ? in : nullptr;
  const auto head = static_cast<unsigned>(*in++);
  const std::size_t bytes = head >> 2;
  Index distance{};
  if (bytes > sizeof distance || bytes > static_cast<std::size_t>(end - in)) return nullptr;
  std::memcpy(&distance, in, bytes);
  if (distance >= range.size()) return nullptr;
  range.begin += distance;
  in += bytes;
  switch (static_cast<detail::index_code>(head & 3)) {
  case detail::index_code::gaps:
    return detail::decode_gaps(in, end, range, indices);
  case detail::index_code::runs:
    return detail::decode_runs(in, end, range, indices);
  }
  return nullptr;
}

/// Encodes values, of whose mantissas the lowest `Dropped` bits are rounded away; `Dropped` is 0 for integers. Returns
/// the end of the encoded bytes.
template <unsigned Dropped, element T>
std::byte* encode_values(std::span<const T> values, coding how, std::byte* out) {
  if constexpr (!detail::has_magnitude<T>) {
    detail::copy(out, std::as_bytes(values).data(), values.size_bytes());
    return out + values.size_bytes();
  } else {
    using U = detail::number_of<T>;
    if (values.empty()) return out;
    const detail::magnitude_range<T, Dropped> range(values);
    *out++ = static_cast<std::byte>(range.counts_from_most);
    const auto base_bits = static_cast<detail::bits_of<T>>(range.base);
    std::memcpy(out, &base_bits, sizeof base_bits);
    out += sizeof base_bits;
    // (m ^ turn) - turned_base is m - base, or base - m if the numbers count from the largest magnitude.
    const U turn = range.counts_from_most ? ~U{} : U{}, turned_base = range.base ^ turn;
    rice_numbers<U> x;
    for (std::size_t at = 0; at < values.size(); at += rice_block) {
      const std::size_t count = std::min(rice_block, values.size() - at);
      const detail::whole_block<T> block(values.data() + at, count);
      for (std::size_t e = 0; e < rice_block; e += detail::lanes<U>) {
        const auto bits = detail::bits_at(block.data() + e);
        const auto magnitude = detail::magnitudes_of<T, Dropped>(bits);
        if constexpr (detail::has_sign<T>)
          detail::store(x.data() + e, ((magnitude << 1 ^ turn << 1) - (turned_base << 1)) | bits >> detail::top_bit<T>);
        else
          detail::store(x.data() + e, (magnitude ^ turn) - turned_base);
      }
      for (std::size_t e = count; e < rice_block; ++e) x[e] = 0;
      out = encode_numbers(x, count, how, out);
    }
    return out;
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
    const auto counts_from_most = static_cast<unsigned>(*in++);
    if (counts_from_most > 1) return nullptr;
    const U turn = U{} - U{counts_from_most};
    detail::bits_of<T> base_bits;
    std::memcpy(&base_bits, in, sizeof base_bits);
    in += sizeof base_bits;
    const U turned_base = U{base_bits} ^ turn;
    rice_numbers<U> x;
    T* __restrict to = values.data();
    for (std::size_t at = 0; at < values.size(); at += rice_block, to += rice_block) {
      const std::size_t count = std::min(rice_block, values.size() - at);
      in = decode_numbers(in, end, count, x);
      if (in == nullptr) return nullptr;
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
    return in;
  }
}

} // namespace spar::kernel
