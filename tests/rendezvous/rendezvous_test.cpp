// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exchange of texts between the ranks of a job: as threads and as processes, and all ways in which ranks disagree.
#include "rendezvous/processes.hpp"

#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/table.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using test::here;
using test::message_of;

std::string text_of(spar::rank_t rank) { return "text of " + std::to_string(rank) + std::string(1, '\0'); }

std::vector<std::string> texts_of(spar::rank_t size) {
  std::vector<std::string> texts;
  for (spar::rank_t r = 0; r < size; ++r) texts.push_back(text_of(r));
  return texts;
}

/// Runs `program(rank)` for `size` ranks, each in its own thread.
void on_threads(spar::rank_t size, const std::function<void(spar::rank_t)>& program) {
  std::vector<std::thread> threads;
  for (spar::rank_t r = 0; r < size; ++r) threads.emplace_back([&program, r] { program(r); });
  for (auto& thread : threads) thread.join();
}

/// What each of the `size` ranks throws in an exchange; rank r expects `expected(r)` ranks in the job `job(r)`.
std::vector<std::string> errors_of(spar::rank_t size, const std::function<spar::rank_t(spar::rank_t)>& expected,
                                   const std::function<std::string(spar::rank_t)>& job, double deadline = 20) {
  const auto store = std::make_shared<spar::memory_store>();
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  on_threads(size, [&](spar::rank_t r) {
    auto options = here(0, deadline);
    options.job = job(r);
    const spar::rendezvous meeting(store, r, expected(r), options);
    errors[static_cast<std::size_t>(r)] = message_of<spar::mismatch>([&] { (void)meeting.exchange("x"); });
  });
  return errors;
}

class exchange : public testing::TestWithParam<spar::rank_t> {};
INSTANTIATE_TEST_SUITE_P(ranks, exchange, testing::Values(1, 2, 3, 4, 5, 64));

TEST_P(exchange, gives_the_texts_of_all_to_all) {
  const spar::rank_t size = GetParam();
  const auto store = std::make_shared<spar::memory_store>();
  on_threads(size, [&](spar::rank_t r) {
    const spar::rendezvous meeting(store, r, size);
    const spar::rendezvous copy = meeting;
    EXPECT_EQ(meeting.exchange(text_of(r)), texts_of(size));
    EXPECT_EQ(copy.exchange("same"), std::vector<std::string>(static_cast<std::size_t>(size), "same"));
    EXPECT_EQ(meeting.exchange(""), std::vector<std::string>(static_cast<std::size_t>(size)));
  });
}

TEST_P(exchange, works_over_tcp) {
  const spar::rank_t size = GetParam();
  auto options = here(0);
  options.secret = "correct horse";
  const auto server = std::make_shared<spar::tcp_store_server>(options);
  options.port = server->port();
  const test::stopwatch watch;
  on_threads(size, [&](spar::rank_t r) {
    std::shared_ptr<spar::rendezvous_store> store = server;
    if (r > 0) store = std::make_shared<spar::tcp_store>(options);
    const spar::rendezvous meeting(store, r, size, options);
    EXPECT_EQ(meeting.exchange(text_of(r)), texts_of(size));
  });
  EXPECT_LT(watch.seconds(), 3);
}

TEST_P(exchange, works_between_processes_that_a_launcher_starts) {
  const spar::rank_t size = GetParam();
  const test::reserved_port port;
  std::vector<test::process> processes;
  const test::stopwatch watch;
  for (spar::rank_t r = size - 1; r >= 0; --r) { // rank 0 comes last
    processes.emplace_back([&] {
      const test::environment environment({{"RANK", std::to_string(r)},
                                           {"WORLD_SIZE", std::to_string(size)},
                                           {"MASTER_ADDR", "localhost"},
                                           {"SPAR_PORT", std::to_string(port.get())},
                                           {"SPAR_SECRET", "correct horse"}});
      const auto meeting = spar::rendezvous::from_environment({.deadline = 20});
      if (meeting.rank() != r || meeting.size() != size || meeting.deadline() != 20) return 2;
      if (meeting.exchange(text_of(r)) != texts_of(size)) return 3;
      return meeting.exchange("again").size() == static_cast<std::size_t>(size) ? 0 : 4;
    });
  }
  for (auto& one : processes) EXPECT_EQ(one.status(), 0);
  EXPECT_LT(watch.seconds(), 10);
}

