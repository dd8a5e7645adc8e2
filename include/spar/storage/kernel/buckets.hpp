// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves the k largest entries of each bucket of consecutive values out of a vector (SparCML, section 8.3).
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#ifdef __CUDACC__ // nvcc warns of the pragma `GCC unroll`
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif

namespace spar::inline v0_1::kernel {

namespace detail {

/// The number of values that `take_from_buckets` searches for candidates at once: few enough for the cache. Buckets
/// that are longer are searched by `largest`, which has its own sample.
inline constexpr std::size_t bucket_window = std::size_t{1} << 16;

/// Returns a magnitude that slightly more than `k` of each `bucket` values of `x` should reach, by a sample of `x`.
template <ranked T>
magnitude<T> guess_for_buckets(std::span<const T> x, std::size_t bucket, std::size_t k, std::span<T> sample) {
  const std::size_t length = std::max<std::size_t>(1, x.size() / sample.size());
  const std::size_t parts = std::min(sample.size(), x.size());
  // The k largest of a bucket, about three standard deviations, and what a small k needs in addition.
  const std::size_t wanted = k + (std::size_t{3} << (std::bit_width(k) / 2)) + 4;
  const std::size_t rank = parts * wanted / bucket + 1;
  if (rank >= parts) return 1;
  for (std::size_t p = 0; p < parts; ++p) sample[p] = x[p * length + scatter_of(p, length)];
  return largest_by_digits(std::span<const T>(sample).data(), parts, rank, sample).threshold;
}

/// Few entries are taken from short buckets without a sample: `bucket` is at most `short_bucket`, and k at most
/// `few_entries`. The values of a bucket form `bucket_groups` groups: of each `bucket_groups` consecutive values, one
/// is in each group.
inline constexpr std::size_t short_bucket = 1024, few_entries = 13, bucket_groups = 16;

/// The upper bits of the magnitudes of floating-point values: 32 bits of double, all bits of smaller types. Vectors of
/// them can be compared on every processor, and two magnitudes are never in the opposite order of their upper bits.
template <class T>
struct upper_bits {
  using lanes = typename lanes_of<sizeof(T) == 2 ? 2 : 4>::type;
  using lane = std::remove_cvref_t<decltype(lanes{}[0])>;
  static constexpr std::size_t width = sizeof(lanes) / sizeof(lane), vectors = bucket_groups / width;
  static constexpr std::size_t dropped = 8 * (sizeof(T) - sizeof(lane));

  /// Loads the upper bits of `width` values, as lanes that are not negative.
  [[gnu::always_inline]] static lanes load(const T* x) {
    lanes upper;
    std::memcpy(&upper, static_cast<const void*>(x), sizeof upper);
    if constexpr (dropped != 0) {
      lanes more;
      std::memcpy(&more, static_cast<const void*>(x + width / 2), sizeof more);
      constexpr int high = std::endian::native == std::endian::little;
      upper = __builtin_shufflevector(upper, more, high, 2 + high, 4 + high, 6 + high);
    }
    return upper & static_cast<lane>(greatest_magnitude<T> >> dropped);
  }

  [[gnu::always_inline]] static lanes larger(lanes a, lanes b) { return a > b ? a : b; }
};

/// Counts the lanes that are larger than each lane.
template <class T, class Lanes, std::size_t Vectors>
[[gnu::always_inline]] inline void count_larger(const Lanes (&own)[Vectors], Lanes (&larger)[Vectors]) {
  using upper = upper_bits<T>;
  typename upper::lane keys[Vectors * upper::width];
  std::memcpy(keys, own, sizeof keys);
#pragma GCC unroll 8
  for (std::size_t v = 0; v < Vectors; ++v) larger[v] = Lanes{};
#pragma GCC unroll 16
  for (std::size_t j = 0; j < Vectors * upper::width; ++j) {
    const Lanes other = Lanes{} + keys[j];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) larger[v] -= other > own[v];
  }
}

/// Returns a magnitude that at least k of the values x[0, length) reach, or 1 if fewer than k are nonzero: the k-th
/// largest of the maxima of the groups, or somewhat less. `x` must be readable up to a multiple of `bucket_groups`.
template <class T>
[[gnu::always_inline]] inline magnitude<T> reached_by_groups(const T* x, std::size_t length, std::size_t k) {
  using upper = upper_bits<T>;
  using lanes = typename upper::lanes;
  using lane = typename upper::lane;
  lanes most[upper::vectors] = {};
  std::size_t e = 0;
  for (; e + bucket_groups <= length; e += bucket_groups) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < upper::vectors; ++v)
      most[v] = upper::larger(upper::load(x + e + v * upper::width), most[v]);
  }
  if (e < length) {
    const auto rest = static_cast<lane>(length - e);
#pragma GCC unroll 8
    for (std::size_t v = 0; v < upper::vectors; ++v) {
      lanes group{};
      for (std::size_t l = 0; l < upper::width; ++l) group[l] = static_cast<lane>(v * upper::width + l);
      most[v] = upper::larger(upper::load(x + e + v * upper::width) & (group < rest), most[v]);
    }
  }
  // The k-th largest maximum is the smallest of those that fewer than k exceed. Complements reverse the order.
  if (k > 1) {
    lanes larger[upper::vectors];
    count_larger<T>(most, larger);
#pragma GCC unroll 8
    for (std::size_t v = 0; v < upper::vectors; ++v)
      most[v] = larger[v] < static_cast<lane>(k) ? ~most[v] : lanes{} + std::numeric_limits<lane>::min();
  }
