// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The code of ascending indices: gaps, or runs of adjacent indices, in blocks of Rice codes or of numbers of equal
// width.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/rice.hpp>
#include <spar/storage/kernel/slice.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace spar::inline v0_1::kernel {

/// An upper bound on the bytes of `count` encoded indices, and the room that `encode_indices` needs.
template <index_type Index>
constexpr std::size_t coded_indices_bound(std::size_t count) noexcept {
  // 16: for the number of runs and two short blocks, or for two `packed_position`s
  return 1 + sizeof(Index) + 16 + rice_bound<Index>(count);
}

namespace detail {

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

/// What the numbers of a code of indices are: gaps, runs, or gaps of equal widths (see `number_writer`).
enum class index_code : std::uint8_t { gaps = 1, runs = 2, equal_widths = 3 };

/// Encodes the gap before each index to `out`, in a message that begins at `origin`.
template <index_type Index>
std::byte* encode_gaps(std::span<const Index> indices, Index before, coding how, std::byte* origin, std::byte* out) {
  rice_numbers<Index> gap;
  number_writer<Index> to(how, indices.size(), origin, out);
  for (std::size_t at = 0; at < indices.size(); at += rice_block) {
    const std::size_t count = std::min(rice_block, indices.size() - at);
    const whole_block<Index> block(indices.data() + at, count);
    const Index* const index = block.data();
    gap[0] = static_cast<Index>(index[0] - before - 1);
    for (std::size_t e = 1; e < lanes<Index>; ++e) gap[e] = static_cast<Index>(index[e] - index[e - 1] - 1);
    for (std::size_t e = lanes<Index>; e < rice_block; e += lanes<Index>)
      store(gap.data() + e, load<vector<Index>>(index + e) - load<vector<Index>>(index + e - 1) - 1);
    for (std::size_t e = count; e < rice_block; ++e) gap[e] = 0;
    before = index[count - 1];
    to.add(gap, union_of(gap), count);
  }
  return to.end();
}

template <index_type Index>
const std::byte* decode_gaps(number_reader<Index> from, index_range range, std::span<Index> indices) {
  rice_numbers<Index> gap, last_block;
  auto before = static_cast<Index>(range.begin - 1);
  for (std::size_t at = 0; at < indices.size(); at += rice_block) {
    const std::size_t count = std::min(rice_block, indices.size() - at);
    if (!from.next(count, gap)) return nullptr;
    const bool whole = count == rice_block;
    Index* const to = whole ? indices.data() + at : last_block.data();
    const Index any = add_gaps(gap, before, to);
    // The indices ascend unless a sum overflows. If all gaps are small, this happens once at most, and the last index
    // shows it.
    const bool ascends = at == 0 ? to[0] >= range.begin : to[0] > before;
    if (!ascends || to[count - 1] < to[0] || to[count - 1] >= range.end) return nullptr;
    const bool all_small = any < std::numeric_limits<Index>::max() / (2 * rice_block);
    if (!all_small && first_bad_index(std::span<const Index>(to, count), range.end) != count) return nullptr;
    if (!whole) std::memcpy(indices.data() + at, to, count * sizeof(Index));
    before = to[count - 1];
  }
  return from.rest();
}

/// The number of runs of adjacent indices, or any number above half of the indices if there are more runs than that.
template <index_type Index>
std::size_t count_runs(std::span<const Index> indices) {
  std::size_t runs = indices.empty() ? 0 : 1, e = 1;
  for (; e + rice_block <= indices.size() && runs <= indices.size() / 2; e += rice_block) {
    vector<Index> adjacent{};
    for (std::size_t f = e; f < e + rice_block; f += lanes<Index>)
      adjacent +=
          std::bit_cast<vector<Index>>(load<vector<Index>>(&indices[f]) - load<vector<Index>>(&indices[f - 1]) == 1);
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
    out = encode_numbers(gap, union_of(gap), count, how, out);
    out = encode_numbers(more, union_of(more), count, how, out);
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

/// Encodes ascending indices, none below `first`, in a message that begins at `out`. Returns the end of the encoded
/// bytes. Layout: a byte, whose lowest two bits are the `index_code`, and whose other bits are the number of bytes of
/// the next number; the distance of the lowest index from `first`, which may exceed all gaps, so that it is not one of
/// their block; the numbers of the gaps or runs, which begin at the lowest index.
template <index_type Index>
std::byte* encode_indices(std::span<const Index> indices, std::uint64_t first, coding how, std::byte* out) {
  if (indices.empty()) return out;
  const std::size_t runs = detail::count_runs(indices);
  const Index lowest = indices.front();
  const auto code = detail::runs_are_smaller(runs, indices.size(), indices.back() - lowest + 1)
                        ? detail::index_code::runs
                    : how == coding::fastest ? detail::index_code::equal_widths
                                             : detail::index_code::gaps;
  std::byte* const origin = out;
  const auto distance = static_cast<Index>(lowest - first);
  const unsigned bytes = (static_cast<unsigned>(std::bit_width(distance)) + 7) / 8;
  *out++ = static_cast<std::byte>(static_cast<unsigned>(code) | bytes << 2);
  std::memcpy(out, &distance, sizeof distance);
  out += bytes;
  const auto before = static_cast<Index>(lowest - 1);
  return code == detail::index_code::runs ? detail::encode_runs(indices, runs, before, how, out)
                                          : detail::encode_gaps(indices, before, how, origin, out);
}

/// Decodes indices of `range` from a message that begins at `in`. Returns the end of their encoding, or nullptr if the
/// bytes from `in` to `end` do not encode ascending indices of `range`.
template <index_type Index>
const std::byte* decode_indices(const std::byte* in, const std::byte* end, index_range range,
                                std::span<Index> indices) {
  if (in == end || indices.empty()) return indices.empty() ? in : nullptr;
  const std::byte* const origin = in;
  const auto head = static_cast<unsigned>(*in++);
  const std::size_t bytes = head >> 2;
  Index distance{};
  if (bytes > sizeof distance || bytes > static_cast<std::size_t>(end - in)) return nullptr;
  std::memcpy(&distance, in, bytes);
  if (distance >= range.size()) return nullptr;
  range.begin += distance;
  in += bytes;
  const auto code = static_cast<detail::index_code>(head & 3);
  switch (code) {
  case detail::index_code::gaps:
  case detail::index_code::equal_widths: {
    const auto how = code == detail::index_code::gaps ? coding::smallest : coding::fastest;
    return detail::decode_gaps(number_reader<Index>(how, indices.size(), origin, in, end), range, indices);
  }
  case detail::index_code::runs:
    return detail::decode_runs(in, end, range, indices);
  }
  return nullptr;
}

} // namespace spar::inline v0_1::kernel
