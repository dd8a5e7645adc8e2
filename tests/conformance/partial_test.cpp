// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives (eager-SGD, lemma 5.1) under random delays: every call is in one round and in
// one only, every rank gets every round's result in order and learns the same participants. SPAR_SCHEDULES: seeds of
// each kind, 100 unless set.
#include "support/partial_program.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace spar_test {
namespace {

TEST(partial, solo_keeps_every_call_once) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    for (const auto& fresh :
         {simulate<number>(ranks, spar::solo{}, seed, tau), simulate<sparse_number>(ranks, spar::solo{}, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : 1);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, majority_keeps_every_call_once) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    const spar::majority who{seed};
    for (const auto& fresh :
         {simulate<number>(ranks, who, seed, tau), simulate<sparse_number>(ranks, who, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : 1);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, a_quorum_is_kept_in_every_round) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const auto q = static_cast<spar::rank_t>(1 + seed % static_cast<std::uint64_t>(ranks));
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    const spar::quorum who{q, seed};
    for (const auto& fresh :
         {simulate<number>(ranks, who, seed, tau), simulate<sparse_number>(ranks, who, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : q);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, everyone_is_in_every_round_of_everyone) {
  for (std::uint64_t seed = 1; seed <= seeds() / 10; ++seed) {
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    for (const spar::rank_t f : simulate<number>(ranks, spar::everyone{}, seed, 64)) ASSERT_EQ(f, ranks);
    for (const spar::rank_t f : simulate<sparse_number>(ranks, spar::everyone{}, seed, 64)) ASSERT_EQ(f, ranks);
  }
}

template <class Of, class Participation>
void on_every_transport(const Participation& who) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      history all(ranks, 64);
      run(where, ranks, program<Of, usual<Of>, Participation>{&all, who, {}, 0, 1e-5});
      check(all, ranks);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

TEST(partial, on_every_transport_and_number_of_ranks) {
  on_every_transport<number>(spar::everyone{});
  on_every_transport<number>(spar::solo{});
  on_every_transport<number>(spar::majority{});
  on_every_transport<number>(spar::quorum{1});
  on_every_transport<sparse_number>(spar::everyone{});
  on_every_transport<sparse_number>(spar::solo{});
  on_every_transport<sparse_number>(spar::majority{});
  on_every_transport<sparse_number>(spar::quorum{1});
}

} // namespace
} // namespace spar_test
