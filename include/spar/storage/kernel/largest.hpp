// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the k-th largest magnitude of a vector exactly, and moves the k largest entries out of the vector.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/in_parts.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::kernel {

/// Describes the k largest nonzero entries of a vector: all entries whose magnitude exceeds `threshold`, and the first
/// `ties` of the `equal` entries whose magnitude equals `threshold`. If fewer than min(k, n) of the n entries are
/// nonzero, `threshold` is 1, and `count`, `ties` and `equal` are the number of nonzeros.
template <ranked T>
struct cut {
  magnitude<T> threshold = greatest_magnitude<T>; // never 0
  std::size_t count = 0;                          // number of selected entries: min(k, number of nonzeros)
  std::size_t ties = 0;
  std::size_t equal = 0;
};

namespace detail {

/// Returns the `cut` that describes the `k` largest values. Uses a radix search for the k-th largest magnitude, from
/// the most significant digit down. Each pass counts the values whose upper digits match the digits found so far. If at
/// most half of the values match, and the matching values fit into `scratch`, they are copied to `scratch`, which
/// shortens the following passes. `x` may point to the beginning of `scratch`; the values of `x` are then overwritten.
template <ranked T>
[[gnu::noinline]] cut<T> largest_by_digits(const T* x, std::size_t n, std::size_t k, std::span<T> scratch) {
  using M = magnitude<T>;
  constexpr int digit = 8;
  if (k == 0 || n == 0) return {};
  M all = 0;
  std::size_t e = 0;
  for (; e + 64 <= n; e += 64)
    for (std::size_t b = 0; b < 64; ++b) all = static_cast<M>(all | magnitude_of(x[e + b]));
  for (; e < n; ++e) all = static_cast<M>(all | magnitude_of(x[e]));
  M known = 0, upper = 0; // known digits of the k-th largest magnitude, and their mask
  std::size_t above = 0, equal = n;
  for (auto shift = static_cast<int>(std::bit_width(all)); shift > 0;) {
    shift = std::max(shift - digit, 0);
    // Alternates between two histograms. Neighbouring values often increment the same counter, and in one histogram the
    // second increment would wait for the first. The second half of each histogram counts the values whose upper digits
    // differ from `known`: a branch that skips these values would be unpredictable.
    std::size_t histogram[2][2 << digit] = {};
    const auto count = [&](std::size_t which, T value) {
      const M m = magnitude_of(value);
      const auto other = static_cast<std::size_t>((m & upper) != known) << digit;
      ++histogram[which][other | ((m >> shift) & ((1 << digit) - 1))];
    };
    for (e = 0; e + 2 <= n; e += 2) count(0, x[e]), count(1, x[e + 1]);
    if (e < n) count(0, x[e]);
    std::size_t d = (1 << digit) - 1;
    for (;; --d) {
      equal = histogram[0][d] + histogram[1][d];
      if (above + equal >= k || d == 0) break;
      above += equal;
    }
    known = static_cast<M>(known | static_cast<M>(static_cast<M>(d) << shift));
    upper = static_cast<M>(static_cast<M>(-1) << shift);
    if (equal < scratch.size() && equal <= n / 2) {
      std::size_t kept = 0;
      for (e = 0; e < n; ++e) {
        const T value = x[e];
        scratch[kept] = value;
        kept += static_cast<std::size_t>((magnitude_of(value) & upper) == known);
      }
      x = scratch.data();
      n = kept;
    }
  }
  if (known == 0) return {1, above, above, above}; // fewer than k nonzeros: selects all nonzeros
  return {known, k, k - above, equal};
}

/// The smallest length of a vector that `largest` samples. For shorter vectors, histograms of all values are faster.
inline constexpr std::size_t sampled_from = 1 << 14;

/// The sample with which the search for the `wanted` largest of n values begins: one value at a pseudo-random position
/// in each of `parts` parts of `length` values. The magnitude with the rank `rank` in the sample, counted from the
/// largest, is the threshold that candidates must reach. The rank exceeds the expected rank of the k-th largest
/// magnitude by at least three standard deviations. The search takes at most `room` candidates.
struct sample_plan {
  std::size_t parts, length, rank, room;
  bool useful; // whether a search with the sample is faster than one without

