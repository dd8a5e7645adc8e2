// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each rank contributes: where its nonzero entries lie, and their values. A pure function of seed and rank.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace perf {

/// - uniform: k distinct indices of [0, n) uniformly at random, independently on each rank;
/// - clustered: runs of 64 consecutive indices, which begin at distinct random multiples of 64;
/// - identical: the same uniform set on every rank;
/// - disjoint: rank r has k distinct random indices of those that are r modulo P;
/// - zipf: index popularity falls as 1 / place, the places in a random order that all ranks share; repeated ones are
/// drawn
///   again;
/// - drift: all n values, other ones in each step (see drifting_values).
enum class pattern_kind { uniform, clustered, identical, disjoint, zipf, drift };

inline constexpr std::string_view pattern_names[] = {"uniform", "clustered", "identical", "disjoint", "zipf", "drift"};

struct workload {
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  int ranks = 1;
  pattern_kind pattern = pattern_kind::uniform;
  std::uint64_t seed = 1;
};

/// The ascending indices of a rank's k entries. None for drift.
std::vector<std::uint64_t> positions(const workload& w, int rank);

/// Values are whole numbers from 1 to this, so that sums are exact in whatever order they are taken.
inline constexpr int largest_value = 4;

/// The value of a rank's entry.
int value_at(const workload& w, int rank, std::uint64_t index);

/// The values of a rank's gradients in a step of training, at the indices from `first` on: a signal that all ranks
/// share and that changes slowly, by 1 / 64 of its amplitude a step, plus noise of the rank and the step alone. The
/// signal's amplitudes and the noise's magnitudes are u^(-1/4) - 1 with u uniform in (0, 1]: their tails are heavy.
void drifting_values(const workload& w, int rank, int step, std::uint64_t first, std::span<double> values);

} // namespace perf
