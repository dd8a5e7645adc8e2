// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that go on after others have been killed or stopped, by ucx::shrink. The test serves the store, or rank 0,
// whose death then ends all.
#include "rendezvous/processes.hpp"
#include "support/extent.hpp"

#include <spar/ucx.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <csignal>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/socket.h>

namespace spar_test {
namespace {

using spar::rank_t;

std::uint64_t bit(rank_t r) { return std::uint64_t{1} << r; }

constexpr const char* both[] = {"all", "tcp,self"};

/// How the program of a rank ends. GoogleTest's checks do not reach the test from another process.
enum outcome : int {
  complete = 0,
  refused = 10,
  lost_store = 11,
  wrong_sum = 20,
  rank_came_back = 21,
  wrong_number = 22,
  wrong_error = 23
};

/// The sum of 2^id over all ranks in a short message, and in a long one; 0 if they differ.
std::uint64_t members(spar::ucx& net, rank_t id) {
  std::vector<double> few(10, static_cast<double>(bit(id))), many(30'000, static_cast<double>(bit(id)));
  spar::allreduce(net, std::span(few), spar::ring{});
  spar::allreduce(net, std::span(many), spar::ring{});
  for (const double sum : many) {
    if (sum != few[0]) return 0;
  }
  return static_cast<std::uint64_t>(few[0]);
}

/// A signal that a rank sends itself after half of its calls, while the others wait for it in a call.
struct accident {
  rank_t of = -1;
  int signal = 0;
};

/// Makes `calls` calls on `net`, and goes on with the survivors when the calls fail.
int program(spar::ucx& net, rank_t id, std::uint64_t left, std::uint64_t call, std::uint64_t calls,
            const accident& halfway = {}) {
  try {
    std::vector<std::uint64_t> least{call}; // a rank may have completed one call more than others
    spar::allreduce(net, std::span(least), spar::ring{}, spar::minimum{});
    for (call = least[0]; call < calls; ++call) {
      if (id == halfway.of && call == calls / 2) ::raise(halfway.signal);
      const std::uint64_t now = members(net, id);
      if (now == 0 || (now & bit(id)) == 0) return wrong_sum;
      if ((now & ~left) != 0) return rank_came_back;
      if (std::popcount(now) != net.size() || std::popcount(now & (bit(id) - 1)) != net.rank()) return wrong_number;
      left = now;
    }
    return complete;
  } catch (const spar::error&) {
  }
  try {
    spar::ucx rest = net.shrink();
    return program(rest, id, left, call, calls);
  } catch (const spar::peer_failed&) {
    return refused;
  } catch (const spar::transport_error& e) {
    return std::string_view(e.what()).starts_with("the rendezvous at 127.0.0.1, port ") ? lost_store : wrong_error;
  }
}

/// How many processes of a job have met, in memory that they share.
class meeting_count {
 public:
  meeting_count()
      : met_(::new(mmap(nullptr, sizeof(count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) count(0)) {}
  meeting_count(const meeting_count&) = delete;
  ~meeting_count() { munmap(met_, sizeof(count)); }
  void add_one() { *met_ += 1; }
  void wait_for(rank_t all) const {
    while (*met_ < all) test::rest(1e-3);
  }

 private:
  using count = spar::detail::atomic<int>;
  count* met_;
};

/// Who serves the store of a job.
enum class store { of_test, of_rank_0 };

/// The processes of `ranks` ranks, which have met. They use the `transports` of UCX. The thread of the server starts
/// after the processes, for a process that is made while another thread holds a lock of UCX would hang.
class job {
 public:
  job(rank_t ranks, const char* transports, double deadline, std::uint64_t calls, store where_is = store::of_test,
      accident halfway = {}) {
    const spar::rendezvous_options where = test::here(port_.get(), 60);
    for (rank_t r = 0; r < ranks; ++r) {
      processes_.emplace_back([=, this] {
        ::setenv("UCX_TLS", transports, 1);
        std::shared_ptr<spar::rendezvous_store> store_of_job;
        if (r == 0 && where_is == store::of_rank_0)
          store_of_job = std::make_shared<spar::tcp_store_server>(where);
        else
          store_of_job = std::make_shared<spar::tcp_store>(where);
        spar::ucx net(spar::rendezvous(std::move(store_of_job), r, ranks, where));
        net.set_deadline(deadline);
        met_.add_one();
        return program(net, r, bit(ranks) - 1, 0, calls, halfway);
      });
    }
    if (where_is == store::of_test) server_.emplace(where);
    met_.wait_for(ranks);
  }
  test::process& operator[](rank_t r) { return processes_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] int port() const { return port_.get(); }

 private:
  test::reserved_port port_;
  meeting_count met_;
  std::optional<spar::tcp_store_server> server_;
  std::vector<test::process> processes_; // end before the server
};

void sleep_ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

TEST(ucx_shrink, survivors_complete_all_calls) {
  for (const char* const transports : both) {
    for (const rank_t ranks : {2, 4}) {
      const rank_t lost = ranks / 2;
      const test::stopwatch time;
      job all(ranks, transports, 30, 60, store::of_test, {lost, SIGKILL});
      for (rank_t r = 0; r < ranks; ++r) EXPECT_EQ(all[r].status(), r == lost ? -SIGKILL : complete) << r;
      EXPECT_LT(time.seconds(), 15); // not the deadline
    }
  }
}

/// A process that is stopped for longer than the deadline is a stranger when it goes on.
TEST(ucx_shrink, a_stopped_process_is_refused_later) {
  job all(3, both[0], 2.5, 60, store::of_test, {1, SIGSTOP}); // a failed call may take one second to end
  EXPECT_EQ(all[0].status(), complete);
  EXPECT_EQ(all[2].status(), complete);
  ::kill(all[1].id(), SIGCONT);
  EXPECT_EQ(all[1].status(), refused);
}

/// Sends random bytes to the store, if it is still there.
void knock(int port, std::mt19937& random) {
  std::string bytes(random() % 600, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  try {
    const auto socket = test::stranger_at(port);
    [[maybe_unused]] const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } catch (const spar::transport_error&) {
  }
}

/// Kills or stops random ranks at random times, over shared memory or TCP, while strangers knock. All others complete
/// their calls with the right sums. If rank 0 serves the store and dies, the others may get an error that names the
/// store instead.
TEST(ucx_shrink, after_random_kills_and_stops) {
  const std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  const char* const first = std::getenv("SPAR_SEED");
  const unsigned begin = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 0;
  for (unsigned seed = begin; seed < begin + (is_full() ? 1000 : 10) && !testing::Test::HasFailure(); ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const rank_t ranks = 2 + below(7), healthy = below(ranks);
    const char* const transports = both[below(2)];
    const bool stops = is_full() && seed % 20 == 7; // which takes seconds
    const store where = below(3) == 0 ? store::of_rank_0 : store::of_test;
    SCOPED_TRACE(testing::Message() << "SPAR_SEED=" << seed << ": " << ranks << " ranks over " << transports
                                    << (where == store::of_rank_0 ? ", rank 0 serves the store" : ""));
    const test::stopwatch time;
    job all(ranks, transports, stops ? 3 : 30, 60, where);
    std::vector<int> signals(static_cast<std::size_t>(ranks));
    for (rank_t r = 0; r < ranks; ++r) {
      if (below(8) == 0) knock(all.port(), random);
      if (r == healthy || below(2) == 0) continue;
      sleep_ms(below(60));
      // A stopped process that serves the store would hold up the others until the store's own deadline.
      const bool may_stop = stops && !(r == 0 && where == store::of_rank_0);
      signals[static_cast<std::size_t>(r)] = may_stop && below(2) == 0 ? SIGSTOP : SIGKILL;
      ::kill(all[r].id(), signals[static_cast<std::size_t>(r)]);
    }
    const auto check = [&](rank_t r) {
      const int signal = signals[static_cast<std::size_t>(r)], status = all[r].status();
      EXPECT_TRUE(status == complete || (signal == SIGKILL && status == -SIGKILL) ||
                  (signal == SIGSTOP && status == refused) ||
                  (where == store::of_rank_0 && r > 0 && status == lost_store))
          << "rank " << r << " with the signal " << signal << ": " << status;
    };
    for (rank_t r = 0; r < ranks; ++r) {
      if (signals[static_cast<std::size_t>(r)] != SIGSTOP) check(r);
    }
    for (rank_t r = 0; r < ranks; ++r) {
      if (signals[static_cast<std::size_t>(r)] != SIGSTOP) continue;
      ::kill(all[r].id(), SIGCONT);
      check(r);
    }
    EXPECT_LT(time.seconds(), 60);
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::running_threads(), threads);
}

} // namespace
} // namespace spar_test
