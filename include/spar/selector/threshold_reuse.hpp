// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selects about the k largest entries by a threshold, which one call finds and the following calls reuse (Ok-Topk,
// section 3.1.3).
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::selector {

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

    void shared_state(auto&&) const noexcept {}
    /// Calls `f` with each number of the state that may differ between ranks.
    void own_state(auto&& f) { f(threshold), f(calls); }
  };

  void validate(std::uint64_t n) const {
    (void)detail::amount(k, density, n);
    check_threads(threads);
    if (period == 0) raise<invalid_argument>({"the selector's period is 0 calls; expected at least 1"});
    spar::detail::check_number(epsilon, {0, 1 - 0x1p-53, "a value in [0, 1)"}, "the selector's epsilon");
  }

  /// Returns the number of entries that a call selects out of n, with the tolerance `epsilon`. A schedule that keeps
  /// the largest entries of the sum keeps about the same number of entries. Throws `invalid_argument` if neither `k`
  /// nor `density` is set, if both are not 0, if `k` exceeds n, or if `density` is not in [0, 1].
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(detail::amount(k, density, n), epsilon);
  }

  /// Calls `f(name, value)` for each option that must be equal on all ranks.
  void options(auto&& f) const { detail::amount_option(f, k, density), f("period", period), f("epsilon", epsilon); }

  /// Selects entries from `x`, and replaces `now` by the state for the next call. Calls `prepare(begin, end)` once for
  /// each block of values before the selector reads the block, so a caller that computes the values in `prepare` needs
  /// no separate pass over `x`.
  template <index_type Index, class Work, kernel::ranked T, class Prepare>
  task<sparse_stream<T, Index>> operator()(Work& work, std::span<T> x, state& now, const Prepare& prepare) const {
    validate(x.size());
    const topk_bounds bounds = this->bounds(x.size());
    const std::uint64_t room = std::min<std::uint64_t>(bounds.k + bounds.most, x.size()); // of every call's stream
    kernel::magnitude<T> least = 0;
    if (now.calls == 0 || now.calls >= period) {
      work.prepare_all(prepare, x.size(), threads);
    } else {
      const auto threshold = static_cast<kernel::magnitude<T>>(now.threshold);
      std::uint64_t reached = 0;
      auto mine = co_await work.template take_at_least<Index>(x, threshold, room, prepare, threads, &reached);
      if (reached <= room && (reached >= bounds.least || now.threshold <= 1)) {
        ++now.calls;
        if (reached > bounds.most) {
          const auto others = co_await work.keep_largest(mine, bounds.k, &least);
          work.residual(x).assign(others.view().entries());
          now = {least, 1};
        }
        co_return mine;
      }
      work.residual(x).assign(mine.view().entries());
    }
    auto mine = co_await work.template take_largest<Index>(x, bounds.k, threads, &least, room);
    now = {least, 1};
    co_return mine;
  }
};

} // namespace spar::inline v0_1::selector
