// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bootstrap behind the verdicts.
#include "verdict.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace perf {

namespace {

constexpr std::size_t resamples = 2000;
/// Fewer values cannot give an interval of this confidence: all of n values are above the true median with probability
/// 2^-n.
constexpr std::size_t fewest = 6;

double median_of(std::vector<double>& x) {
  const auto half = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), half, x.end());
  if (x.size() % 2 == 1) return *half;
  return (*half + *std::max_element(x.begin(), half)) / 2;
}

double resampled_median(std::span<const double> x, std::vector<double>& sample, std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> pick(0, x.size() - 1);
  sample.resize(x.size());
  for (double& value : sample) value = x[pick(random)];
  return median_of(sample);
}

/// Sets the interval of `found` to the quantiles of `statistic`, which is called for each resample.
template <class Statistic>
verdict with_interval(verdict found, std::size_t count, Statistic statistic) {
  if (count < fewest) {
    found.lowest = 0;
    found.highest = std::numeric_limits<double>::infinity();
    return found;
  }
  std::vector<double> all(resamples);
  for (double& value : all) value = statistic();
  std::sort(all.begin(), all.end());
  const auto outside = static_cast<std::size_t>(std::floor(resamples * (1 - confidence) / 2));
  found.lowest = all[outside];
  found.highest = all[resamples - 1 - outside];
  return found;
}

} // namespace

std::string_view verdict::text() const noexcept {
  return highest < 1 ? "faster" : lowest > 1 ? "slower" : "cannot tell";
}

verdict compare_paired(std::span<const double> times, std::span<const double> reference, std::uint64_t seed) {
  std::vector<double> ratios(times.size());
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = times[i] / reference[i];
  std::vector<double> sample = ratios;
  const verdict found{.ratio = median_of(sample)};
  std::mt19937_64 random(seed);
  return with_interval(found, ratios.size(), [&] { return resampled_median(ratios, sample, random); });
}

verdict compare_runs(std::span<const double> times, std::span<const double> before, std::uint64_t seed) {
  std::vector<double> sample(times.begin(), times.end()), sample_before(before.begin(), before.end());
  const verdict found{.ratio = median_of(sample) / median_of(sample_before)};
  std::mt19937_64 random(seed);
  return with_interval(found, std::min(times.size(), before.size()), [&] {
    return resampled_median(times, sample, random) / resampled_median(before, sample_before, random);
  });
}

} // namespace perf
