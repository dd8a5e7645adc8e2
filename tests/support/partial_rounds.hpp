// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of the rounds of a partial allreduce (eager-SGD, lemma 5.1): every call is in exactly one round, in
// order, and the participants are the ranks whose calls are in the round.
#pragma once

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace spar_test {

using number = std::int64_t;

/// Each rank makes `calls` calls of dimension P * calls. Element `place(rank, t)` is 1 in call t of that rank, so that
/// a result shows the calls that it includes. Calls are numbered from 1.
struct marked_calls {
  std::uint64_t calls;
  [[nodiscard]] std::size_t dimension(spar::rank_t ranks) const {
    return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(calls);
  }
  [[nodiscard]] std::size_t place(spar::rank_t rank, std::uint64_t call) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(calls) + static_cast<std::size_t>(call - 1);
  }
};

/// One round, as one rank saw it.
struct round_seen {
  std::vector<number> sum;
  std::vector<spar::presence> marks;
  std::vector<std::uint64_t> staleness;
  friend bool operator==(const round_seen&, const round_seen&) = default;
};

inline round_seen seen_of(std::vector<number> sum, const spar::participants& who, spar::rank_t ranks) {
  round_seen s{std::move(sum), {}, {}};
  for (spar::rank_t r = 0; r < ranks; ++r) {
    s.marks.push_back(who[r]);
    s.staleness.push_back(who.staleness(r));
  }
  return s;
}

/// Checks the rounds that a rank has seen, from the first one on; the last one may be the drain. Returns the number of
/// fresh ranks in each round. `in_rounds[rank]` gets the number of that rank's calls in the rounds.
inline std::vector<spar::rank_t> check_rounds(const marked_calls& made, const std::vector<round_seen>& rounds,
                                              spar::rank_t ranks, std::vector<std::uint64_t>* in_rounds = nullptr) {
  std::vector<spar::rank_t> fresh;
  std::vector<std::uint64_t> next(static_cast<std::size_t>(ranks), 1); // the first call that is in no round yet
  for (std::uint64_t r = 1; r <= rounds.size(); ++r) {
    const round_seen& s = rounds[r - 1];
    fresh.push_back(0);
    for (spar::rank_t rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const std::uint64_t oldest = next[at];
      for (std::uint64_t t = 1; t <= made.calls; ++t) {
        const number there = s.sum[made.place(rank, t)];
        EXPECT_TRUE(there == 0 || there == 1) << there;
        if (there == 0) continue;
        EXPECT_EQ(t, next[at]) << "round " << r << ", rank " << rank; // in order, none left out, none twice
        EXPECT_LE(t, r);
        ++next[at];
      }
      const bool none = next[at] == oldest;
      const bool has_this = !none && next[at] == r + 1 && r <= made.calls;
      const auto expected = none ? spar::presence::absent : has_this ? spar::presence::fresh : spar::presence::stale;
      EXPECT_EQ(s.marks[at], expected) << "round " << r << ", rank " << rank;
      EXPECT_EQ(s.staleness[at], none ? 0 : r - oldest) << "round " << r << ", rank " << rank;
      if (has_this) ++fresh.back();
    }
  }
  if (in_rounds != nullptr) {
    in_rounds->clear();
    for (const std::uint64_t n : next) in_rounds->push_back(n - 1);
  }
  return fresh;
}

/// Checks all rounds and the drain; returns the number of fresh ranks in each round before the drain.
inline std::vector<spar::rank_t> check_all_rounds(const marked_calls& made, const std::vector<round_seen>& rounds,
                                                  spar::rank_t ranks) {
  EXPECT_EQ(rounds.size(), made.calls + 1);
  std::vector<std::uint64_t> in_rounds;
  std::vector<spar::rank_t> fresh = check_rounds(made, rounds, ranks, &in_rounds);
  for (const std::uint64_t n : in_rounds) EXPECT_EQ(n, made.calls); // nothing is lost
  if (!fresh.empty()) fresh.pop_back();
  return fresh;
}

} // namespace spar_test
