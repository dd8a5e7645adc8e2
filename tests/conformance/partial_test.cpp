// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives (eager-SGD, lemma 5.1) under random delays: every call is in exactly one round,
// and every rank gets every round's result in order with the same participants. SPAR_SCHEDULES is the number of seeds
// of each kind, 100 unless set.
#include "support/partial_program.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace spar_test {
namespace {

/// `who_of(seed, P)` is the participation; `least_of(who)` the number of ranks that are fresh in every round at least.
template <class WhoOf, class LeastOf>
void keeps_every_call_once(WhoOf who_of, LeastOf least_of) {
  for (std::uint64_t seed = 1; seed <= schedules(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    const auto who = who_of(seed, ranks);
    for (const auto& fresh :
         {simulate<number>(ranks, who, seed, tau), simulate<sparse_number>(ranks, who, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : least_of(who));
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(partial, solo_keeps_every_call_once) {
  keeps_every_call_once([](std::uint64_t, spar::rank_t) { return spar::solo{}; }, [](spar::solo) { return 1; });
}

TEST(partial, majority_keeps_every_call_once) {
  keeps_every_call_once([](std::uint64_t seed, spar::rank_t) { return spar::majority{seed}; },
                        [](spar::majority) { return 1; });
}

TEST(partial, a_quorum_is_kept_in_every_round) {
  const auto who_of = [](std::uint64_t seed, spar::rank_t ranks) {
    return spar::quorum{static_cast<spar::rank_t>(1 + seed % static_cast<std::uint64_t>(ranks)), seed};
  };
  keeps_every_call_once(who_of, [](const spar::quorum& who) { return who.q; });
}

TEST(partial, everyone_is_in_every_round_of_everyone) {
  for (std::uint64_t seed = 1; seed <= schedules() / 10; ++seed) {
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
