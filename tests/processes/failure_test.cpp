// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors over processes: bad input, ranks that disagree, aborts and deadlines reach every rank.
#include "support/processes.hpp"

#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace spar_test {
namespace {

using index = std::uint32_t;

TEST(processes_errors, bad_input_is_refused_before_anything_is_sent) {
  communicator inner(meeting());
  spar::counting<communicator> net{inner};
  const std::vector<index> indices{5, 3};
  const std::vector<float> values{1, 2};
  EXPECT_THROW(spar::allreduce(net, spar::sparse_view(10, indices, values)), spar::invalid_argument);
  EXPECT_THROW(spar::allreduce(net, spar::sparse_view(1, indices, values)), spar::invalid_argument);
  std::vector<float> x(3);
  EXPECT_THROW(spar::broadcast(net, std::span<float>(x), net.size()), spar::invalid_argument);
  EXPECT_EQ(net.sent().messages, 0U);
  spar::allreduce(net, std::span<float>(x)); // the communicator still works
}

/// The errors of a call on every rank of `net`, and of the next call.
std::pair<std::string, std::string> errors_of_ranks_that_disagree(communicator& net, std::size_t n) {
  std::vector<index> indices(n);
  for (std::size_t e = 0; e < n; ++e) indices[e] = static_cast<index>(3 * e);
  const std::vector<float> values(n);
  const std::uint64_t dimension = 200'000 + static_cast<std::uint64_t>(net.rank() == 1);
  std::pair<std::string, std::string> texts;
  try {
    spar::allreduce(net, spar::sparse_view(dimension, indices, values), spar::recursive_doubling{});
  } catch (const spar::mismatch& e) {
    texts.first = e.what();
  } catch (const spar::peer_failed& e) {
    texts.first = e.what();
  }
  try {
    spar::allreduce(net, std::span<float>{});
  } catch (const spar::peer_failed& e) {
    texts.second = e.what();
  }
  return texts;
}

TEST(processes_errors, ranks_that_disagree_all_get_an_error_and_the_communicator_is_dead) {
  communicator world(meeting());
  if (world.size() < 2) return; // there is no peer to disagree with
  for (const std::size_t n : {10U, 50'000U}) {
    communicator all = world.split(0, world.rank());
    const auto [first, second] = errors_of_ranks_that_disagree(all, n);
    for (const char* value : {"200000", "200001", "dimension"}) {
      EXPECT_NE(first.find(value), std::string::npos) << first;
      EXPECT_NE(second.find(value), std::string::npos) << second;
    }
    EXPECT_NE(second.find("communicator is dead"), std::string::npos) << second;
  }
  communicator alive = world.split(0, world.rank()); // another communicator still works
  std::vector<float> x(1000, 1.0F);
  spar::allreduce(alive, std::span(x));
  EXPECT_EQ(x[0], static_cast<float>(world.size()));
}

TEST(processes_errors, ranks_with_different_options_get_the_values_of_both) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator all = world.split(0, world.rank());
  spar::ok_topk<float> reduce{{.select = {.k = all.rank() == 0 ? 15U : 16U}}};
  std::vector<float> x(100, 1.0F);
  std::string text;
  try {
    reduce(all, std::span(x));
  } catch (const spar::mismatch& e) {
    text = e.what();
  } catch (const spar::peer_failed& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("ranks disagree on the algorithm's options: rank "), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0 has balanced_owners with select.k=15"), std::string::npos) << text;
  EXPECT_NE(text.find("has balanced_owners with select.k=16"), std::string::npos) << text;
}

/// Each of four ranks waits for a rank that sends to another one; after a second the ranks query each other.
TEST(processes_errors, ranks_that_wait_for_each_other_get_an_error) {
  communicator world(meeting());
  if (world.size() < 4) return;
  communicator all = world.split(0, world.rank());
  std::vector<float> x(100, 1.0F);
  std::string text;
  const double start = now();
  try {
    if (all.rank() < 2)
      spar::allreduce(all, std::span(x), spar::ring{});
    else
      spar::allreduce(all, std::span(x), spar::recursive_doubling{});
  } catch (const spar::mismatch& e) {
    text = e.what();
  } catch (const spar::peer_failed& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("ranks disagree on the algorithm: rank "), std::string::npos) << text;
  EXPECT_LT(now() - start, 60);
}

TEST(processes_errors, an_abort_reaches_every_rank_with_its_reason) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : {10U, 50'000U}) {
    communicator all = world.split(0, world.rank());
    const std::string reason(300, 'x'); // takes several control messages
    std::vector<float> x(n, 1.0F);
    if (all.rank() == 1) spar::abort(all, reason);
    try {
      spar::allreduce(all, std::span(x));
      spar::allreduce(all, std::span(x));
      ADD_FAILURE() << "no error";
    } catch (const spar::peer_failed& e) {
      EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
  }
}

/// The rank that aborts has sent no message before, and calls nothing of spar afterwards.
TEST(processes_errors, an_abort_leaves_before_its_rank_goes_on_elsewhere) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator all = world.split(0, world.rank());
  if (all.rank() == 1) {
    spar::abort(all, "enough");
    wait_for_all();
  } else {
    std::vector<float> x(10);
    const auto [text, seconds] = ending_of([&] { spar::allreduce(all, std::span(x)); });
    EXPECT_NE(text.find("enough"), std::string::npos) << text;
    EXPECT_LT(seconds, 5);
    wait_for_all();
  }
}

/// One rank, or each rank, destroys its communicator while a call is in flight.
TEST(processes_errors, a_handle_may_outlive_its_communicator) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : {10U, 500'000U}) {
    for (const bool all_leave : {false, true}) {
      std::optional<communicator> net(std::in_place, meeting());
      std::vector<float> x(n, 1.0F);
      auto call = spar::start_allreduce(*net, std::span(x), spar::ring{});
      std::vector<float> y(10, 1.0F);
      auto second = spar::start_allreduce(*net, std::span(y));
      if (all_leave || world.rank() == 0) net.reset();
      for (auto* its : {&call, &second}) {
        try {
          its->wait();
          EXPECT_TRUE(!over_mpi || world.rank() != 0); // a call may end in time on another rank
        } catch (const spar::peer_failed& e) {
          EXPECT_NE(std::string(e.what()).find("was destroyed while a call was in flight"), std::string::npos)
              << e.what();
        }
      }
    }
  }
}