#pragma GCC unroll 8
  for (std::size_t v = 1; v < upper::vectors; ++v) most[0] = upper::larger(most[0], most[v]);
  lane largest = most[0][0];
  for (std::size_t l = 1; l < upper::width; ++l) largest = std::max<lane>(largest, most[0][l]);
  const auto kth = static_cast<magnitude<T>>(k > 1 ? ~largest : largest);
  return std::max<magnitude<T>>(1, static_cast<magnitude<T>>(kth << upper::dropped));
}

/// Writes the positions of the values of x[0, length) whose magnitude is at least `threshold`, and returns their
/// number. `x` must be readable up to a multiple of 16; `positions` has room for length + 8.
template <class T>
[[gnu::always_inline]] inline std::size_t positions_at_least(const T* x, std::size_t length, magnitude<T> threshold,
                                                             std::uint16_t* positions) {
  std::uint64_t masks[short_bucket / 64];
  const std::size_t words = (length + 63) / 64;
  for (std::size_t w = 0; w < words; ++w) {
    std::uint64_t mask = 0;
    for (std::size_t b = 0; b < 64 && 64 * w + b < length; b += 16)
      mask |= std::uint64_t{at_least_mask_of_16(x + 64 * w + b, threshold)} << b;
    masks[w] = mask;
  }
  masks[words - 1] &= ~std::uint64_t{0} >> (64 * words - length);
  return bit_positions(masks, words, positions);
}

/// Leaves the k largest of the `count` values of `x` at the ascending positions `at` in at[0, k), if upper bits and no
/// more than 32 candidates decide; otherwise returns false. Counts the larger candidates of each candidate, because
/// a loop that ends at the k-th largest would be mispredicted.
template <std::size_t Room, class T>
[[gnu::always_inline]] inline bool keep_few_positions(const T* x, std::uint16_t* at, std::size_t count, std::size_t k) {
  using upper = upper_bits<T>;
  using lanes = typename upper::lanes;
  using lane = typename upper::lane;
  if (k == 1 && upper::dropped == 0) return true; // all candidates are equal
  if (count > Room) {
    if constexpr (Room < 32) return keep_few_positions<2 * Room>(x, at, count, k);
    return false;
  }
  lane keys[Room], larger[Room];
  for (std::size_t i = 0; i < Room; ++i) {
    const auto key = static_cast<lane>(magnitude_of(x[at[i < count ? i : 0]]) >> upper::dropped);
    keys[i] = i < count ? key : lane{-1};
  }
  lanes own[Room / upper::width], number[Room / upper::width];
  std::memcpy(own, keys, sizeof own);
  count_larger<T>(own, number);
  std::memcpy(larger, number, sizeof larger);
  std::uint16_t kept[Room + 1];
  std::size_t found = 0;
  for (std::size_t i = 0; i < Room; ++i) {
    kept[found] = at[i];
    found += static_cast<std::size_t>(larger[i] < static_cast<lane>(k));
  }
  if (found != k) return false; // several candidates have the upper bits of the k-th largest
  for (std::size_t i = 0; i < k; ++i) at[i] = kept[i];
  return true;
}

/// Leaves the positions of the k largest of the `count` values of `x` at the ascending positions `at` in at[0, k).
/// There must be at least k values, whose magnitudes are at least `lowest`. `keys` has room for `count` magnitudes,
/// rounded up to a multiple of 16.
template <ranked T, class Position>
[[gnu::noinline]] void keep_largest_positions(const T* x, Position* at, std::size_t count, std::size_t k,
                                              magnitude<T> lowest, magnitude<T>* __restrict keys) {
  using M = magnitude<T>;
  constexpr std::size_t block = 16;
  M most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = magnitude_of(x[at[i]]);
    most = std::max(most, keys[i]);
  }
  const std::size_t padded = (count + block - 1) / block * block;
  for (std::size_t i = count; i < padded; ++i) keys[i] = 0;
  const auto reach = [&](M threshold) {
    std::size_t number = 0;
    for (std::size_t i = 0; i < padded; i += block) {
      M here = 0;
      for (std::size_t b = 0; b < block; ++b) here = static_cast<M>(here + static_cast<M>(keys[i + b] >= threshold));
      number += here;
    }
    return number;
  };
  // Bisects until exactly k values reach `low`, or low + 1 == high, so that k cuts through values of equal magnitude.
  M low = lowest;
  std::size_t reaching = count, above = 0; // the numbers of values that reach `low`, and that exceed `most`
  for (M beyond = most; reaching != k && low < beyond;) {
    const M middle = static_cast<M>(beyond - (beyond - low) / 2);
    const std::size_t number = reach(middle);
    if (number >= k) {
      low = middle;
      reaching = number;
    } else {
      beyond = static_cast<M>(middle - 1);
      above = number;
    }
  }
  std::size_t ties = reaching == k ? reaching : k - above; // of the values with magnitude `low`, the first are kept
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    at[kept] = at[i];
    const bool equal = keys[i] == low;
    kept += static_cast<std::size_t>(keys[i] > low) | static_cast<std::size_t>(equal && ties != 0);
    ties -= static_cast<std::size_t>(equal && ties != 0);
  }
}

