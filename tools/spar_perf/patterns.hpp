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
/// - drift: all n values, which change in each step (see drifting_values).
enum class pattern_kind { uniform, clustered, identical, disjoint, zipf, drift };

inline constexpr std::string_view pattern_names[] = {"uniform", "clustered", "identical", "disjoint", "zipf", "drift"};

struct workload {
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  int ranks = 1;
  pattern_kind pattern = pattern_kind::uniform;
  std::uint64_t seed = 1;
};

/// The indices of a rank's k entries in ascending order; empty for the pattern drift.
std::vector<std::uint64_t> positions(const workload& w, int rank);

/// Values are whole numbers from 1 to this limit, so that sums are exact in any order.
inline constexpr int largest_value = 4;

/// The value of a rank's entry at an index.
int value_at(const workload& w, int rank, std::uint64_t index);

/// The values of a rank's gradient in a training step, at the indices [first, first + values.size()): a signal that all
/// ranks share and that changes slowly, by 1 / 64 of its amplitude per step, plus noise that differs for each rank and
/// step. The amplitudes of the signal and the magnitudes of the noise are u^(-1/4) - 1 with u uniform in (0, 1]: their
/// tails are heavy.
void drifting_values(const workload& w, int rank, int step, std::uint64_t first, std::span<double> values);

} // namespace spar::perf