TEST(rendezvous, sizes_that_differ_are_known_to_all) {
  const auto errors = errors_of(4, [](spar::rank_t r) { return r == 2 ? 5 : 4; }, [](auto) { return "a"; });
  for (const std::string& why : errors)
    EXPECT_TRUE(why.starts_with("rank 2 expects 5 ranks, but rank 0 expects 4: process ")) << why;
}

TEST(rendezvous, a_reason_reaches_ranks_that_wait_though_the_process_of_rank_0_ends_at_once) {
  const test::reserved_port port;
  const auto ends = [&](spar::rank_t rank, spar::rank_t size) {
    return test::process([&, rank, size] {
      std::shared_ptr<spar::rendezvous_store> store;
      if (rank == 0)
        store = std::make_shared<spar::tcp_store_server>(here(port.get()));
      else
        store = std::make_shared<spar::tcp_store>(here(port.get()));
      const spar::rendezvous meeting(store, rank, size, here(port.get()));
      const std::string why = message_of<spar::mismatch>([&] { (void)meeting.exchange(""); });
      ::_exit(why.starts_with("rank 4 expects 6 ranks, but rank 0 expects 5") ? 0 : 1); // no destructor
      return 2;
    });
  };
  std::vector<test::process> processes;
  for (spar::rank_t r = 0; r < 4; ++r) processes.push_back(ends(r, 5));
  test::rest(0.3); // they wait for rank 4
  processes.push_back(ends(4, 6));
  for (auto& one : processes) EXPECT_EQ(one.status(), 0);
}

TEST(rendezvous, a_rank_beyond_the_number_of_rank_0_gets_an_error) {
  const auto errors = errors_of(3, [](spar::rank_t r) { return r == 2 ? 3 : 2; }, [](auto) { return "a"; });
  EXPECT_EQ(errors[0], "nothing");
  EXPECT_EQ(errors[1], "nothing");
  EXPECT_EQ(errors[2], "rank 2 expects 3 ranks, but rank 0 expects 2");
}

TEST(rendezvous, jobs_that_differ_are_known_to_all) {
  const auto errors = errors_of(3, [](auto) { return 3; }, [](spar::rank_t r) { return r == 1 ? "b" : "a"; });
  for (const std::string& why : errors)
    EXPECT_TRUE(why.starts_with("rank 1 belongs to the job \"b\", but rank 0 to the job \"a\": process ")) << why;
}

TEST(rendezvous, a_rank_without_a_job_is_known_to_all) {
  const auto errors = errors_of(2, [](auto) { return 2; }, [](spar::rank_t r) { return r == 1 ? "" : "a"; });
  for (const std::string& why : errors)
    EXPECT_TRUE(why.starts_with("rank 1 belongs to a job without an identity (SPAR_JOB), but rank 0 to the job \"a\""))
        << why;
}

TEST(rendezvous, stays_as_it_is_if_it_is_moved) {
  spar::rendezvous meeting(std::make_shared<spar::memory_store>(), 1, 3);
  const spar::rendezvous other = std::move(meeting);
  EXPECT_EQ(meeting.rank(), 1);
  EXPECT_EQ(&meeting.meeting(), &other.meeting());
}

