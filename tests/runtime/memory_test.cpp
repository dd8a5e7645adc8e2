// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails, whichever it is: the rank gets std::bad_alloc, the other ranks get this reason, and
// nothing leaks, with ranks that are threads.
#include "support/extent.hpp"
#include "support/memory_programs.hpp"

#include <spar/runtime/progress_thread.hpp>
#include <spar/sim.hpp>
#include <spar/transport/threads.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

template <template <class> class Program>
void each_allocation_fails(const spar::thread_options& options = {}) {
  for (const spar::rank_t ranks : {2, 3}) {
    for (spar::rank_t failing = 0; failing < ranks; ++failing) {
      bool failed = true;
      for (std::uint64_t number = 1; failed; ++number) {
        spar::thread_group group(ranks, options);
        std::vector<memory_outcome> ended(static_cast<std::size_t>(ranks));
        group.run([&](spar::threads& net) {
          ended[static_cast<std::size_t>(net.rank())] =
              run_without_memory<Program>(net, net.rank() == failing ? number : 0);
        });
        const memory_outcome& first = ended[static_cast<std::size_t>(failing)];
        failed = first.failed;
        for (spar::rank_t r = 0; r < ranks; ++r) {
          SCOPED_TRACE(testing::Message() << "allocation " << number << " of rank " << failing << " of " << ranks);
          expect_right_end(ended[static_cast<std::size_t>(r)], r, failing, first.dead);
          EXPECT_EQ(group.rank(r).memory().live(), 0U);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(memory, of_blocking_calls) { each_allocation_fails<blocking_calls>(); }
TEST(memory, of_nonblocking_calls) { each_allocation_fails<nonblocking_calls>(); }
TEST(memory, of_other_collectives) { each_allocation_fails<other_collectives>(); }
TEST(memory, of_partial_calls) { each_allocation_fails<partial_calls>(); }
TEST(memory, of_fused_calls) { each_allocation_fails<fused_calls>(); }

/// Calls `make` with each of its allocations failing, one at a time, until none fails. Returns how many have failed.
template <class Make>
std::uint64_t failures_of(Make make) {
  for (std::uint64_t number = 1;; ++number) {
    try {
      const failing_allocation failing(number);
      make();
      if (!failing.failed()) return number - 1;
    } catch (const std::bad_alloc&) {
    } catch (const spar::peer_failed& e) { // of a call beside the failed one
      const std::string text = e.what();
      EXPECT_NE(text.find("(this rank) failed, so its communicator is dead: std::bad_alloc"), text.npos) << text;
    }
  }
}

TEST(memory, of_construction) {
  EXPECT_GT(failures_of([] { const spar::thread_group group(3); }), 0U);
  EXPECT_GT(failures_of([] { const spar::simulator ranks(3, {.jitter = 1e-6, .seed = 1}); }), 0U);
  spar::thread_group group(1);
  EXPECT_GT(failures_of([&] { const spar::progress_thread thread(group.rank(0)); }), 0U);
  EXPECT_EQ(group.rank(0).port().node().shared(), nullptr); // no thread is left registered
}

TEST(memory, of_saved_states) {
  spar::thread_group group(1);
  spar::ok_topk<float> reduce{{.select = {.k = 1}}}, loaded{{.select = {.k = 1}}};
  ones x(10);
  reduce(group.rank(0), x);
  std::vector<std::byte> saved;
  EXPECT_GT(failures_of([&] { saved = reduce.save(); }), 0U);
  EXPECT_GT(failures_of([&] {
              if (loaded.residual().empty()) loaded.load(saved);
            }),
            0U);
  EXPECT_EQ(loaded.save(), saved);
  EXPECT_GT(failures_of([&] { loaded.take_over(saved); }), 0U);
  EXPECT_EQ(loaded.residual()[9], 2 * reduce.residual()[9]); // added once
}

/// In the simulator, `run` throws the error of the rank.
TEST(memory, in_the_simulator) {
  EXPECT_GT(failures_of([] {
              spar::simulator ranks(3);
              ranks.run([](spar::sim& net) -> spar::task<void> {
                std::vector<float> x(3000, 1.0F);
                auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
                auto other = spar::start_allreduce(net, spar::named{"other"}, std::span(x).first(10), spar::ring{});
                co_await std::move(other);
                co_await std::move(call);
              });
            }),
            20U);
}

#if SPAR_ALL_CASES
TEST(memory, of_synchronous_calls) { each_allocation_fails<blocking_calls>({.synchronous = true}); }
TEST(memory, of_calls_with_checksums) { each_allocation_fails<calls_with_checksums>(); }
TEST(memory, of_calls_on_streams) { each_allocation_fails<calls_on_streams>(); }
TEST(memory, of_partial_steps) { each_allocation_fails<partial_steps>(); }
TEST(memory, of_feedback_steps) { each_allocation_fails<feedback_steps>(); }
#endif

} // namespace
} // namespace spar_test
