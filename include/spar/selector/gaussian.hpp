// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gaussiank: selects entries by a threshold computed from the mean and the standard deviation, as if the entries had a
// normal distribution (Ok-Topk, sections 2 and 5.4).
#pragma once

#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/largest.hpp>

#include <cstddef>
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
  template <index_type Index, kernel::ranked T, class Prepare>
    requires(!is_row<T>)
  ready<sparse_stream<T, Index>> operator()(const host_work& work, std::span<T> x, no_state&,
                                            const Prepare& prepare) const {
    const std::uint64_t wanted = detail::amount(k, density, x.size());
    prepare(0, x.size());
    if (wanted == 0) return ready(sparse_stream<T, Index>::sparse(work.memory(), x.size(), 0));
    double t = normal_threshold<T>(x, static_cast<double>(wanted) / static_cast<double>(x.size()));
    std::size_t count = kernel::count_at_least(x.data(), x.size(), nearest<T>(t));
    const std::uint64_t least = wanted - wanted / 4;
    if (count < least) {
      // Divides t by 1.02 until t is at most `enough`, the largest threshold that selects at least `least` entries (all
      // nonzeros if there are fewer). If a division leaves t unchanged because t is too close to zero, sets t to 0.
      const auto enough = kernel::largest<T>(x, least, work.memory()).threshold;
      for (double last = 0; nearest<T>(t) > enough && t != last; t /= 1.02) last = t;
      if (nearest<T>(t) > enough) t = 0;
      count = kernel::count_at_least(x.data(), x.size(), nearest<T>(t));
    }
    auto selected = sparse_stream<T, Index>::sparse(work.memory(), x.size(), count);
    kernel::take_at_least(x.data(), x.size(), nearest<T>(t), 0, selected.indices().data(), selected.values().data(),
                          count);
    return ready(std::move(selected));
  }

 private:
  template <class T>
  static bool is_finite(T x) {
    if constexpr (is_floating<T>)
      return kernel::magnitude_of(x) < kernel::magnitude_of(static_cast<T>(__builtin_inf()));
    else
      return true;
  }

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
  template <class T>
  static double normal_threshold(std::span<const T> x, double share) {
    constexpr std::size_t lanes = 8; // independent sums hide latency, and are always added in the same order
    double sum[lanes] = {}, squares[lanes] = {}, count[lanes] = {};
    for (std::size_t e = 0; e < x.size(); ++e) {
      const bool finite = is_finite(x[e]);
      const double value = finite ? static_cast<double>(x[e]) : 0;
      sum[e % lanes] += value;
      squares[e % lanes] += value * value;
      count[e % lanes] += finite ? 1 : 0;
    }
    for (std::size_t l = 1; l < lanes; ++l) sum[0] += sum[l], squares[0] += squares[l], count[0] += count[l];
    const double mean = count[0] == 0 ? 0 : sum[0] / count[0];
    const double variance = count[0] == 0 ? 0 : squares[0] / count[0] - mean * mean;
    double low = 0, high = 40; // bounds of z: P(|normal| > 40 deviations) is 0 in double precision
    // Uses compiler builtins, because <cmath>, with its special functions, costs every program 0.1 s of compile time.
    for (int i = 0; i < 60; ++i) {
      const double z = (low + high) / 2;
      (__builtin_erfc(z / std::numbers::sqrt2) > share ? low : high) = z;
    }
    const double t = __builtin_fabs(mean) + high * __builtin_sqrt(variance > 0 ? variance : 0);
    return t < std::numeric_limits<double>::max() ? t : std::numeric_limits<double>::max();
  }
};

} // namespace spar::inline v0_1::selector
