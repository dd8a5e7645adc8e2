// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whatever the ranks of a collective must agree on: if one rank differs, every rank gets an error that names the
// difference, at the latest in the next call in which the ranks agree.
#include "support/disagreements.hpp"
#include "support/ranks.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::rank_t;

struct program {
  const disagreement* which;
  rank_t odd, own, common;
  std::vector<std::string>* texts;

  spar::task<void> operator()(spar::any_transport& net) const& {
    return disagree(net, *which, odd, own, common, &(*texts)[static_cast<std::size_t>(net.rank())]);
  }
};

void expect_errors(mode where, rank_t ranks, const disagreement& which, rank_t odd, rank_t own, rank_t common) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  const program run_it{&which, odd, own, common, &texts};
  try {
    run(where, ranks, run_it);
  } catch (const spar::mismatch& e) { // the simulator ends the programs of all ranks
    texts.assign(texts.size(), e.what());
  }
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("ranks disagree on "), std::string::npos)
        << which.call << ", " << where << ", " << ranks << " ranks, rank " << odd << ": " << text;
    EXPECT_NE(text.find(which.text), std::string::npos)
        << which.call << ", " << where << ", " << ranks << " ranks, rank " << odd << ": " << text;
  }
}

TEST(agreement, on_each_parameter_of_each_collective_is_checked) {
  std::uint64_t position = 0;
  for (const disagreement& which : disagreements()) {
    ++position;
    for (rank_t ranks = 2; ranks <= 5; ++ranks) {
      for (const mode where : all_modes) {
        for (rank_t odd = 0; odd < ranks; ++odd) {
          for (rank_t own = 0; own < (which.rooted ? ranks : 1); ++own) {
            const rank_t common = which.rooted ? (own + 1) % ranks : 0;
            // On threads, ranks that wait for each other ask each other only after a second.
            const bool waits = where == mode::threads_synchronous || (where == mode::threads && which.rooted);
            if (waits && !runs_case(200, position, ranks, odd, own)) continue;
            expect_errors(where, ranks, which, odd, own, common);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

/// Of two ranks that only send to each other, at least one finds the other one's message in the same call.
TEST(agreement, of_two_ranks_that_only_send_one_notices_at_once) {
  if (!has_threads) return;
  for (int time = 0; time < 20; ++time) {
    std::vector<std::string> texts(2);
    spar::thread_group group(2);
    try {
      group.run([&](spar::threads& net) {
        std::vector<float> x(4, static_cast<float>(net.rank()));
        try {
          if (time % 2 == 0 || net.rank() == 0)
            spar::broadcast(net, x, net.rank());
          else
            spar::reduce(net, x, 0);
          spar::allreduce(net, x, spar::ring{});
        } catch (const spar::mismatch& e) {
          texts[static_cast<std::size_t>(net.rank())] = e.what();
          throw;
        }
      });
      ADD_FAILURE() << "no error";
    } catch (const spar::error&) {
    }
    const std::string text = texts[0] + texts[1];
    EXPECT_NE(text.find("in collective 0, in which rank "), std::string::npos) << text;
    EXPECT_NE(text.find(time % 2 == 0 ? "binomial_broadcast with root=1" : "binomial_reduce(root=0)"),
              std::string::npos)
        << text;
  }
}

/// `wrong` broadcasts with another root on each of two ranks, then two broadcasts of rank 0.
struct broadcasts {
  int wrong;
  std::vector<std::string>* texts;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(4, 1.0F);
    try {
      for (int call = 0; call < wrong + 2; ++call)
        co_await spar::start_broadcast(net, x, call < wrong ? net.rank() : 0);
    } catch (const spar::error& e) {
      (*texts)[static_cast<std::size_t>(net.rank())] = e.what();
    }
  }
};

TEST(agreement, error_names_the_first_call_that_differed) {
  if (!has_sim) return;
  for (const int wrong : {1, 3, 12, 40}) { // ranks keep the last 16 calls
    std::vector<std::string> texts(2);
    run_sim<spar::any_transport>(2, broadcasts{wrong, &texts});
    const char* const expected = wrong > 16
                                     ? "ranks disagree on the collectives without a name before collective 40: rank 0 "
                                     : "ranks disagree on the algorithm's options in collective 0, which has ended: "
                                       "rank 0 has binomial_broadcast with root=0, rank 1 has binomial_broadcast with "
                                       "root=1";
    EXPECT_NE(texts[1].find(expected), std::string::npos) << wrong << ": " << texts[1];
  }
}

/// Sends a message that no rank receives.
struct send_too_much {
  static constexpr std::string_view name = "send_too_much";
  void options(auto&&) const noexcept {}
  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    const spar::payload nothing{};
    co_await net.send(1 - net.rank(), nothing);
  }
};

TEST(agreement, message_that_the_same_algorithm_does_not_receive_is_an_error) {
  if (!has_threads) return;
  spar::thread_group group(2);
  std::string text;
  try {
    group.run([](spar::threads& net) {
      spar::run_collective(net, spar::signature_of<spar::sum>(send_too_much{}), send_too_much{});
      std::vector<float> x(4, 1.0F);
      spar::allreduce(net, x, spar::ring{}); // in which the rank that noticed nothing answers the other one
    });
  } catch (const spar::mismatch& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("ranks disagree on the messages in collective 0"), std::string::npos) << text;
  EXPECT_NE(text.find("send_too_much"), std::string::npos) << text;
}

/// A message that is still in the queue when the numbers of calls begin again: the error says so.
TEST(agreement, message_of_an_ended_call_that_meets_another_one_is_named) {
  const spar::signature agreed{.digest = 5};
  const spar::call_identity call{.agreed = agreed, .sequence = 3 * spar::max_in_flight + 7};
  const auto error_of = [&](std::uint64_t sequence) -> std::string {
    const spar::header h = spar::header_of(agreed, {.agreed = agreed, .sequence = sequence});
    try {
      spar::detail::check_sequence(h, 1, call, 0);
    } catch (const spar::mismatch& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(error_of(call.sequence), "");
  EXPECT_NE(error_of(7).find("collective number 7, which has ended: rank 1 has sent a message"), std::string::npos);
  EXPECT_NE(error_of(4 * spar::max_in_flight + 7).find("the number of the collective: rank 1 has 16391, rank 0"),
            std::string::npos);
}

} // namespace
} // namespace spar_test
