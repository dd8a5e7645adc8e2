// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of every form over the transport between threads and its decorators.
#include "support/extent.hpp"
#include "support/messages.hpp"

#include <spar/transport/counting.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>

#include <cstdint>

namespace spar_test {
namespace {

template <class Run>
void among_threads(Run run) {
  const std::uint64_t seeds = runs_all_cases() ? 20 : 8;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    for (const bool synchronous : {false, true}) {
      spar::thread_group group(static_cast<spar::rank_t>(2 + seed % 3), {.synchronous = synchronous});
      group.run([&](spar::threads& net) { run(net, seed); });
      for (spar::rank_t r = 0; r < group.size(); ++r) EXPECT_EQ(group.rank(r).memory().live(), 0U);
    }
  }
}

TEST(messages, arrive_over_threads) {
  among_threads([](spar::threads& net, std::uint64_t seed) { exchange_messages<in_host_memory>(net, seed); });
}
TEST(messages, arrive_below_decorators) {
  among_threads([](spar::threads& net, std::uint64_t seed) {
    spar::faulty harmless(net, {});
    spar::counting counted(harmless);
    spar::tracing traced(counted);
    exchange_messages<in_host_memory>(traced, seed);
  });
}

} // namespace
} // namespace spar_test