/// Rank 0 leaves after two broadcasts, and the others wait for a third.
TEST(processes_errors, a_root_that_leaves_at_once_ends_only_the_calls_that_it_has_not_made) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : {10U, 500'000U}) {
    for (const bool is_named : {false, true}) {
      std::optional<communicator> net(std::in_place, meeting());
      if (net->rank() != 0) usleep(20'000); // rank 0 leaves first
      std::string text;
      try {
        for (int call = 0; call < (net->rank() == 0 ? 2 : 3); ++call) {
          std::vector<float> x(n, net->rank() == 0 ? static_cast<float>(call + 1) : 0.0F);
          if (is_named)
            spar::broadcast(*net, spar::named{"weights"}, std::span(x), 0);
          else
            spar::broadcast(*net, std::span(x), 0);
          EXPECT_EQ(x.back(), static_cast<float>(call + 1));
        }
      } catch (const spar::peer_failed& e) {
        text = e.what();
      }
      if (net->rank() != 0) {
        EXPECT_NE(text.find(is_named ? "rank 0 has left (calls of this name: 2), but rank "
                                     : "rank 0 has left (calls without a name: 2), but rank "),
                  std::string::npos)
            << text;
        EXPECT_EQ(net->failed_rank(), 0);
      }
    }
  }
}

/// Rank 0 takes rank 1 for the root of a broadcast, which the others receive from rank 2 before they leave.
TEST(processes_errors, after_a_call_with_another_root_the_roots_are_named) {
  communicator world(meeting());
  if (world.size() < 3) return;
  communicator net = world.split(world.rank() / 3, world.rank());
  if (world.rank() >= 3) return;
  std::vector<float> x(10);
  std::string text;
  try {
    spar::broadcast(net, std::span(x), net.rank() == 0 ? 1 : 2);
  } catch (const spar::error& e) {
    text = e.what();
  }
  if (net.rank() == 0) {
    EXPECT_EQ(text, "ranks disagree on the root: rank 1 has 2, rank 0 has 1");
  }
}

