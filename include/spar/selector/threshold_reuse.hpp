// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selects about the k largest entries by a threshold, which one call finds and the following calls reuse (Ok-Topk,
// section 3.1.3).
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/keep_largest.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/in_parts.hpp>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/residual_view.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace spar::selector {

/// Selects the entries whose magnitude is at least a threshold, in one pass over the vector. The threshold is the k-th
/// largest magnitude of an earlier call. The first call and then every `period`-th call find a new threshold, and
/// select exactly the k largest entries, like `exact_topk`. The result is sorted by index, and deterministic.
///
/// A call also finds a new threshold, and starts a new period, if the old threshold would select too many or too few
/// entries: more than k + floor(epsilon * k), or fewer than k - floor(epsilon * k) although unselected nonzeros remain.
/// If the old threshold selects too many entries, but at most 2 k + floor(epsilon * k), the call still takes one pass,
/// because the selected entries include the k largest. In contrast, the program of the paper's authors does not bound
/// the number of selected entries.
///
/// Each call changes the state. A caller whose collective may fail passes a copy of the state, and keeps the copy on
/// success.
struct threshold_reuse {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "threshold_reuse";

  std::uint64_t k = unset; ///< the number of entries that is aimed at; unset if `density` is given
  double density = 0;      ///< if not 0, the share of n, in [0, 1], but at least one entry; `k` must then be unset or 0
  std::uint64_t period = 32; ///< number of calls per threshold (tau' in the paper); 1: every call finds a threshold
  double epsilon = 0.1; ///< tolerance for k, in [0, 1); with 0, every call selects exactly min(k, nonzeros) entries
  int threads = 1;      ///< number of threads that share a call, in [1, max_threads]; see docs/guide/selectors.md

  /// The state between calls, which a program can save and load. A program may load any threshold, because the selector
  /// replaces a threshold that selects too many or too few entries.
  struct state {
    std::uint64_t threshold = 0; ///< the least magnitude selected, as returned by kernel::magnitude_of
    std::uint64_t calls = 0;     ///< calls that used `threshold`, including the call that found it; 0: no threshold yet
    bool operator==(const state&) const = default; ///< whether both states are equal

    template <class F>
    void shared_state(F&&) const noexcept {}
    /// Calls `f` with each number of the state that may differ between ranks.
    template <class F>
    void own_state(F&& f) {
      f(threshold), f(calls);
    }
  };

  void validate(std::uint64_t n) const {
    (void)detail::amount(k, density, n);
    check_threads(threads);
    if (period == 0) raise<invalid_argument>({"the selector's period is 0 calls; expected at least 1"});
    spar::detail::check_number(epsilon, {0, 1 - 0x1p-53, "a value in [0, 1)"}, "the selector's epsilon");
  }

  /// Returns the number of entries that a call selects out of n, with the tolerance `epsilon`. A schedule that keeps
  /// the largest entries of the sum keeps about the same number of entries. Throws
  /// `invalid_argument` if neither `k` nor `density` is set, if both are not 0, if `k` exceeds n, or if `density` is
  /// not in [0, 1].
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(detail::amount(k, density, n), epsilon);
  }

  /// Whether the next call uses the threshold of `now`.
  [[nodiscard]] bool reuses(const state& now) const noexcept { return now.calls != 0 && now.calls < period; }
  /// Whether `threshold`, which `count` entries reach, selects neither too few nor too many entries by `bounds`;
  /// otherwise a call finds a new threshold.
  [[nodiscard]] static bool suits(std::uint64_t threshold, std::uint64_t count, const topk_bounds& bounds) noexcept {
    return count <= bounds.k + bounds.most && (count >= bounds.least || threshold <= 1);
  }

  /// Calls `f(name, value)` for each option that must be equal on all ranks.
  template <class F>
  void options(F&& f) const {
    detail::amount_option(f, k, density), f("period", period), f("epsilon", epsilon);
  }

  /// Selects entries from `x`, and replaces `now` by the state for the next call. Calls `prepare(begin, end)` once for
  /// each block of values before the selector reads the block, so a caller that computes the values in `prepare` needs
  /// no separate pass over `x`. `prepare` must not throw, and several threads may call it at the same time.
  template <index_type Index = std::uint32_t, kernel::ranked T, class Prepare = nothing_to_prepare>
  sparse_stream<T, Index> operator()(std::span<T> x, pool& memory, state& now, const Prepare& prepare = {}) const {
    static_assert(std::is_nothrow_invocable_v<const Prepare&, std::size_t, std::size_t>);
    validate(x.size());
    const std::size_t n = x.size();
    const int sharing = spar::detail::useful_threads(threads, n);
    const topk_bounds bounds = this->bounds(n);
    const std::size_t limit = std::min<std::uint64_t>(bounds.k + bounds.most, n);
    const std::size_t room = kernel::part_room(limit, n, sharing);
    const std::size_t rooms = static_cast<std::size_t>(sharing) * room;
    // Allocates the same size in every call, so that the pool needs no new memory.
    auto selected = sparse_stream<T, Index>::sparse(memory, n, rooms);
    Index* const indices = selected.indices().data();
    T* const values = selected.values().data();
    if (reuses(now)) {
      const auto threshold = static_cast<kernel::magnitude<T>>(now.threshold);
      const auto pass = [&](std::size_t begin, std::size_t end, Index* out_i, T* out_v) {
        return take_part(x.data(), begin, end, threshold, out_i, out_v, room, prepare);
      };
      const kernel::taken taken = kernel::in_parts(sharing, n, room, pass, indices, values);
      if (taken.seen == n && suits(now.threshold, taken.count, bounds)) {
        ++now.calls;
        selected.shrink(taken.count);
        if (taken.count > bounds.most) keep_largest_of(selected, bounds.k, residual_view(x), memory, now);
        return selected;
      }
      const coo_span<T, Index> back{{indices, taken.count}, {values, taken.count}};
      kernel::scatter_assign(back, 0, x.data());
    } else {
      spar::detail::in_parallel(0, sharing, [&](int part) {
        prepare(spar::detail::part_begin(n, part, sharing), spar::detail::part_begin(n, part + 1, sharing));
      });
    }
    const auto where = kernel::largest<T>(x, bounds.k, memory, sharing);
    selected.shrink(kernel::take_largest(x, where, 0, indices, values, sharing));
    now = {where.threshold, 1};
    return selected;
  }

  /// Corrects a selection whose threshold was too low: keeps the `wanted` largest of the selected entries, moves the
  /// other entries back to the values `x` from which they come, and stores the least magnitude kept as the new
  /// threshold in `now`.
  template <kernel::ranked T, index_type Index>
  static void keep_largest_of(sparse_stream<T, Index>& selected, std::uint64_t wanted, residual_view<T> x, pool& memory,
                              state& now) {
    const auto dropped = keep_largest(selected, wanted, memory);
    x.assign(dropped.view().entries());
    auto least = kernel::greatest_magnitude<T>;
    for (const T value : selected.values()) least = std::min(least, kernel::magnitude_of(value));
    now = {least, 1};
  }

 private:
  /// Calls `prepare` for all values of [begin, end), and moves the values whose magnitude is at least `threshold` to
  /// the output. Stops moving when the output, which has room for `room` entries, is full.
  template <class T, class Index, class Prepare>
  static kernel::taken take_part(T* x, std::size_t begin, std::size_t end, kernel::magnitude<T> threshold,
                                 Index* indices, T* values, std::size_t room, const Prepare& prepare) {
    // If `prepare` computes the values, processes blocks of 4 KiB, so that the computed values are still in the
    // first-level cache when the selector reads them.
    constexpr bool made = !std::is_same_v<Prepare, nothing_to_prepare>;
    kernel::taken all;
    bool fits = true;
    for (std::size_t next = begin; begin < end; begin = next) {
      next = made ? begin + std::min(4096 / sizeof(T), end - begin) : end;
      prepare(begin, next);
      if (!fits) continue;
      const auto some = kernel::take_at_least(x + begin, next - begin, threshold, begin, indices + all.count,
                                              values + all.count, room - all.count);
      all.count += some.count;
      all.seen += some.seen;
      fits = some.seen == next - begin;
    }
    return all;
  }
};

} // namespace spar::selector
