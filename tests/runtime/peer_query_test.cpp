// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that disagree, each of which waits for a rank that sends to another one: no expected message reveals the
// mismatch, so the ranks query each other.
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

/// An allreduce in which ranks use up to three algorithms; the error must name two of them.
struct by_algorithm {
  std::vector<int> of_rank;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(100, 1.0F);
    std::string text;
    const spar::ring ring;
    const spar::recursive_doubling doubling;
    const spar::rabenseifner rabenseifner;
    try {
      const int mine = of_rank[static_cast<std::size_t>(net.rank())];
      if (mine == 0)
        co_await spar::start_allreduce(net, std::span(x), ring);
      else if (mine == 1)
        co_await spar::start_allreduce(net, std::span(x), doubling);
      else
        co_await spar::start_allreduce(net, std::span(x), rabenseifner);
    } catch (const spar::mismatch& e) {
      text = e.what();
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("ranks disagree on the algorithm: rank "), std::string::npos) << text;
  }
};

TEST(peer_query, finds_every_division_of_the_ranks_between_two_algorithms) {
  for (spar::rank_t ranks = 2; ranks <= 6; ++ranks) {
    for (unsigned division = 1; division + 1 < 1U << ranks; ++division) {
      for (int other = 1; other <= 2; ++other) {
        by_algorithm program{std::vector<int>(static_cast<std::size_t>(ranks))};
        for (spar::rank_t r = 0; r < ranks; ++r)
          program.of_rank[static_cast<std::size_t>(r)] = (division >> r & 1) != 0 ? other : 0;
        run_sim<spar::any_transport>(ranks, program);
        run_sim<spar::any_transport>(ranks, program, {.synchronous = true});
      }
    }
  }
}

/// Rank 0 waits for rank 3, which exchanges with rank 2, which waits for rank 0; rank 1 waits for rank 0.
TEST(peer_query, ends_threads_long_before_the_deadline) {
  if (!has_threads) return;
  for (const bool synchronous : {false, true}) {
    const double start = spar::endpoint::now();
    run_threads<spar::any_transport>(4, by_algorithm{{0, 0, 1, 1}}, {.synchronous = synchronous});
    EXPECT_LT(spar::endpoint::now() - start, 60);
  }
}

TEST(peer_query, is_made_by_a_progress_thread_too) {
  if (!has_threads) return;
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    const spar::progress_thread progress(net);
    std::vector<float> x(100, 1.0F);
    auto call = net.rank() < 2 ? spar::start_allreduce(net, std::span(x), spar::ring{})
                               : spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    while (!net.dead()) std::this_thread::sleep_for(std::chrono::milliseconds(10)); // makes no progress
    EXPECT_ANY_THROW(call.wait());
  });
}

TEST(peer_query, of_the_same_call_changes_nothing) {
  if (!has_threads) return;
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    std::vector<float> x(100, 1.0F), y(100, 2.0F);
    auto first = spar::start_allreduce(net, std::span(x), spar::ring{});
    if (net.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1300)); // peers query it twice
    auto second = spar::start_allreduce(net, std::span(y), spar::recursive_doubling{});
    first.wait();
    second.wait();
    EXPECT_EQ(x[0], 3.0F);
    EXPECT_EQ(y[0], 6.0F);
  });
}

/// What a rank answers about a call that has ended: the algorithm with its options if the call failed, even if another
/// call was rejected since; otherwise only the names.
TEST(peer_query, of_a_call_that_is_over_gets_its_options_where_it_has_failed) {
  if (!has_threads) return;
  spar::thread_group group{3};
  std::latch started(3);
  group.run([&](spar::threads& net) {
    const auto told = [&](std::uint64_t call) {
      return std::string(spar::detail::view_of(net.port(), call).algorithm.view());
    };
    std::vector<float> x(100, 1.0F);
    spar::ok_topk<float> reduce{{.select = {.k = 10 + static_cast<std::size_t>(net.rank())}}};
    spar::allreduce(net, std::span(x), spar::ring{});
    EXPECT_EQ(told(0), "ring of dense values, in a call that has ended");
    auto failing = reduce.start(net, std::span(x));
    started.arrive_and_wait(); // a rank that learned of the failure before its call would not be in the call
    EXPECT_ANY_THROW(failing.wait());
    EXPECT_ANY_THROW(reduce(net, std::span(x)));
    const std::string front = "balanced_owners(select=threshold_reuse(k=" + std::to_string(10 + net.rank()) + ",";
    EXPECT_EQ(told(1).substr(0, front.size()), front);
  });
}

TEST(peer_query, that_nobody_can_have_made_is_refused) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  const auto heed = [&](std::string_view text) {
    spar::on_control_message(net.port(), spar::part_of(spar::control_message::purpose::call, 0, text, 0));
  };
  EXPECT_THROW(heed("what?"), spar::corrupt_message);
  const std::string no_call(sizeof(spar::detail::call_note), '\0'); // a rank that waits, in no call in flight
  EXPECT_THROW(heed(no_call + "sum, no algorithm"), spar::corrupt_message);
  heed(no_call + "sum\nring");
  EXPECT_FALSE(net.dead());
}

/// If the peer has found the mismatch, too, its query and its answer arrive at about the same time. A query about
/// another call may arrive before both.
TEST(peer_query, takes_the_first_of_a_question_and_an_answer_about_its_call) {
  using kind = spar::detail::call_note::kind;
  spar::thread_group group{2};
  spar::threads& net = group.rank(0);
  spar::endpoint& node = net.port().node();
  const spar::detail::peer_question asked(node.question(), node.scheduler(), 1, 7);
  const auto arrives = [&](kind what, std::uint32_t sequence, const std::string& call) {
    spar::detail::call_note note;
    note.what = what;
    note.sequence = sequence;
    std::string text(sizeof(note), '\0');
    std::memcpy(text.data(), &note, sizeof(note));
    text += call;
    spar::on_control_message(net.port(), spar::part_of(spar::control_message::purpose::call, 1, text, 0));
  };
  arrives(kind::differs, 6, "max\nring");
  EXPECT_FALSE(asked.answered);
  arrives(kind::differs, 7, "sum\nring");
  arrives(kind::answer, 7, "sum\nring");
  EXPECT_TRUE(asked.answered);
  EXPECT_EQ(asked.answer.view().substr(sizeof(spar::detail::call_note)), "sum\nring");
}

} // namespace
} // namespace spar_test
