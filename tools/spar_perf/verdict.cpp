// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The confidence intervals behind the verdicts.
#include "verdict.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace spar::perf {

namespace {

constexpr std::size_t resamples = 2000;
/// With fewer values, no interval has this confidence: all n values lie on one side of the median with probability
/// 2 * 2^-n.
constexpr std::size_t fewest = 8;

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

/// The interval of the percentile bootstrap: `resampled()` is the ratio of one resample.
template <class Resampled>
verdict bootstrap(double ratio, Resampled resampled) {
  std::vector<double> all(resamples);
  for (double& value : all) value = resampled();
  std::sort(all.begin(), all.end());
  const auto beyond = static_cast<std::size_t>(std::floor(resamples * (1 - confidence) / 2));
  return {ratio, all[beyond], all[resamples - 1 - beyond]};
}

verdict unbounded(double ratio) { return {ratio, 0, std::numeric_limits<double>::infinity()}; }

/// The largest k for which at most k of n values lie below their true median with a probability of at most (1 -
/// confidence) / 2; the values with the numbers k and n - 1 - k, from 0 in ascending order, are then the interval.
std::size_t outside(std::size_t n) {
  double log_probability = -static_cast<double>(n) * std::log(2.0), sum = 0; // of exactly k values
  for (std::size_t k = 0;; ++k) {
    sum += std::exp(log_probability);
    if (sum > (1 - confidence) / 2) return k - 1;
    log_probability += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1));
  }
}

} // namespace

std::string_view verdict::text() const noexcept {
  return highest < 1 ? "faster" : lowest > 1 ? "slower" : "cannot tell";
}

verdict compare_paired(std::span<const double> times, std::span<const double> reference) {
  std::vector<double> ratios(times.size());
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = times[i] / reference[i];
  const double ratio = median_of(ratios);
  if (ratios.size() < fewest) return unbounded(ratio);
  std::sort(ratios.begin(), ratios.end());
  const std::size_t k = outside(ratios.size());
  return {ratio, ratios[k], ratios[ratios.size() - 1 - k]};
}

verdict compare_means(std::span<const double> times, std::span<const double> reference, std::uint64_t seed) {
  const double ratio =
      std::accumulate(times.begin(), times.end(), 0.0) / std::accumulate(reference.begin(), reference.end(), 0.0);
  if (times.size() < fewest) return unbounded(ratio);
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::size_t> pick(0, times.size() - 1);
  return bootstrap(ratio, [&] {
    double sum = 0, sum_of_reference = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const std::size_t drawn = pick(random);
      sum += times[drawn];
      sum_of_reference += reference[drawn];
    }
    return sum / sum_of_reference;
  });
}

verdict compare_runs(std::span<const double> times, std::span<const double> before, std::uint64_t seed) {
  std::vector<double> sample(times.begin(), times.end()), sample_before(before.begin(), before.end());
  const double ratio = median_of(sample) / median_of(sample_before);
  if (std::min(times.size(), before.size()) < fewest) return unbounded(ratio);
  std::mt19937_64 random(seed);
  return bootstrap(
      ratio, [&] { return resampled_median(times, sample, random) / resampled_median(before, sample_before, random); });
}

} // namespace spar::perf
