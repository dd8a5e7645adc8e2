// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The contribution of each rank: positions and values of its nonzero entries. A pure function of seed and rank (and
// step).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace spar::perf {

/// - uniform: k distinct indices of [0, n), uniformly at random and independently on each rank;
/// - clustered: runs of 64 consecutive indices that begin at distinct random multiples of 64;
/// - identical: the same uniform set on every rank;
/// - disjoint: rank r has k distinct random indices that are congruent to r modulo P;
/// - zipf: the probability of an index falls like 1 / j, where j is its place in a random order that all ranks share;
///   repeated indices are drawn again;
/// - drift, gaussian, heavy_0, heavy_50, heavy_100: all n values, which change in each step (see gradient).
enum class pattern_kind {
  uniform,
  clustered,
  identical,
  disjoint,
  zipf,
  drift,
  gaussian,
  heavy_0,
  heavy_50,
  heavy_100
};

inline constexpr std::string_view pattern_names[] = {"uniform", "clustered", "identical", "disjoint", "zipf",
                                                     "drift",   "gaussian",  "heavy_0",   "heavy_50", "heavy_100"};

/// Whether a pattern is one of dense vectors that change in each step.
constexpr bool is_gradient(pattern_kind pattern) { return pattern >= pattern_kind::drift; }

struct workload {
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  int ranks = 1;
  pattern_kind pattern = pattern_kind::uniform;
  std::uint64_t seed = 1;
};

/// The indices of a rank's k entries in ascending order; empty for dense vectors.
std::vector<std::uint64_t> positions(const workload& w, int rank);

/// Values are whole numbers from 1 to this limit, so that sums are exact in any order.
inline constexpr int largest_value = 4;

/// The value of a rank's entry at an index.
int value_at(const workload& w, int rank, std::uint64_t index);

/// The values of a rank's gradient in a training step, at the indices [first, first + values.size()), by a pattern of
/// dense vectors. With u uniform in (0, 1]:
/// - drift: a signal that all ranks share and that changes slowly, by 1 / 64 of its amplitude per step, plus noise that
///   differs for each rank and step. The amplitudes of the signal and the magnitudes of the noise are u^(-1/4) - 1:
///   their tails are heavy;
/// - gaussian: normally distributed, independent of all other values;
/// - heavy_0, heavy_50, heavy_100: an index is nonzero with probability k / n. Of a rank's entries, 0, 50 or 100 % are
/// at
///   indices that all ranks share in this step, the others at indices of its own. Values are u^(-1/4) with a random
///   sign. At a shared index, all ranks have the same such value, times max(1 + z / 2, 0.3) with z normally distributed
///   and different for each rank.
void gradient(const workload& w, int rank, int step, std::uint64_t first, std::span<double> values);

} // namespace spar::perf
