// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Top-k by a threshold that is found now and then and reused in between (Ok-Topk, section 3.1.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/keep_largest.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/in_parts.hpp>
#include <spar/storage/kernel/largest.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace spar::selector {

/// Selects what reaches the magnitude of the k-th largest entry of an earlier call: one pass over the vector. Every
/// `period` calls, the first included, it is found anew: then exactly the k largest entries are selected, as by
/// `exact_topk`. So they are, and the period starts again, in any call where the old threshold would select more than
/// k + floor(epsilon * k) entries (still in one pass while they are no more than twice as many: the k largest are among
/// them), or fewer than k - floor(epsilon * k) and not all nonzeros. (In the authors'
/// program the number is not bounded.) Entries at the threshold are selected. Sorted by index; deterministic.
///
/// Its state changes from call to call. A caller whose call may fail copies the state, and keeps the copy on success.
struct threshold_reuse {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "threshold_reuse";

  std::uint64_t k = 0;
  double density = 0;        ///< instead of `k`: a share of the entries in [0, 1], at least one of them unless it is 0
  std::uint64_t period = 32; ///< the paper's tau'; 1 finds the threshold in every call
  double epsilon = 0.1;      ///< in [0, 1); with 0 every call selects exactly min(k, nonzeros) entries
  int threads = 1;           ///< that share the passes over the vector, in [1, max_threads]: docs/selectors.md

  /// Two numbers, which may be saved and loaded. Any threshold is safe: a wrong one is found anew.
  struct state {
    std::uint64_t threshold = 0; ///< as kernel::magnitude_of
    std::uint64_t calls = 0;     ///< since it was found, that one included; 0: find one
    bool operator==(const state&) const = default;

    template <class F>
    void shared_state(F&&) const noexcept {}
    /// Calls `f` with what each rank has for itself.
    template <class F>
    void own_state(F&& f) {
      f(threshold), f(calls);
    }
  };

  void validate(std::uint64_t n) const {
    (void)detail::amount(k, density, n);
    check_threads(threads);
    if (period == 0) raise<invalid_argument>({"the period is 0 calls; expected at least 1"});
    if (!(epsilon >= 0 && epsilon < 1)) {
      raise<invalid_argument>({"a tolerance of ", epsilon, " for the number of selected entries is not in [0, 1)"});
    }
  }

  /// How many of n entries a call selects; a schedule that keeps the largest of the sum keeps as many.
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(detail::amount(k, density, n), epsilon);
  }

  /// Calls `f(name, value)` with what all ranks must have alike.
  template <class F>
  void options(F&& f) const {
    f("k", k), f("density", density), f("period", period), f("epsilon", epsilon);
  }

  /// Replaces `now` by the state for the next call. `prepare(begin, end)` is called once for each value, before it is
  /// looked at, block by block: whoever makes the values then needs no pass of his own. It throws nothing; the threads
  /// call it at the same time.
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
    auto selected = sparse_stream<T, Index>::sparse(memory, n, rooms); // as large in every call
    Index* const indices = selected.indices().data();
    T* const values = selected.values().data();
    if (now.calls != 0 && now.calls < period) {
      const auto threshold = static_cast<kernel::magnitude<T>>(now.threshold);
      const auto pass = [&](std::size_t begin, std::size_t end, Index* out_i, T* out_v) {
        return take_part(x.data(), begin, end, threshold, out_i, out_v, room, prepare);
      };
      const kernel::taken taken = kernel::in_parts(sharing, n, room, pass, indices, values);
      if (taken.seen == n && taken.count <= limit && (taken.count >= bounds.least || threshold <= 1)) {
        ++now.calls;
        selected.shrink(taken.count);
        if (taken.count > bounds.most) keep_largest_of(selected, bounds.k, x, memory, now);
        return selected;
      }
      const kernel::coo_span<T, Index> back{{indices, taken.count}, {values, taken.count}};
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

 private:
  /// Prepares the values of [begin, end), all of them, and takes those that reach the threshold, as long as there is
  /// room.
  template <class T, class Index, class Prepare>
  static kernel::taken take_part(T* x, std::size_t begin, std::size_t end, kernel::magnitude<T> threshold,
                                 Index* indices, T* values, std::size_t room, const Prepare& prepare) {
    constexpr bool made = !std::is_same_v<Prepare, nothing_to_prepare>; // then by blocks that stay in the first cache
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

  /// The old threshold has become too low: the k largest are among the entries that reach it.
  template <kernel::ranked T, index_type Index>
  static void keep_largest_of(sparse_stream<T, Index>& selected, std::uint64_t wanted, std::span<T> x, pool& memory,
                              state& now) {
    const auto dropped = keep_largest(selected, wanted, memory);
    kernel::scatter_assign(dropped.view().entries(), 0, x.data());
    auto least = kernel::greatest_magnitude<T>;
    for (const T value : selected.values()) least = std::min(least, kernel::magnitude_of(value));
    now = {least, 1};
  }
};

} // namespace spar::selector