/// Rank 0 leaves without the message for which rank 1 waits, although both have made the same call.
TEST(processes_errors, a_rank_that_leaves_without_a_message_ends_the_wait_for_it) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator inner = world.split(world.rank() / 2, world.rank());
  if (world.rank() >= 2) return;
  spar::faulty<communicator> net(inner, {{.what = spar::fault::kind::drop, .message = 0}});
  std::vector<float> x(10);
  std::string text;
  try {
    spar::broadcast(net, std::span(x), 0);
  } catch (const spar::peer_failed& e) {
    text = e.what();
  }
  if (inner.rank() == 1) {
    EXPECT_NE(text.find("rank 0 has left (calls without a name: 1), but rank 1 waits"), std::string::npos) << text;
    EXPECT_EQ(net.failed_rank(), 0);
  }
}

TEST(processes_errors, after_an_agreed_leave_every_call_is_refused) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    communicator net(meeting());
    std::vector<float> x(attempt == 0 ? 10U : 500'000U, 1.0F);
    spar::allreduce(net, std::span(x));
    spar::leave(net);
    EXPECT_THROW(spar::allreduce(net, std::span(x)), spar::invalid_argument);
    EXPECT_THROW((void)spar::start_barrier(net, spar::named{"a"}), spar::invalid_argument);
    EXPECT_THROW((void)net.split(0, 0), spar::invalid_argument);
    EXPECT_FALSE(net.dead());
  }
}

/// Mean time to create and to destroy a communicator that `fail` kills in between.
template <class Fail>
double seconds_of_a_dead_communicator(Fail fail) {
  communicator world(meeting());
  const double start = now();
  constexpr int communicators = 8;
  for (int i = 0; i < communicators; ++i) {
    communicator all = world.split(0, world.rank());
    fail(all);
  }
  return (now() - start) / communicators;
}

/// A rank on its own would listen for a second.
TEST(processes_errors, all_ranks_let_go_of_a_dead_communicator_at_once) {
  EXPECT_LT(seconds_of_a_dead_communicator([](communicator& all) {
              if (all.rank() == 0) spar::abort(all, "enough");
              while (!all.dead()) all.progress(false);
            }),
            0.5);
}

/// The same for ranks that have made no call since the failure of another rank.
TEST(processes_errors, what_was_not_heard_in_a_call_is_heard_at_the_end) {
  EXPECT_LT(seconds_of_a_dead_communicator([](communicator& all) {
              if (all.rank() == 0) spar::abort(all, "enough");
              wait_for_all();
            }),
            0.5);
}

/// A rank that fails receives the messages in flight to it, so that senders need not give up after a second.
TEST(processes_errors, what_is_on_its_way_to_a_rank_that_fails_leaves_at_once) {
  EXPECT_LT(seconds_of_a_dead_communicator([](communicator& all) {
              std::vector<float> x(2'000'000, 1.0F);
              if (all.rank() == 0) {
                usleep(50'000);
                spar::abort(all, "enough");
              } else {
                EXPECT_THROW(spar::allreduce(all, std::span(x), spar::ring{}), spar::peer_failed);
              }
            }),
            0.5);
}

/// A stopped process may be anywhere in its code, and its host still accepts messages for it.
TEST(processes_errors, a_stopped_process_is_named_when_the_deadline_is_over) {
  communicator world(meeting());
  if (world.size() < 2 || getpid() == 1) return; // the first process of an emulated host cannot be stopped
  communicator all = world.split(0, world.rank());
  all.set_deadline(0.5);
  std::vector<float> x(8'000'000, 1.0F); // more than the buffers of TCP
  if (all.rank() == 1) {
    const pid_t self = getpid();
    const pid_t other = fork();
    if (other == 0) { // resumes the stopped process
      sleep(3);
      kill(self, SIGCONT);
      _exit(0);
    }
    const double begin = all.now() + 0.1; // by then the other ranks no longer need this process for the split
    while (all.now() < begin) serve_others();
    auto call = spar::start_allreduce(all, std::span(x), spar::ring{}); // its first message is in flight
    raise(SIGSTOP);
    (void)ending_of([&] { call.wait(); }); // the other ranks have given up by now
    EXPECT_TRUE(all.dead());
    waitpid(other, nullptr, 0);
  } else {
    const auto [text, seconds] = ending_of([&] { spar::allreduce(all, std::span(x), spar::ring{}); });
    EXPECT_NE(text.find("0.5 s"), std::string::npos) << text;
    EXPECT_LT(seconds, 0.5 + 2); // 2 s allow for a busy machine
  }
  wait_for_all();
}

TEST(processes_errors, a_silent_rank_is_named_when_the_deadline_is_over) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : {10U, 50'000U}) {
    communicator all = world.split(0, world.rank());
    all.set_deadline(0.2);
    std::vector<float> x(n, 1.0F);
    if (all.rank() != 1) {
      const auto [text, seconds] = ending_of([&] { spar::allreduce(all, std::span(x), spar::recursive_doubling{}); });
      EXPECT_NE(text.find("0.2 s"), std::string::npos) << text;
      EXPECT_LT(seconds, 0.2 + 2);
    }
    wait_for_all(); // messages to the silent rank stay in memory until it destroys the communicator
  }
}

