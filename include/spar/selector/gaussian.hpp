// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gaussiank: selects entries by a threshold computed from the mean and the standard deviation, as if the entries had a
// normal distribution (Ok-Topk, sections 2 and 5.4).
#pragma once

#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/moments.hpp>

#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string_view>

namespace spar::inline v0_1::selector {

/// Selects the entries whose magnitude reaches a threshold t = |mean| + z * deviation. The factor z is chosen such that
/// a normal variable is farther than z deviations from its mean with probability k/n. If t selects fewer than 3/4 k
/// entries, the selector repeatedly divides t by 1.02 until t selects at least 3/4 k entries, or all nonzeros. The
/// number of selected entries has no upper bound. Does not select rows, whose norms are not normal.
///
/// The mean and the standard deviation are those of the finite entries, and are computed in double precision; NaN and
/// infinity are always selected. The result is sorted by index, and deterministic.
struct gaussian {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "gaussian";

  std::uint64_t k = unset; ///< the number of entries that is aimed at; unset if `density` is given
  double density = 0;      ///< if not 0, the share of n, in [0, 1], but at least one entry; `k` must then be unset or 0

  void validate(std::uint64_t n) const { (void)detail::amount(k, density, n); }

  /// Returns the number of entries that a call should select out of n, with a tolerance of k / 4. A schedule that keeps
  /// the largest entries of the sum keeps about the same number of entries. Throws `invalid_argument` if neither `k`
  /// nor `density` is set, if both are not 0, if `k` exceeds n, or if `density` is not in [0, 1].
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(detail::amount(k, density, n), 0.25);
  }

  /// Calls `f(name, value)` for each option that must be equal on all ranks.
  void options(auto&& f) const { detail::amount_option(f, k, density); }

  /// Moves entries from `x`, whose values are not rows, to a stream. Throws `invalid_argument` like `validate`.
  template <index_type Index, class Work, kernel::ranked T, class Prepare>
    requires(!is_row<T>)
  task<sparse_stream<T, Index>> operator()(Work& work, std::span<T> x, no_state&, const Prepare& prepare) const {
    const std::uint64_t wanted = detail::amount(k, density, x.size());
    prepare(0, x.size());
    if (wanted == 0) co_return sparse_stream<T, Index>::sparse(work.memory(), x.size(), 0);
    const std::span<const T> values = x;
    const kernel::moments of_all = co_await work.moments_of(values);
    double t = normal_threshold(of_all, static_cast<double>(wanted) / static_cast<double>(x.size()));
    std::uint64_t count = co_await work.count_at_least(values, nearest<T>(t));
    const std::uint64_t least = wanted - wanted / 4;
    if (count < least) {
      // Divides t by 1.02 until t is at most `enough`, the largest threshold that selects at least `least` entries (all
      // nonzeros if there are fewer). If a division leaves t unchanged because t is too close to zero, sets t to 0.
      const kernel::magnitude<T> enough = co_await work.kth_largest(values, least);
      for (double last = 0; nearest<T>(t) > enough && t != last; t /= 1.02) last = t;
      if (nearest<T>(t) > enough) t = 0;
      count = co_await work.count_at_least(values, nearest<T>(t));
    }
    const nothing_to_prepare prepared;
    auto mine = co_await work.template take_at_least<Index>(x, nearest<T>(t), count, prepared);
    co_return mine;
  }

 private:
  /// Converts t >= 0 to a magnitude of T. For an integer T, returns at most the greatest magnitude of T.
  template <class T>
  static kernel::magnitude<T> nearest(double t) {
    if constexpr (is_floating<T>)
      return kernel::magnitude_of(static_cast<T>(t));
    else
      return t < static_cast<double>(kernel::greatest_magnitude<T>) ? static_cast<kernel::magnitude<T>>(t)
                                                                    : kernel::greatest_magnitude<T>;
  }

  /// Returns |mean| + z * deviation, but at most the largest finite double. z is chosen such that a normal variable is
  /// farther than z deviations from its mean with probability `share`.
  static double normal_threshold(const kernel::moments& of_all, double share) {
    double low = 0, high = 40; // bounds of z: P(|normal| > 40 deviations) is 0 in double precision
    // Uses compiler builtins, because <cmath>, with its special functions, costs every program 0.1 s of compile time.
    for (int i = 0; i < 60; ++i) {
      const double z = (low + high) / 2;
      (__builtin_erfc(z / std::numbers::sqrt2) > share ? low : high) = z;
    }
    const double t = __builtin_fabs(of_all.mean()) + high * of_all.deviation();
    return t < std::numeric_limits<double>::max() ? t : std::numeric_limits<double>::max();
  }
};

} // namespace spar::inline v0_1::selector