/// `take_from_buckets` for few entries of short buckets. The candidates of a bucket are the values that reach the k-th
/// largest maximum of its groups.
template <ranked T, index_type Index>
[[gnu::noinline]] std::size_t take_few_from_buckets(std::span<T> x, std::size_t bucket, std::size_t k, Index* out_i,
                                                    T* out_v) {
  T padded[short_bucket];
  std::uint16_t at[short_bucket + 8];
  magnitude<T> keys[short_bucket];
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += bucket) {
    T* const own = x.data() + begin;
    const T* values = own;
    const std::size_t left = x.size() - begin, length = std::min(bucket, left);
    if (const std::size_t room = (length + bucket_groups - 1) / bucket_groups * bucket_groups; room > left) {
      copy(padded, own, length);
      fill(padded + length, room - length, T{});
      values = padded;
    }
    const magnitude<T> reached = reached_by_groups(values, length, k);
    std::size_t have = positions_at_least(values, length, reached, at);
    if (have > k) {
      if (!keep_few_positions<8>(values, at, have, k)) keep_largest_positions<T>(values, at, have, k, reached, keys);
      have = k;
    }
    move_entries(own, at, have, begin, out_i + count, out_v + count);
    count += have;
  }
  return count;
}

} // namespace detail

/// Moves the `k` largest entries of each `bucket` consecutive values of `x` to the output arrays, or all nonzeros of a
/// bucket with fewer than k nonzeros, and leaves zeros in `x`. Entries are in ascending order of their positions; of
/// equal magnitudes, the lowest positions are taken. Returns the number of entries. The last bucket may be shorter.
///
/// Finds candidates, and then the k largest candidates of each bucket. If k is small and the buckets are short, a
/// bucket gives the threshold for its candidates itself. Otherwise, a sample of many buckets gives a threshold for all
/// of them, and a bucket with fewer than k candidates is searched on its own.
template <ranked T, index_type Index>
std::size_t take_from_buckets(std::span<T> x, std::size_t bucket, std::size_t k, Index* out_i, T* out_v, pool& memory) {
  if (k == 0) return 0;
  if constexpr (is_floating<T>) {
    if (bucket <= detail::short_bucket && k <= detail::few_entries)
      return detail::take_few_from_buckets(x, bucket, k, out_i, out_v);
  }
  std::size_t count = 0;
  const auto search = [&](std::size_t begin, std::size_t end) {
    const auto part = x.subspan(begin, end - begin);
    count += take_largest(part, largest<T>(part, k, memory), begin, out_i + count, out_v + count);
  };
  const std::size_t n = x.size(), window = detail::bucket_window / bucket * bucket;
  if (window == 0) {
    for (std::size_t begin = 0; begin < n; begin += bucket) search(begin, std::min(n, begin + bucket));
    return count;
  }
  const std::size_t longest = std::min(n, window);
  buffer<T> sample(memory, std::min<std::size_t>(longest, 1024));
  buffer<std::uint32_t> candidates(memory, longest);
  buffer<magnitude<T>> keys(memory, std::min(longest, bucket) + 16);
  for (std::size_t first = 0; first < n; first += window) {
    const auto part = x.subspan(first, std::min(window, n - first));
    const magnitude<T> guess = detail::guess_for_buckets(std::span<const T>(part), bucket, k, sample.span());
    std::uint32_t* at = candidates.data();
    detail::for_at_least(part.data(), part.size(), guess,
                         [&](std::size_t base, const std::uint16_t* positions, std::size_t found) {
                           for (std::size_t f = 0; f < found; ++f)
                             at[f] = static_cast<std::uint32_t>(base + positions[f]);
                           at += found;
                           return true;
                         });
    const std::uint32_t* const last = at;
    at = candidates.data();
    for (std::size_t begin = 0; begin < part.size(); begin += bucket) {
      std::uint32_t* const own = at;
      while (at != last && *at < begin + bucket) ++at;
      std::size_t have = static_cast<std::size_t>(at - own);
      if (have < k && guess > 1) {
        search(first + begin, first + std::min(begin + bucket, part.size()));
        continue;
      }
      if (have > k) detail::keep_largest_positions<T>(part.data(), own, have, k, guess, keys.data());
      have = std::min(have, k);
      detail::move_entries(part.data(), own, have, first, out_i + count, out_v + count);
      count += have;
    }
  }
  return count;
}

} // namespace spar::inline v0_1::kernel

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
