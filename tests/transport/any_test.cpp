// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport exchanges the same messages as the rank that it wraps, gives up operations that are not awaited, and
// passes on failures. The conformance tests run every algorithm on an any_transport.
#include "support/ranks.hpp"

#include <spar/transport/counting.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

/// Counts the messages of three calls, of which one is never awaited.
struct counted {
  std::vector<spar::counted_traffic>* sent;
  std::size_t n;
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::counting<Net> net{inner};
    std::vector<float> x(n, static_cast<float>(net.rank() + 1)), y(n, 1.0F);
    auto first = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    auto second = spar::start_allreduce(net, std::span(y), spar::ring{});
    co_await std::move(second);
    co_await std::move(first);
    const auto p = static_cast<float>(net.size());
    EXPECT_EQ(x, std::vector<float>(n, p * (p + 1) / 2));
    EXPECT_EQ(y, std::vector<float>(n, p));
    EXPECT_EQ(net.last_call().bytes_sent, inner.last_call().bytes_sent);
    (*sent)[static_cast<std::size_t>(net.rank())] = net.sent();
  }
};

TEST(any_transport, sends_what_the_wrapped_rank_sends) {
  for (const spar::rank_t ranks : all_ranks) {
    for (const std::size_t n : {1U, 5000U}) { // in the header of a message, and from the memory of the sender
      std::vector<spar::counted_traffic> sent(static_cast<std::size_t>(ranks)), sent_by_any(sent.size());
      for (const bool synchronous : {false, true}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, n = " << n << ", synchronous " << synchronous);
        run_threads(ranks, counted{&sent, n}, {.synchronous = synchronous});
        run_threads<spar::any_transport>(ranks, counted{&sent_by_any, n}, {.synchronous = synchronous});
        EXPECT_EQ(sent, sent_by_any);
        run_sim<spar::any_transport>(ranks, counted{&sent_by_any, n}, {.synchronous = synchronous});
        EXPECT_EQ(sent, sent_by_any);
      }
    }
  }
}

TEST(any_transport, takes_the_same_virtual_time) {
  std::vector<spar::counted_traffic> sent(5);
  const spar::simulator_options options{.latency = 1e-5, .bandwidth = 1e8, .compute = 1e-9};
  EXPECT_EQ(run_sim(5, counted{&sent, 5000}, options), run_sim<spar::any_transport>(5, counted{&sent, 5000}, options));
}

/// Rank 1 fails before its call, for which the other ranks wait.
struct fails {
  std::vector<std::string>* ends;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(5000, 1.0F);
    try {
      if (net.rank() == 1) throw spar::error("rank 1 has failed");
      auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
      co_await std::move(call);
    } catch (const spar::error& e) {
      (*ends)[static_cast<std::size_t>(net.rank())] = e.what();
      if (net.rank() == 1) throw;
    }
  }
};

TEST(any_transport, gives_up_sends_and_receives_and_passes_on_the_failure) {
  for (const bool synchronous : {false, true}) {
    std::vector<std::string> ends(4);
    try {
      run_threads<spar::any_transport>(4, fails{&ends}, {.synchronous = synchronous});
      FAIL() << "no error";
    } catch (const spar::error& e) {
      EXPECT_STREQ(e.what(), "rank 1 has failed");
    }
    for (const std::size_t r : {0U, 2U, 3U}) EXPECT_NE(ends[r].find("rank 1"), std::string::npos) << ends[r];
  }
}

} // namespace
} // namespace spar_test
