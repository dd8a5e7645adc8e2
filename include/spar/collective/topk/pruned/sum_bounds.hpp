// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bounds of sums of which an owner knows only some values: the sums of the lower ends and of the upper ends of the
// intervals that contain the values.
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/core/element.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/kernel/coded_values.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// The numbers from `low` to `high`.
template <element T>
struct interval {
  T low;  ///< the smallest number
  T high; ///< the largest number
};
/// Intervals are the values of streams that never leave a rank.
template <element T>
inline constexpr element_code code_of<interval<T>> = element_code::bytes;

namespace detail {

/// Whether a reduction of T by Op is a sum whose rounding is monotone: if a <= b, then a + c, rounded, is at most b +
/// c, rounded, as IEEE 754 requires of all its rounding modes. So in any order of summation, the sum of lower ends,
/// with all its rounding errors, is at most the sum of the values with its own rounding errors. An overflow becomes an
/// infinity in the sum of these ends, too. Sums of integers wrap around, so they are not monotone.
template <class T, class Op>
inline constexpr bool is_monotone = is_floating<T> && (std::same_as<Op, sum> || std::same_as<Op, average>);

/// The sum of intervals, if the sum of values is `op`.
template <class Op>
struct sum_of_intervals {
  static constexpr std::string_view name = "sum of intervals";
  Op op;

  template <class Interval>
  constexpr Interval operator()(Interval a, Interval b) const {
    return {op(a.low, b.low), op(a.high, b.high)};
  }
  template <class Interval>
  constexpr Interval neutral() const {
    return {};
  }
};

/// The value with the magnitude `m` (see kernel::magnitude_of) and a sign.
template <element T>
T with_magnitude(kernel::magnitude<T> m, bool negative) noexcept {
  return kernel::detail::join<T, 0>(m, negative ? 1 : 0);
}

/// The interval of a value of which only the sign is known, and that its magnitude is from `least` to `most`.
template <element T>
interval<T> interval_of(bool negative, kernel::magnitude<T> least, kernel::magnitude<T> most) noexcept {
  const T inner = with_magnitude<T>(least, negative), outer = with_magnitude<T>(most, negative);
  return {outer < inner ? outer : inner, outer < inner ? inner : outer}; // no branch on the sign
}

/// The sum of `parts`, one for each rank, in the order in which split_sparse sums slices. An addition of two values
/// adds `width` pairs of numbers.
template <transport Net, element T, index_type Index, class Op>
sparse_stream<T, Index> sum_of_slices(channel<Net> net, std::span<const stream_view<T, Index>> parts, std::uint64_t n,
                                      index_range block, Op op, std::uint64_t width = 1) {
  pool& memory = net.memory();
  const auto merged = [&](std::span<const stream_view<T, Index>> some) {
    net.compute(width * merge_work(some));
    return merge_many(some, n, block, op, memory);
  };
  if (parts.size() <= split_bucket) return merged(parts);
  const std::size_t buckets = (parts.size() + split_bucket - 1) / split_bucket;
  fixed_vector<sparse_stream<T, Index>> sums(memory, buckets);
  buffer<stream_view<T, Index>> views(memory, buckets);
  for (std::size_t b = 0; b < buckets; ++b) {
    const auto some = parts.subspan(b * split_bucket, std::min(split_bucket, parts.size() - b * split_bucket));
    views.data()[b] = sums.emplace_back(merged(some)).view();
  }
  return merged(std::span<const stream_view<T, Index>>(views.span()));
}

/// Writes the indices of `sums` at which a number of the interval has at least the magnitude `floor` to the beginning
/// of the indices of `sums`, and drops all others. If both ends are finite, so is every number between them, and its
/// magnitude is at most the larger one of the ends.
template <element T, index_type Index>
void keep_reaching(sparse_stream<interval<T>, Index>& sums, kernel::magnitude<T> floor) {
  const std::span<Index> indices = sums.indices();
  const std::span<const interval<T>> values = sums.values();
  std::size_t kept = 0;
  for (std::size_t e = 0; e < indices.size(); ++e) {
    indices[kept] = indices[e];
    const auto low = kernel::magnitude_of(values[e].low), high = kernel::magnitude_of(values[e].high);
    kept += static_cast<std::size_t>(std::max(low, high) >= floor);
  }
  sums.shrink(kept);
}

} // namespace detail

} // namespace spar::inline v0_1