TEST(rendezvous, versions_that_differ_are_known_to_all) {
  const auto store = std::make_shared<spar::memory_store>();
  const std::string other = spar::detail::encode(spar::detail::arrival{"9.8.7", "", "process 1 on a", 2, "x"});
  store->put("spar/exchange/0/1", other);
  const std::string why = message_of<spar::mismatch>([&] { (void)spar::rendezvous(store, 0, 2).exchange("x"); });
  EXPECT_TRUE(why.starts_with("rank 1 runs spar 9.8.7, but rank 0 runs spar 0.1")) << why;
  const auto decision = store->wait("spar/exchange/0/table", 0);
  ASSERT_TRUE(decision);
  EXPECT_EQ(message_of<spar::mismatch>([&] { spar::detail::throw_refusal(*decision); }), why);
}

TEST(rendezvous, a_rank_that_refuses_ends_the_exchange_of_all) {
  for (const spar::rank_t failing : {0, 2}) {
    const auto store = std::make_shared<spar::memory_store>();
    std::vector<std::string> errors(3);
    const test::stopwatch time;
    on_threads(3, [&](spar::rank_t r) {
      const spar::rendezvous meeting(store, r, 3, here(0));
      if (r == failing)
        meeting.refuse_exchange("no device");
      else
        errors[static_cast<std::size_t>(r)] = message_of<spar::peer_failed>([&] { (void)meeting.exchange("x"); });
      EXPECT_EQ(meeting.exchange("y").size(), 3U);
    });
    EXPECT_LT(time.seconds(), 5); // not the deadline
    const std::string why = "rank " + std::to_string(failing) + " has failed to meet the others: no device";
    for (spar::rank_t r = 0; r < 3; ++r) EXPECT_EQ(errors[static_cast<std::size_t>(r)], r == failing ? "" : why);
  }
}

TEST(rendezvous, a_rank_that_comes_twice_is_known_to_all) {
  const auto store = std::make_shared<spar::memory_store>();
  std::vector<std::string> errors(4);
  on_threads(4, [&](spar::rank_t r) { // nobody is rank 3, two are rank 2
    const spar::rendezvous meeting(store, r == 3 ? 2 : r, 4, here(0));
    const test::stopwatch watch;
    errors[static_cast<std::size_t>(r)] = message_of<spar::mismatch>([&] { (void)meeting.exchange("same text"); });
    EXPECT_LT(watch.seconds(), 10);
  });
  for (const std::string& why : errors) EXPECT_TRUE(why.starts_with("two processes have the rank 2: process ")) << why;
}

TEST(rendezvous, a_rank_that_comes_twice_too_late_disturbs_nobody) {
  const auto store = std::make_shared<spar::memory_store>();
  on_threads(2, [&](spar::rank_t r) { (void)spar::rendezvous(store, r, 2).exchange("x"); });
  EXPECT_THROW((void)spar::rendezvous(store, 1, 2).exchange("x"), spar::mismatch);
  EXPECT_THROW((void)spar::rendezvous(store, 0, 2).exchange("x"), spar::mismatch);
}

TEST(rendezvous, a_rank_that_does_not_come_is_named_to_all) {
  const auto store = std::make_shared<spar::memory_store>();
  const test::stopwatch watch;
  on_threads(5, [&](spar::rank_t r) {
    if (r == 1 || r == 4) return;
    const spar::rendezvous meeting(store, r, 5, here(0, 0.3));
    EXPECT_EQ(message_of<spar::timeout>([&] { (void)meeting.exchange("x"); }),
              "ranks 1 and 4 of 5 have not come within 0.3 s");
  });
  EXPECT_LT(watch.seconds(), 5);
  const spar::rendezvous late(store, 4, 5, here(0, 0.3));
  EXPECT_EQ(message_of<spar::timeout>([&] { (void)late.exchange("x"); }),
            "ranks 1 and 4 of 5 have not come within 0.3 s");
}

TEST(rendezvous, a_rank_0_that_does_not_come_ends_in_a_timeout) {
  const auto store = std::make_shared<spar::memory_store>();
  const spar::rendezvous meeting(store, 1, 2, here(0, 0));
  const std::string why = message_of<spar::timeout>([&] { (void)meeting.exchange("x"); });
  EXPECT_TRUE(why.starts_with("rank 1 has waited 0 s for rank 0")) << why;
}

