// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that join others by ucx::grow and ucx::join, and processes that are killed at each step of it. The test
// serves the store.
#include "rendezvous/processes.hpp"
#include "support/extent.hpp"

#include <spar/rendezvous/table.hpp>
#include <spar/ucx.hpp>
#include <spar/version.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <csignal>
#include <cstdlib>
#include <malloc.h>

namespace spar_test {
namespace {

using spar::rank_t;

constexpr double deadline = 30; // seconds of the communicators: longer than a test

std::uint64_t bit(int id) { return std::uint64_t{1} << id; }

/// How the program of a process ends. GoogleTest's checks do not reach the test from another process.
enum outcome : int {
  complete = 0,
  wrong_sum = 20,
  wrong_number = 21,
  wrong_settings = 22,
  other_bits = 23,
  unexpected_growth = 24,
  same_group = 25,
  lives_after_error = 26,
  leaks_descriptors = 30,
  leaks_threads = 31,
  leaks_memory = 32,
  late = 40,
};

/// The sum of 2^id over all ranks; 0 if the ranks have another sum of numbers that are rounded.
std::uint64_t members(spar::ucx& net, int id) {
  std::vector<std::uint64_t> sum{bit(id)};
  spar::allreduce(net, std::span(sum), spar::ring{});
  std::vector<float> x(3000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 / static_cast<float>(static_cast<std::size_t>(id + 3) + i);
  spar::allreduce(net, std::span(x), spar::ring{});
  std::uint64_t hash = 0;
  for (const float v : x) hash = hash * 31 + std::bit_cast<std::uint32_t>(v);
  std::vector<std::uint64_t> least{hash}, greatest{hash};
  spar::allreduce(net, std::span(least), spar::ring{}, spar::minimum{});
  spar::allreduce(net, std::span(greatest), spar::ring{}, spar::maximum{});
  return least == greatest ? sum[0] : 0;
}

/// Grows and shrinks until exactly the processes `wanted` belong to the communicator. The numbers of processes ascend
/// with their ranks unless `any_order`.
int until_all_are_there(std::unique_ptr<spar::ucx> net, int id, std::uint64_t wanted, bool any_order = false) {
  for (const test::stopwatch time; time.seconds() < 60;) {
    try {
      if (net->deadline() != deadline || !net->checksums()) return wrong_settings;
      const std::uint64_t now = members(*net, id);
      if ((now & bit(id)) == 0) return wrong_sum;
      if (std::popcount(now) != net->size()) return wrong_number;
      if (!any_order && std::popcount(now & (bit(id) - 1)) != net->rank()) return wrong_number;
      if (now == wanted) return complete;
      if (auto wider = net->grow()) net = std::move(wider);
    } catch (const spar::error&) {
      if (!net->dead()) return lives_after_error;
      net.reset(new spar::ucx(net->shrink()));
    }
  }
  return late;
}

enum class fault { kill_before, kill_after, lose_store };

/// The store of another process. In one of its calls, this process is killed before or after the store has answered, or
/// the call fails.
class fatal_store final : public spar::rendezvous_store {
 public:
  explicit fatal_store(const spar::rendezvous_options& where) : store_(where) {}
  void plan(fault what, int call) { what_ = what, left_ = call; }

  std::string put(std::string_view key, std::string_view value) override {
    return beside([&] { return store_.put(key, value); });
  }
  std::optional<std::string> wait(std::string_view key, double seconds) override {
    return beside([&] { return store_.wait(key, seconds); });
  }

 private:
  template <class Call>
  std::invoke_result_t<Call> beside(Call call) {
    const bool now = left_ == 0;
    if (left_ >= 0) --left_;
    if (now && what_ == fault::lose_store) throw spar::transport_error("the store is lost");
    if (now && what_ == fault::kill_before) ::raise(SIGKILL);
    auto answer = call();
    if (now) ::raise(SIGKILL);
    return answer;
  }

  spar::tcp_store store_;
  int left_ = -1;
  fault what_ = fault::kill_before;
};

/// Processes that meet in this process. All of them start before the thread of the server, for a process that is made
/// while another thread holds a lock of UCX would hang; `go` lets one begin that waits for it.
class job {
 public:
  explicit job(const char* transports = "all") : transports_(transports) {}

  /// Adds the rank `r` of the first `ranks`, which runs `program(net, store)`.
  template <class Program>
  void add(rank_t r, rank_t ranks, Program program) {
    start([=, this] {
      const auto store = std::make_shared<fatal_store>(where_);
      auto net = std::make_unique<spar::ucx>(spar::rendezvous(store, r, ranks, where_));
      net->set_deadline(deadline);
      net->set_checksums(true);
      store->put(up(r), "");
      return program(std::move(net), *store);
    });
  }
  /// Adds a process that waits for `go(id)`, then runs `program(store)`.
  template <class Program>
  void add_later(int id, Program program) {
    start([=, this] {
      const auto store = std::make_shared<fatal_store>(where_);
      if (!store->wait(key(id), 60)) return int{late};
      return program(store);
    });
  }
  void serve() { server_.emplace(where_); }
  void go(int id) { server_->put(key(id), "go"); }
  /// Waits until the first `ranks` have constructed their communicator.
  void wait_for_ranks(rank_t ranks) {
    for (rank_t r = 0; r < ranks; ++r) EXPECT_TRUE(server_->wait(up(r), 60)) << r;
  }

  [[nodiscard]] const spar::rendezvous_options& where() const { return where_; }
  [[nodiscard]] spar::tcp_store_server& store() { return *server_; }
  test::process& operator[](int id) { return processes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] int size() const { return static_cast<int>(processes_.size()); }

 private:
  static std::string key(int id) { return "test/go/" + std::to_string(id); }
  static std::string up(int id) { return "test/up/" + std::to_string(id); }
  template <class Program>
  void start(Program program) {
    processes_.emplace_back([=, this] {
      ::setenv("UCX_TLS", transports_, 1);
      return program();
    });
  }

  const char* transports_;
  test::reserved_port port_;
  spar::rendezvous_options where_ = test::here(port_.get(), 60);
  std::optional<spar::tcp_store_server> server_;
  std::vector<test::process> processes_; // end before the server
};

std::unique_ptr<spar::ucx> join(const std::shared_ptr<fatal_store>& store, double seconds = 60) {
  spar::rendezvous_options options;
  options.deadline = seconds;
  return std::unique_ptr<spar::ucx>(new spar::ucx(spar::ucx::join(store, options)));
}

TEST(ucx_grow, processes_join_one_after_the_other) {
  for (const char* const transports : {"all", "tcp,self"}) {
    if (!is_full() && std::string_view(transports) != "all") continue;
    const rank_t ranks = 2;
    const int joiners = 3;
    job all(transports);
    const std::uint64_t wanted = bit(ranks + joiners) - 1;
    for (rank_t r = 0; r < ranks; ++r)
      all.add(r, ranks, [=](auto net, fatal_store&) { return until_all_are_there(std::move(net), r, wanted); });
    for (int id = ranks; id < ranks + joiners; ++id)
      all.add_later(id, [=](const auto& store) {
        auto net = join(store);
        store->put("test/in/" + std::to_string(id), "");
        return until_all_are_there(std::move(net), id, wanted);
      });
    all.serve();
    for (int id = ranks; id < ranks + joiners; ++id) {
      all.go(id);
      EXPECT_TRUE(all.store().wait("test/in/" + std::to_string(id), 60)) << id;
    }
    for (int id = 0; id < all.size(); ++id) EXPECT_EQ(all[id].status(), complete) << id << ", " << transports;
  }
}

/// A joiner that dies at any step stops nobody: another one joins after it.
TEST(ucx_grow, a_joiner_that_is_killed_does_not_stop_the_others) {
  // A joiner makes these calls of the store: it asks, waits for a group, says that it is there, waits for the decision.
  constexpr int calls = 4, after_the_last = calls;
  for (int call = 0; call <= after_the_last; ++call) {
    for (const bool before : {true, false}) {
      SCOPED_TRACE(testing::Message() << "killed " << (before ? "before" : "after") << " call " << call);
      if (call == after_the_last && !before) continue;
      if (!is_full() && !(before && (call == 1 || call == after_the_last))) continue; // before and after it is taken
      const rank_t ranks = 2;
      const int victim = ranks, healthy = ranks + 1;
      job all;
      const std::uint64_t wanted = bit(0) | bit(1) | bit(healthy);
      for (rank_t r = 0; r < ranks; ++r)
        all.add(r, ranks, [=](auto net, fatal_store&) { return until_all_are_there(std::move(net), r, wanted); });
      all.add_later(victim, [=](const auto& store) {
        store->plan(before ? fault::kill_before : fault::kill_after, call);
        const auto net = join(store);
        return ::raise(SIGKILL); // before its first call
      });
      all.add_later(healthy, [=](const auto& store) { return until_all_are_there(join(store), healthy, wanted); });
      all.serve();
      const test::stopwatch time;
      all.go(victim);
      EXPECT_EQ(all[victim].status(), -SIGKILL);
      all.go(healthy);
      for (const int id : {0, 1, healthy}) EXPECT_EQ(all[id].status(), complete) << id;
      EXPECT_LT(time.seconds(), 4.9); // a joiner on another host has 5 s to answer
    }
  }
}

/// A rank that is killed at any step of grow: the others shrink, and the joiner joins them.
TEST(ucx_grow, a_rank_that_is_killed_meanwhile_does_not_stop_the_others) {
  const rank_t ranks = 3;
  for (rank_t victim = 0; victim < ranks; ++victim) {
    // Rank 0 looks for a joiner, takes it, looks for another, waits for two ranks and the joiner, decides; the others
    // report and wait for the decision.
    const int calls = victim == 0 ? 7 : 2;
    for (int call = 0; call < calls; ++call) {
      if (!is_full() && call != (victim == 0 ? 5 : 1 + victim / 2)) continue; // once for ranks 0 and 1
      SCOPED_TRACE(testing::Message() << "rank " << victim << " killed after call " << call);
      const int joiner = ranks;
      const std::uint64_t wanted = (bit(ranks + 1) - 1) & ~bit(victim);
      job all;
      for (rank_t r = 0; r < ranks; ++r)
        all.add(r, ranks, [=](auto net, fatal_store& store) {
          spar::barrier(*net);
          (void)store.wait("spar/join/0", 60); // the joiner asks
          if (r == victim) store.plan(fault::kill_after, call);
          return until_all_are_there(std::move(net), r, wanted);
        });
      all.add_later(joiner, [=](const auto& store) { return until_all_are_there(join(store), joiner, wanted); });
      all.serve();
      const test::stopwatch time;
      all.go(joiner);
      for (int id = 0; id < all.size(); ++id) EXPECT_EQ(all[id].status(), id == victim ? -SIGKILL : complete) << id;
      EXPECT_LT(time.seconds(), 15); // not the deadline
    }
  }
}

/// A rank that fails in grow while its process lives: all shrink to the same ranks, then the joiner joins them.
TEST(ucx_grow, a_rank_whose_report_fails_does_not_stop_the_others) {
  job all;
  for (rank_t r = 0; r < 2; ++r)
    all.add(r, 2, [=](auto net, fatal_store& store) {
      spar::barrier(*net);
      (void)store.wait("spar/join/0", 60);
      if (r == 1) store.plan(fault::lose_store, 0);
      return until_all_are_there(std::move(net), r, bit(3) - 1);
    });
  all.add_later(2, [=](const auto& store) { return until_all_are_there(join(store), 2, bit(3) - 1); });
  all.serve();
  const test::stopwatch time;
  all.go(2);
  for (int id = 0; id < all.size(); ++id) EXPECT_EQ(all[id].status(), complete) << id;
  EXPECT_LT(time.seconds(), 15); // not the deadline
}

TEST(ucx_grow, a_joiner_that_nobody_takes_ends) {
  job all;
  all.add(0, 1, [](auto net, fatal_store& store) {
    (void)store.wait("test/late", 60);
    return net->grow() == nullptr ? complete : unexpected_growth;
  });
  all.add_later(1, [](const auto& store) {
    const std::string text = test::message_of<spar::timeout>([&] { (void)join(store, 0.2); });
    store->put("test/late", text);
    return int{late};
  });
  all.serve();
  all.go(1);
  EXPECT_EQ(all[1].status(), late);
  EXPECT_EQ(all[0].status(), complete);
  const std::string text = all.store().wait("test/late", 0).value_or("");
  EXPECT_NE(text.find("has waited 0.2 s for the ranks of the job to call grow"), text.npos) << text;
}

/// What a rank of two does that calls grow, where nobody joins, and goes on.
int grow_in_vain(spar::ucx& net, rank_t r) {
  if (net.grow() != nullptr) return unexpected_growth;
  return members(net, r) == bit(2) - 1 ? complete : wrong_sum;
}

TEST(ucx_grow, a_rank_that_makes_another_call_learns_that_ranks_disagree) {
  job all;
  for (rank_t r = 0; r < 2; ++r)
    all.add(r, 2, [=](auto net, fatal_store& store) {
      const std::string text = test::message_of<spar::error>([&] {
        if (r == 0)
          (void)net->grow(); // may have returned null before the message of rank 1 arrives
        else
          spar::barrier(*net);
      });
      if (r == 1) store.put("test/error", text);
      (void)store.wait("test/error", 60);
      return complete;
    });
  all.serve();
  for (rank_t r = 0; r < 2; ++r) EXPECT_EQ(all[r].status(), complete) << r;
  const std::string text = all.store().wait("test/error", 0).value_or("");
  EXPECT_NE(text.find("ranks disagree on the "), text.npos) << text;
}

TEST(ucx_grow, a_joiner_that_gives_up_meanwhile_ends_no_communicator) {
  job all;
  for (rank_t r = 0; r < 2; ++r)
    all.add(r, 2, [=](auto net, fatal_store& store) {
      (void)store.wait(r == 0 ? "spar/join/0" : "test/late", 60);
      return grow_in_vain(*net, r);
    });
  all.add_later(2, [](const auto& store) {
    store->put("test/late", test::message_of<spar::timeout>([&] { (void)join(store, 0.2); }));
    return int{late};
  });
  all.serve();
  all.go(2);
  for (rank_t r = 0; r < 2; ++r) EXPECT_EQ(all[r].status(), complete) << r;
  const std::string text = all.store().wait("test/late", 60).value_or("");
  EXPECT_NE(text.find("has waited 0.2 s for the ranks that grow to decide"), text.npos) << text;
}

TEST(ucx_grow, malformed_joiners_are_refused) {
  job all;
  for (rank_t r = 0; r < 2; ++r)
    all.add(r, 2, [=](auto net, fatal_store& store) {
      (void)store.wait("spar/join/0", 60);
      return grow_in_vain(*net, r);
    });
  all.serve();
  const std::string too_long = spar::detail::ucx_member::self(std::string(70'000, 'a'), 0, 0).text();
  all.store().put("spar/join/1", encode(spar::detail::arrival{spar::version, "", "process 2", 1, too_long}));
  all.store().put("spar/join/0", encode(spar::detail::arrival{spar::version, "", "process 1", 1, "nonsense"}));
  for (rank_t r = 0; r < 2; ++r) EXPECT_EQ(all[r].status(), complete) << r;
  const std::string text = all.store().wait("spar/join/0/taker", 0).value_or("");
  EXPECT_NE(text.find("a process that joins has described itself by 8 bytes"), text.npos) << text;
  const std::string other = all.store().wait("spar/join/1/taker", 0).value_or("");
  EXPECT_NE(other.find("an address, at most 65536"), other.npos) << other;
}

/// A joiner that is stopped when a group takes it is left out, and asks again when it goes on.
TEST(ucx_grow, a_joiner_that_is_stopped_joins_later) {
  job all;
  const std::uint64_t wanted = bit(3) - 1;
  for (rank_t r = 0; r < 2; ++r)
    all.add(r, 2, [=](auto net, fatal_store& store) {
      (void)store.wait("test/stopped", 60);
      net->set_deadline(1); // so a joiner has half a second
      const test::stopwatch time;
      if (net->grow() != nullptr) return int{unexpected_growth};
      if (time.seconds() < 0.4) return int{late};
      net->set_deadline(deadline);
      if (r == 0) store.put("test/left_out", "");
      return until_all_are_there(std::move(net), r, wanted);
    });
  all.add_later(2, [=](const auto& store) { return until_all_are_there(join(store), 2, wanted); });
  all.serve();
  all.go(2);
  ASSERT_TRUE(all.store().wait("spar/join/0", 60));
  ::kill(all[2].id(), SIGSTOP);
  all.store().put("test/stopped", "");
  ASSERT_TRUE(all.store().wait("test/left_out", 60));
  ::kill(all[2].id(), SIGCONT);
  for (int id = 0; id < all.size(); ++id) EXPECT_EQ(all[id].status(), complete) << id;
}

/// What a process has: descriptors, threads, and bytes of the heap.
struct possessions {
  std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  std::size_t bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
};

/// Joins `joins` times, one process after the other, from the same communicator; each process has no more afterwards
/// than it had after the first joins.
int join_often(const std::function<std::unique_ptr<spar::ucx>()>& next, int id, std::uint64_t all, int joins) {
  const int first = is_full() ? 5 : 1;
  std::optional<possessions> before;
  std::string name;
  for (int i = 0; i < joins + first; ++i) {
    if (i == first) before.emplace();
    const auto wider = next();
    if (std::exchange(name, wider->meeting().key("")) == wider->meeting().key("")) return same_group;
    if (members(*wider, id) != all) return wrong_sum;
  }
  const possessions after;
  if (after.descriptors > before->descriptors) return leaks_descriptors;
  if (after.threads > before->threads) return leaks_threads;
  constexpr std::size_t lists_of_ucx = 500'000; // that grow sometimes; a communicator alone has about as much
  if (after.bytes > before->bytes + lists_of_ucx) return leaks_memory;
  return complete;
}

TEST(ucx_grow, many_joins_leave_nothing_behind) {
  const rank_t least = is_full() ? 2 : 3, most = is_full() ? 7 : 3;
  const int joins = is_full() ? 100 : 2;
  const std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  for (rank_t ranks = least; ranks <= most; ++ranks) {
    job all;
    const std::uint64_t wanted = bit(ranks + 1) - 1;
    for (rank_t r = 0; r < ranks; ++r)
      all.add(r, ranks, [=](auto net, fatal_store&) {
        const auto next = [&] {
          std::unique_ptr<spar::ucx> wider;
          while (wider == nullptr) wider = net->grow();
          return wider;
        };
        return join_often(next, r, wanted, joins);
      });
    all.add_later(ranks,
                  [=](const auto& store) { return join_often([&] { return join(store); }, ranks, wanted, joins); });
    all.serve();
    all.go(ranks);
    for (int id = 0; id < all.size(); ++id) EXPECT_EQ(all[id].status(), complete) << id << " of " << ranks;
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::running_threads(), threads);
}

/// Processes join, and are killed, at random times until all that live belong to the job.
TEST(ucx_grow, after_random_joins_and_kills) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int run = 0; run < (is_full() ? 100 : 1) && !testing::Test::HasFailure(); ++run) {
    SCOPED_TRACE(testing::Message() << "run " << run);
    const rank_t ranks = 2 + below(4);
    const int joiners = 1 + below(3), healthy = below(ranks), size = ranks + joiners;
    std::uint64_t killed = 0;
    for (int id = 0; id < size; ++id) killed |= id != healthy && below(3) == 0 ? bit(id) : 0;
    const std::uint64_t wanted = (bit(size) - 1) & ~killed;
    job all(run % 2 == 0 ? "all" : "tcp,self");
    for (rank_t r = 0; r < ranks; ++r)
      all.add(r, ranks, [=](auto net, fatal_store&) { return until_all_are_there(std::move(net), r, wanted, true); });
    for (int id = ranks; id < size; ++id)
      all.add_later(id, [=](const auto& store) { return until_all_are_there(join(store), id, wanted, true); });
    all.serve();
    all.wait_for_ranks(ranks);
    for (int id = 0; id < size; ++id) {
      test::rest(0.001 * below(40));
      if (id >= ranks) all.go(id);
    }
    for (int id = 0; id < size; ++id) {
      if ((killed & bit(id)) == 0) continue;
      test::rest(0.001 * below(40));
      ::kill(all[id].id(), SIGKILL);
    }
    for (int id = 0; id < size; ++id) {
      const bool was_killed = (killed & bit(id)) != 0;
      EXPECT_EQ(all[id].status(), was_killed ? -SIGKILL : complete) << "process " << id << " of " << size;
    }
  }
}

} // namespace
} // namespace spar_test