  constexpr sample_plan(std::size_t n, std::size_t wanted)
      : parts(std::size_t{4} << (std::bit_width(n) / 2)), length(n / parts) {
    const std::size_t expected = length == 0 ? 0 : wanted / length;
    rank = expected + (std::size_t{3} << ((std::bit_width(expected) + 1) / 2)) + 8;
    room = 2 * rank * length;
    useful = n >= sampled_from && room <= n / 2;
  }
};

} // namespace detail

/// Returns the `cut` that describes the `k` largest entries of `x`, or all nonzeros if `x` has fewer than k nonzeros.
///
/// If the length n of `x` is at least `sampled_from`, and k is small enough, a sample yields a threshold that somewhat
/// more than k magnitudes should reach. The sample consists of one value at a pseudo-random position in each of about 4
/// sqrt(n) equal parts of `x`. Only the values that reach the threshold enter the histograms. If too many values reach
/// the threshold, or too few and the threshold is above 1, all values enter the histograms. The result is always exact.
///
/// Up to `threads` threads share the pass that compares the values with the threshold; `threads` must be in
/// [1, max_threads]. Fewer threads run if the output of all threads would not fit into n / 2 values.
template <ranked T>
cut<T> largest(std::span<const T> x, std::uint64_t k, pool& memory, int threads = 1) {
  const std::size_t n = x.size();
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(k, n));
  const detail::sample_plan sample(n, wanted);
  const std::size_t parts = sample.parts, length = sample.length, room = sample.room;
  const bool sampled = sample.useful;
  if (sampled) threads = std::max(1, static_cast<int>(std::min(n / 2 / room, static_cast<std::size_t>(threads))));
  buffer<T> values(memory, sampled ? std::max(parts, static_cast<std::size_t>(threads) * room) : n / 2 + 1);
  if (sampled) {
    for (std::size_t p = 0; p < parts; ++p) values.data()[p] = x[p * length + detail::scatter_of(p, length)];
    const auto guess = detail::largest_by_digits(values.data(), parts, sample.rank, values.span()).threshold;
    const auto pass = [&](std::size_t begin, std::size_t end, T* out) {
      return copy_at_least(x.data() + begin, end - begin, guess, out, room);
    };
    const taken some = in_parts(threads, n, room, pass, values.data());
    const bool fits = some.seen == n && some.count <= room;
    if (fits && some.count >= wanted)
      return detail::largest_by_digits(values.data(), some.count, wanted, values.span());
    if (fits && guess == 1) return {1, some.count, some.count, some.count};
  }
  return detail::largest_by_digits(x.data(), n, wanted, values.span());
}

/// Moves the entries selected by `where`, a cut of `x`, to the output arrays as entries `(begin + position, value)`, in
/// ascending order of the positions, and leaves zeros in `x`. Returns the number of entries, `where.count`. `threads`
/// threads share the pass up to the last selected tie; each thread needs room for part_room(where.count, n, threads)
/// entries in the output.
template <ranked T, index_type Index>
std::size_t take_largest(std::span<T> x, const cut<T>& where, std::uint64_t begin, Index* out_i, T* out_v,
                         int threads = 1) {
  if (where.count == 0) return 0;
  std::size_t last = x.size(); // from this position on, ties are not selected
  if (where.ties < where.equal) {
    std::size_t ties = 0;
    detail::for_at_least(x.data(), last, where.threshold,
                         [&](std::size_t base, const std::uint16_t* at, std::size_t found) {
                           for (std::size_t f = 0; f < found; ++f) {
                             if (magnitude_of(x[base + at[f]]) != where.threshold || ++ties < where.ties) continue;
                             last = base + at[f] + 1;
                             return false;
                           }
                           return true;
                         });
  }
  const std::size_t room = part_room(where.count, x.size(), threads);
  const auto pass = [&](std::size_t from, std::size_t to, Index* indices, T* values) {
    return take_at_least(x.data() + from, to - from, where.threshold, begin + from, indices, values, room);
  };
  const std::size_t first = in_parts(threads, last, room, pass, out_i, out_v).count;
  if (first == where.count) return first;
  return first + take_at_least(x.data() + last, x.size() - last, static_cast<magnitude<T>>(where.threshold + 1),
                               begin + last, out_i + first, out_v + first, where.count - first)
                     .count;
}

} // namespace spar::inline v0_1::kernel