TEST(rendezvous, texts_that_do_not_fit_into_the_store_are_an_error_of_all) {
  const auto server = std::make_shared<spar::tcp_store_server>(here(0));
  const auto store = std::make_shared<spar::tcp_store>(here(server->port()));
  const std::string large((std::size_t{1} << 25) + 1, 'x'); // two exceed the longest value
  std::thread other([&] {
    const spar::rendezvous meeting(server, 1, 2, here(0));
    EXPECT_NE(message_of<spar::mismatch>([&] { (void)meeting.exchange(large); }).find("a value in a store has"),
              std::string::npos);
  });
  const spar::rendezvous meeting(store, 0, 2, here(0));
  EXPECT_THROW((void)meeting.exchange(large), spar::invalid_argument);
  other.join();
}

TEST(rendezvous, groups_meet_apart_from_each_other) {
  const auto store = std::make_shared<spar::memory_store>();
  on_threads(4, [&](spar::rank_t r) {
    const spar::rendezvous all(store, r, 4);
    const spar::rendezvous half = all.among(r % 2 == 0 ? "even" : "odd", r / 2, 2);
    EXPECT_EQ(half.rank(), r / 2);
    EXPECT_EQ(half.size(), 2);
    EXPECT_NE(half.key("a"), all.key("a"));
    EXPECT_NE(all.among("x", 0, 1).key("a"), half.key("a"));
    const std::vector<std::string> expected = r % 2 == 0 ? std::vector<std::string>{text_of(0), text_of(2)}
                                                         : std::vector<std::string>{text_of(1), text_of(3)};
    EXPECT_EQ(half.exchange(text_of(r)), expected);
    EXPECT_EQ(all.exchange(text_of(r)), texts_of(4));
  });
}

TEST(rendezvous, arguments_are_checked) {
  const auto store = std::make_shared<spar::memory_store>();
  EXPECT_EQ(message_of<spar::invalid_argument>([&] { spar::rendezvous(store, 4, 4); }),
            "rank 4 of 4 ranks is invalid; expected 0 to 3");
  EXPECT_THROW(spar::rendezvous(store, -1, 4), spar::invalid_argument);
  EXPECT_THROW(spar::rendezvous(store, 0, 0), spar::invalid_argument);
  EXPECT_THROW(spar::rendezvous(nullptr, 0, 1), spar::invalid_argument);
  EXPECT_THROW(spar::rendezvous(store, 0, 1, here(0, -1)), spar::invalid_argument);
  EXPECT_THROW((void)spar::rendezvous(store, 0, 1).among("a", 1, 1), spar::invalid_argument);
}

TEST(rendezvous, a_rank_that_comes_twice_over_tcp_ends_all_processes) {
  const test::reserved_port port;
  std::vector<test::process> processes;
  for (const char* const rank : {"0", "1", "1"}) {
    processes.emplace_back([&] {
      const test::environment environment({{"RANK", rank},
                                           {"WORLD_SIZE", "3"},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"SPAR_PORT", std::to_string(port.get())}});
      const auto meeting = spar::rendezvous::from_environment({.deadline = 20});
      const std::string why = message_of<spar::mismatch>([&] { (void)meeting.exchange("x"); });
      return why.starts_with("two processes have the rank 1: ") ? 0 : 1;
    });
  }
  for (auto& one : processes) EXPECT_EQ(one.status(), 0);
}

TEST(rendezvous, leaves_no_descriptor_and_no_thread) {
  const test::environment environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  {
    const auto first = spar::rendezvous::from_environment();
  } // what the system loads at the first use stays
  const std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  {
    const auto meeting = spar::rendezvous::from_environment();
    EXPECT_EQ(meeting.exchange("x"), std::vector<std::string>{"x"});
    EXPECT_EQ(test::running_threads(), threads + 1);
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::running_threads(), threads);
}

} // namespace