TEST(processes_errors, a_rank_that_aborts_is_not_waited_for_in_a_split) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator all = world.split(0, world.rank());
  const auto [text, seconds] = ending_of([&] {
    if (all.rank() == 1) spar::abort(all, "enough");
    const communicator part = all.split(0, 0);
  });
  EXPECT_NE(text.find("enough"), std::string::npos) << text;
  EXPECT_LT(seconds, 5);
}

TEST(processes_errors, a_rank_that_has_left_is_not_waited_for_in_a_split) {
  communicator world(meeting());
  if (world.size() < 2) return;
  std::optional<communicator> net(std::in_place, meeting());
  if (world.rank() == 0) return net.reset();
  const auto [text, seconds] = ending_of([&] { const communicator part = net->split(0, 0); });
  EXPECT_NE(text.find("rank 0 has left, but rank "), std::string::npos) << text;
  EXPECT_LT(seconds, 5);
}

TEST(processes_errors, a_rank_that_does_not_come_to_a_split_is_waited_for_until_the_deadline) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator all = world.split(0, world.rank());
  all.set_deadline(0.2);
  const auto [text, seconds] = ending_of([&] {
    if (all.rank() == 1) wait_for_all();
    const communicator part = all.split(0, 0);
  });
  if (all.rank() != 1) wait_for_all();
  EXPECT_NE(text.find("0.2 s for all other ranks to call split"), std::string::npos) << text;
  EXPECT_LT(seconds, 0.2 + 2);
}

/// Adds, but throws an exception at one of its calls on this rank.
struct adds_until_the_disk_is_full {
  static constexpr std::string_view name = "adds";
  static inline std::uint64_t calls_left = 0; // 0: for ever
  template <class T>
  T operator()(T a, T b) const {
    if (calls_left > 0 && --calls_left == 0) throw std::runtime_error("disk full");
    return a + b;
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
};

/// The operation fails while large messages of the call are in flight, which the rank must cancel.
TEST(processes_errors, the_reason_of_an_operation_reaches_every_rank) {
  communicator world(meeting());
  const spar::rank_t failing = world.size() - 1;
  if (failing == 0) return;
  for (const bool by_ring : {true, false}) {
    for (const std::uint64_t call : {1U, 30'000U, 90'000U}) {
      communicator all = world.split(0, world.rank());
      std::vector<float> x(200'000, 1.0F);
      adds_until_the_disk_is_full::calls_left = all.rank() == failing ? call : 0;
      const auto [text, seconds] = ending_of([&] {
        if (by_ring)
          spar::allreduce(all, std::span(x), spar::ring{}, adds_until_the_disk_is_full{});
        else
          spar::allreduce(all, spar::dense_view(x), spar::ssar_split{}, adds_until_the_disk_is_full{});
        spar::allreduce(all, std::span(x));
      });
      EXPECT_EQ(
          text,
          (all.rank() == failing ? "" : "rank " + std::to_string(failing) + " failed, so its communicator is dead: ") +
              std::string("disk full"));
    }
  }
  adds_until_the_disk_is_full::calls_left = 0;
}

TEST(processes_errors, a_dead_communicator_is_not_split) {
  communicator world(meeting());
  communicator all = world.split(0, world.rank());
  const communicator group = all.split(all.rank() % 2, 0);
  spar::abort(all, "enough");
  try {
    const communicator part = all.split(0, 0);
    ADD_FAILURE() << "no error";
  } catch (const spar::peer_failed& e) {
    EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(group.dead());
}

} // namespace
} // namespace spar_test
