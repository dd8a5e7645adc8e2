// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All ways in which partial collectives end: ranks drain, leave, have made different numbers of calls, or one of them
// aborts at any time. Every rank ends, with right results up to that point and the right error. Runs a fifth or a tenth
// of SPAR_SCHEDULES seeds, 100 unless set.
#include "support/partial_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

/// What a rank does, and when.
struct plan {
  std::uint64_t calls = 0;
  bool drains = true;        ///< if false, the rank leaves
  double aborts_after = -1;  ///< seconds; negative: never aborts
  std::uint64_t rounds = 12; ///< the number of rounds for which the values have elements
};

/// How a rank ended.
struct ending {
  std::vector<round_seen> rounds;
  bool drained = false;
  std::string error; // the error of its last call
  bool failed = false;
  bool strange = false; // the error is not among the documented ones
};

template <class Net>
spar::task<void> abort_later(Net& net, double seconds) {
  co_await net.sleep(seconds);
  spar::abort(net, "the rank has had enough");
}

template <class Of, class Participation>
struct ending_program {
  Participation who;
  std::uint64_t seed;
  const std::vector<plan>* plans;
  std::vector<ending>* endings;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const plan& its = (*plans)[static_cast<std::size_t>(net.rank())];
    std::optional<spar::task<void>> later;
    if (its.aborts_after >= 0) later.emplace(abort_later(net, its.aborts_after));
    auto calling = calls(net, &its);
    co_await std::move(calling);
    if (later) co_await std::move(*later);
  }

  template <class Net>
  spar::task<void> calls(Net& net, const plan* its) const& {
    ending& end = (*endings)[static_cast<std::size_t>(net.rank())];
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    std::exponential_distribution<double> delay(1 / (2e-6 * (1 + static_cast<double>(random() % 5))));
    const std::size_t n = marked.dimension(net.size());
    try {
      auto reduce = spar::partial_allreduce<Of>(net, n, who);
      for (std::uint64_t t = 1; t <= its->calls + (its->drains ? 1 : 0); ++t) {
        const bool last = t > its->calls;
        co_await net.sleep(delay(random));
        std::vector<number> x(n);
        if constexpr (std::is_same_v<Of, number>) {
          if (!last) x[marked.place(net.rank(), t)] = 1;
          auto call = last ? reduce.start_drain(std::span(x)) : reduce.start(std::span(x));
          const auto by = co_await std::move(call);
          end.rounds.push_back(seen_of(x, by, net.size()));
        } else {
          const std::array<std::uint32_t, 1> at{last ? 0 : static_cast<std::uint32_t>(marked.place(net.rank(), t))};
          const std::array<number, 1> one{1};
          const auto own = spar::sparse_view(n, std::span(at).first(last ? 0 : 1), std::span(one).first(last ? 0 : 1));
          auto call = last ? reduce.start_drain(own) : reduce.start(own);
          const auto result = co_await std::move(call);
          result.sum.to_dense(std::span(x), spar::sum{});
          end.rounds.push_back(seen_of(x, result.by, net.size()));
        }
        end.drained = last;
      }
    } catch (const spar::mismatch& e) {
      end.error = e.what();
    } catch (const spar::peer_failed& e) {
      end.error = e.what();
    } catch (const std::exception& e) {
      end.error = e.what();
      end.strange = true;
    }
    end.failed = !end.error.empty();
  }
};

/// Runs the plans. The results of all ranks are the same and keep the invariants, as far as each rank got.
template <class Of, class Participation>
std::vector<ending> endings_of(const std::vector<plan>& plans, const Participation& who, std::uint64_t seed) {
  std::vector<ending> endings(plans.size());
  const auto ranks = static_cast<spar::rank_t>(plans.size());
  run_sim(ranks, ending_program<Of, Participation>{who, seed, &plans, &endings}, random_order(seed, seed % 2 == 0));
  const auto& longest = *std::max_element(endings.begin(), endings.end(), [](const ending& a, const ending& b) {
    return a.rounds.size() < b.rounds.size();
  });
  for (const ending& e : endings) {
    EXPECT_FALSE(e.strange) << e.error;
    EXPECT_TRUE(std::equal(e.rounds.begin(), e.rounds.end(), longest.rounds.begin()));
  }
  return endings;
}

template <class Check>
void for_seeds(std::uint64_t times, const Check& check_one) {
  for (std::uint64_t seed = 1; seed <= times * schedules(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    try {
      check_one(seed, random);
    } catch (const spar::error& e) {
      ADD_FAILURE() << e.what();
    }
    if (testing::Test::HasFailure()) return;
  }
}

template <class Of, class Participation>
void check_aborts(const Participation& who) {
  for_seeds(5, [&](std::uint64_t seed, std::mt19937_64& random) {
    std::vector<plan> plans(2 + random() % 6, plan{.calls = marked.calls});
    const std::size_t rank = random() % plans.size();
    plans[rank].aborts_after = std::uniform_real_distribution<double>(0, 3e-4)(random);
    const auto endings = endings_of<Of>(plans, who, seed);
    for (const ending& e : endings) {
      EXPECT_TRUE(e.drained || e.error.find("the rank has had enough") != std::string::npos) << e.error;
      check_rounds(marked, e.rounds, static_cast<spar::rank_t>(plans.size()));
    }
  });
}

TEST(partial_endings, an_abort_at_any_time_ends_every_rank) {
  check_aborts<number>(spar::solo{});
  check_aborts<number>(spar::majority{});
  check_aborts<number>(spar::quorum{2});
  check_aborts<spar::sparse_stream<number>>(spar::solo{});
  check_aborts<spar::sparse_stream<number>>(spar::quorum{2});
}

/// Ranks drain or leave, often all after the same number of calls. A drain succeeds if and only if all ranks drain
/// after the same number of calls. Otherwise every rank has left or has an error that says so.
template <class Participation>
void check_differing_ends(const Participation& who) {
  for_seeds(10, [&](std::uint64_t seed, std::mt19937_64& random) {
    std::vector<plan> plans(2 + random() % 6);
    const std::uint64_t calls = random() % 8;
    const bool alike = random() % 3 != 0;
    const bool all_drain = random() % 2 == 0;
    for (plan& p : plans) {
      p.calls = alike ? calls : calls + random() % 3;
      p.drains = all_drain || !alike || random() % 3 != 0; // a simulated program cannot leave during a round
    }
    const bool right =
        std::all_of(plans.begin(), plans.end(), [&](const plan& p) { return p.drains && p.calls == plans[0].calls; });
    const auto endings = endings_of<number>(plans, who, seed);
    for (std::size_t r = 0; r < plans.size(); ++r) {
      if (right) {
        EXPECT_TRUE(endings[r].drained) << endings[r].error;
      } else {
        EXPECT_FALSE(endings[r].drained);
        EXPECT_TRUE(endings[r].failed || !plans[r].drains) << "rank " << r;
      }
      if (endings[r].failed) {
        const auto says = [&](const char* what) { return endings[r].error.find(what) != std::string::npos; };
        EXPECT_TRUE(says("has drained") || says("has destroyed") || says("disagree")) << endings[r].error;
      }
    }
  });
}

TEST(partial_endings, ranks_that_end_differently_get_an_error) {
  check_differing_ends(spar::solo{});
  check_differing_ends(spar::majority{});
  check_differing_ends(spar::quorum{2});
  check_differing_ends(spar::everyone{});
}

} // namespace
} // namespace spar_test
