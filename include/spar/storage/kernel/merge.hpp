// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merges two coordinate streams without branches on single indices (the sparse sum of SparCML, section 5.1).
#pragma once

#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/merge_avx2.hpp>
#include <spar/storage/kernel/slice.hpp>

#include <cstddef>
#include <cstring>

namespace spar::inline v0_1::kernel {

namespace detail {

/// The number of entries that `merger` tests at once, to find runs of entries from only one operand, and runs of
/// indices that are equal in both operands.
inline constexpr std::size_t merge_run = 64;
/// The maximum number of input entries that `merger::block` merges at a time in four lanes. With 4096 entries, the
/// results of the lanes are still in the first-level cache when the gaps between them are closed.
inline constexpr std::size_t merge_block = 4096;

/// The progress of a merge: the number of entries read from the left and from the right operand, and the number of
/// entries written.
struct merge_position {
  std::size_t left = 0, right = 0, out = 0;
  constexpr std::size_t taken() const { return left + right; }
};

/// Returns how many of the ascending `indices[0, count)` are below `bound`, using a galloping search. The first
/// `merge_run` indices must be below `bound`.
template <class Index>
[[gnu::noinline]] std::size_t run_length(const Index* indices, std::size_t count, Index bound) {
  std::size_t low = merge_run, step = merge_run;
  while (low + step <= count && indices[low + step - 1] < bound) {
    low += step;
    step *= 2;
  }
  return low + lower_bound(std::span<const Index>(indices + low, indices + std::min(count, low + step)), bound);
}

/// The operands and the output of a merge. If `fold` is true, two entries with equal indices become one entry;
/// otherwise both entries are written, the left one first. `fold` is not a template parameter, so that only the
/// innermost loops are compiled twice.
template <class T, class Index, class Op>
struct merger {
  const Index* __restrict left_index;
  const T* __restrict left_value;
  const Index* __restrict right_index;
  const T* __restrict right_value;
  Index* __restrict out_index;
  T* __restrict out_value;
  Op op;
  bool fold;

  /// Writes one entry and advances `at`; neither operand may be at its end.
  template <bool Fold>
  [[gnu::always_inline]] inline void step(merge_position& at) const {
    const Index a = left_index[at.left], b = right_index[at.right];
    const T x = left_value[at.left], y = right_value[at.right];
    out_index[at.out] = b < a ? b : a;
    if constexpr (Fold)
      store_merged(out_value + at.out, a, b, x, y, op(x, y));
    else
      store_select(out_value + at.out, a <= b, x, y);
    at.left += a <= b;
    at.right += Fold ? b <= a : b < a;
    ++at.out;
  }
  /// Takes `count` merge steps at each of the positions `at`, alternating between the positions so that their loads
  /// overlap.
  template <class... Positions>
  [[gnu::always_inline]] inline void steps(std::size_t count, Positions&... at) const {
    if (fold)
      for (; count > 0; --count) (step<true>(at), ...);
    else
      for (; count > 0; --count) (step<false>(at), ...);
  }

  /// Returns the position that follows `from` by `taken` input entries, or by `taken` + 1 input entries if `fold` is
  /// true and the position would otherwise separate two equal indices. Each operand must have more than `taken` entries
  /// left. Uses a binary search along the diagonal ("merge path").
  [[gnu::noinline]] merge_position split(merge_position from, std::size_t taken) const {
    const Index* left = left_index + from.left;
    const Index* right = right_index + from.right;
    std::size_t low = 0;
    for (std::size_t length = taken; length > 0;) {
      const std::size_t half = length / 2;
      const bool more = left[low + half] <= right[taken - 1 - low - half];
      low += more ? half + 1 : 0;
      length = more ? length - half - 1 : half;
    }
    std::size_t high = taken - low;
    if (fold && low > 0 && right[high] == left[low - 1]) ++high;
    return {from.left + low, from.right + high, from.out + low + high};
  }

  /// Merges `taken` input entries in four interleaved lanes, because a single lane would wait for its own loads.
  /// `taken` must be a multiple of four. `by_avx2`: whether a lane takes eight entries at a time.
  merge_position block(merge_position from, std::size_t taken, [[maybe_unused]] bool by_avx2) const {
    const merger self = *this; // a local copy, because stores of values might alias *this
    const merge_position m1 = split(from, taken / 4), m2 = split(from, taken / 2), m3 = split(from, taken / 4 * 3);
    const merge_position m4 = split(from, taken);
    merge_position a = from, b = m1, c = m2, d = m3;
    const auto least_left = [&] {
      return std::min(std::min(m1.taken() - a.taken(), m2.taken() - b.taken()),
                      std::min(m3.taken() - c.taken(), m4.taken() - d.taken()));
    };
    if constexpr (merges_by_avx2<T, Index>) {
      while (by_avx2) {
        const std::size_t safe = least_left() / avx2_step;
        if (safe == 0) break;
        merge_position lanes[4] = {a, b, c, d};
        merge_avx2::steps(self, safe, lanes);
        a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
      }
    }
    for (;;) {
      // Computes how many steps each lane can take without a check for its end: a step reads at most two entries if
      // `fold` is true, and one entry otherwise.
      const std::size_t least = least_left();
      const std::size_t safe = self.fold ? least / 2 : least;
      if (safe < 8) break;
      self.steps(safe, a, b, c, d);
    }
    // Merges the rest of each lane. A step may compare an entry with one after the lane's end, but merges the entries
    // before the end first. No step needs to check for the end of an operand, because each operand has more than
    // `taken` entries at the start of the block.
    finish(a, m1);
    finish(b, m2);
    finish(c, m3);
    finish(d, m4);
    close(a.out, m1.out, b.out);
    close(a.out, m2.out, c.out);
    close(a.out, m3.out, d.out);
    return {m4.left, m4.right, a.out};
  }

