// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether one system is faster than another, in spite of noise.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace spar::perf {

/// The ratio of two systems' times with its confidence interval.
struct verdict {
  double ratio = 1;
  double lowest = 1, highest = 1; ///< the interval

  /// "faster" or "slower" if the whole interval is below or above 1, else "cannot tell".
  [[nodiscard]] std::string_view text() const noexcept;
};

/// Coverage of the confidence intervals.
inline constexpr double confidence = 0.99;

/// Compares two systems whose calls alternated: `times[i]` and `reference[i]` are the seconds of iteration i. The ratio
/// is the median of the iterations' ratios, so that a disturbance of the machine that lasts for several calls affects
/// both systems. The interval is the exact one between two order statistics, which needs no assumption on the
/// distribution (Conover 1999, section 3.2). Both spans must have the same length. With fewer than 8 iterations the
/// interval is unbounded.
verdict compare_paired(std::span<const double> times, std::span<const double> reference);

/// Compares the mean times of two systems whose calls alternated, as `compare_paired` does. With late ranks, the time
/// of an iteration depends on who is late, so the mean is what a user waits for. The ratio is that of the means, and
/// the interval that of the percentile bootstrap of pairs (Efron and Tibshirani 1993, section 13.3), with random
/// numbers from `seed`; unbounded with fewer than 8 iterations.
verdict compare_means(std::span<const double> times, std::span<const double> reference, std::uint64_t seed);

/// Compares the times of two runs, which need not have the same number of iterations. The ratio is that of the medians,
/// and the interval that of the percentile bootstrap, with random numbers from `seed`; unbounded if a run has fewer
/// than 8 iterations. The interval does not account for other differences between the runs, such as other programs on
/// the machine.
verdict compare_runs(std::span<const double> times, std::span<const double> before, std::uint64_t seed);

} // namespace spar::perf
