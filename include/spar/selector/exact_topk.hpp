// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selects exactly the k largest entries by magnitude (SparCML, section 2.2 and algorithm 1).
#pragma once

#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::selector {

/// Selects the `k` entries of largest magnitude, or all nonzeros if there are fewer than k nonzeros. Among equal
/// magnitudes, the entries with the lowest indices are selected; NaN ranks above infinity. The result is sorted by
/// index, and deterministic.
struct exact_topk {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "exact_topk";

  std::uint64_t k = unset; ///< the number of entries selected; unset if `density` is given
  double density = 0;      ///< if not 0, the share of n, in [0, 1], but at least one entry; `k` must then be unset or 0
  int threads = 1;         ///< number of threads that share a call, in [1, max_threads]; see docs/guide/selectors.md

  void validate(std::uint64_t n) const {
    (void)detail::amount(k, density, n);
    check_threads(threads);
  }

  /// Returns the number of entries that a call selects out of n, provided that there are enough nonzeros. A schedule
  /// that keeps the largest entries of the sum keeps the same number of entries. Throws `invalid_argument` if neither
  /// `k` nor `density` is set, if both are not 0, if `k` exceeds n, or if `density` is not in [0, 1].
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(detail::amount(k, density, n), 0);
  }

  /// Calls `f(name, value)` for each option that must be equal on all ranks.
  void options(auto&& f) const { detail::amount_option(f, k, density); }

  template <index_type Index, class Work, kernel::ranked T, class Prepare>
  auto operator()(Work& work, std::span<T> x, no_state&, const Prepare& prepare) const ->
      typename Work::template answer<sparse_stream<T, Index>> {
    validate(x.size());
    prepare(0, x.size());
    return work.template take_largest<Index>(x, detail::amount(k, density, x.size()), threads);
  }
};

} // namespace spar::inline v0_1::selector