  /// Takes `count` merge steps at the position `at`.
  [[gnu::noinline]] void lane(merge_position& at, std::size_t count) const {
    const merger self = *this;
    merge_position here = at; // a local copy, because stores of values might alias `at`
    self.steps(count, here);
    at = here;
  }
  /// Merges the last entries of a lane, from `at` to `end`.
  void finish(merge_position& at, merge_position end) const {
    while (at.taken() < end.taken()) lane(at, (end.taken() - at.taken() + 1) / 2);
  }

  /// Closes a gap in the output: moves the entries [first, last) down to position `end`, and advances `end` past them.
  [[gnu::noinline]] void close(std::size_t& end, std::size_t first, std::size_t last) const {
    if (end != first && last != first) {
      std::memmove(static_cast<void*>(out_index + end), out_index + first, (last - first) * sizeof(Index));
      std::memmove(static_cast<void*>(out_value + end), out_value + first, (last - first) * sizeof(T));
    }
    end += last - first;
  }

  void copy_left(merge_position& at, std::size_t count) const {
    copy<Index>(out_index + at.out, left_index + at.left, count);
    copy<T>(out_value + at.out, left_value + at.left, count);
    at.left += count;
    at.out += count;
  }

  void copy_right(merge_position& at, std::size_t count) const {
    copy<Index>(out_index + at.out, right_index + at.right, count);
    copy<T>(out_value + at.out, right_value + at.right, count);
    at.right += count;
    at.out += count;
  }

  /// Whether the next `merge_run` indices are the same in both operands.
  bool same_run(merge_position at) const {
    const Index* left = left_index + at.left;
    const Index* right = right_index + at.right;
    return left[0] == right[0] && left[merge_run - 1] == right[merge_run - 1] &&
           std::memcmp(left, right, merge_run * sizeof(Index)) == 0;
  }

  void fold_run(merge_position& at) const {
    const T* __restrict left = left_value + at.left;
    const T* __restrict right = right_value + at.right;
    T* __restrict out = out_value + at.out;
    for (std::size_t e = 0; e < merge_run; ++e) out[e] = op(left[e], right[e]);
    copy<Index>(out_index + at.out, left_index + at.left, merge_run);
    at.left += merge_run;
    at.right += merge_run;
    at.out += merge_run;
  }

  /// Whether `merge_avx2` can merge all entries.
  [[nodiscard]] bool can_use_avx2([[maybe_unused]] std::size_t left_count,
                                  [[maybe_unused]] std::size_t right_count) const {
    if constexpr (merges_by_avx2<T, Index>)
      return left_count > 0 && right_count > 0 && has_avx2() &&
             (left_index[left_count - 1] | right_index[right_count - 1]) >> 31 == 0;
    else
      return false;
  }

  std::size_t run(std::size_t left_count, std::size_t right_count) const {
    const bool by_avx2 = can_use_avx2(left_count, right_count);
    merge_position at;
    while (at.left < left_count && at.right < right_count) {
      const std::size_t more_left = left_count - at.left, more_right = right_count - at.right;
      const Index a = left_index[at.left], b = right_index[at.right];
      if (more_left >= merge_run && left_index[at.left + merge_run - 1] < b) {
        copy_left(at, run_length(left_index + at.left, more_left, b));
        continue;
      }
      if (more_right >= merge_run && right_index[at.right + merge_run - 1] < a) {
        copy_right(at, run_length(right_index + at.right, more_right, a));
        continue;
      }
      const std::size_t least = std::min(more_left, more_right);
      if (fold && least >= merge_run && same_run(at)) {
        fold_run(at);
        continue;
      }
      if (least > 4 * merge_run) {
        at = block(at, std::min(merge_block, (least - 1) / 4 * 4), by_avx2);
        continue;
      }
      lane(at, std::min(least, merge_run));
    }
    copy_left(at, left_count - at.left);
    copy_right(at, right_count - at.right);
    return at.out;
  }
};

} // namespace detail

/// Merges two streams. If both streams have an entry at an index, the value at this index is `op(left, right)`; all
/// other entries are copied bit for bit. The output arrays need room for `left.size() + right.size()` entries, and must
/// not overlap the operands. Returns the number of entries written. Runs of entries from one operand are copied as a
/// whole, and runs of equal indices are folded without a merge step per entry.
template <element T, index_type Index, reduction<T> Op>
std::size_t merge(coo_span<T, Index> left, coo_span<T, Index> right, Index* out_i, T* out_v, Op op) {
  const detail::merger<T, Index, Op> work{
      left.indices.data(), left.values.data(), right.indices.data(), right.values.data(), out_i, out_v, op, true};
  return work.run(left.size(), right.size());
}

} // namespace spar::inline v0_1::kernel
