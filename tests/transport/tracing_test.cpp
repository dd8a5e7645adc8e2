// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Traces are JSON that a viewer can open: as many events as `counting` has counted, each row in order and without
// overlaps, and an arrow for each message; times are exact in virtual time.
#include "support/ranks.hpp"

#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using nlohmann::json;

/// The events that each rank traced, and the messages that it counted.
struct traces {
  explicit traces(spar::rank_t ranks)
      : events(static_cast<std::size_t>(ranks)), sent(events.size()), received(events.size()) {}
  std::vector<std::string> events;
  std::vector<std::uint64_t> sent, received, bytes;
};

struct traced_calls {
  traces* result;
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::tracing<Net> traced{inner};
    spar::counting<spar::tracing<Net>> net{traced};
    const auto rank = static_cast<std::size_t>(net.rank());
    std::vector<float> x(3000, 1.0F);
    std::vector<float> y(50, 1.0F);
    auto first = spar::start_allreduce(net, std::span(x), spar::ring{});
    auto second = spar::start_allreduce(net, std::span(y), spar::rabenseifner{});
    co_await std::move(second);
    co_await std::move(first);
    result->events[rank] = traced.events();
    result->sent[rank] = net.sent().messages;
    result->received[rank] = net.received().messages;
  }
};

std::uint64_t count(const json& all, std::size_t rank, const std::string& category) {
  return static_cast<std::uint64_t>(std::count_if(all.begin(), all.end(), [&](const json& e) {
    return e["ph"] == "X" && e["pid"] == rank && e.value("cat", "") == category;
  }));
}

/// Whole nanoseconds.
std::int64_t nanoseconds(const json& microseconds) { return std::llround(microseconds.get<double>() * 1e3); }

/// Each row has its events in order; an event ends before the next one begins, or encloses it.
void check_rows(const json& all) {
  std::map<std::pair<int, int>, std::vector<std::pair<std::int64_t, std::int64_t>>> open; // by row: begin and end
  std::map<std::pair<int, int>, std::int64_t> last;
  for (const json& e : all) {
    if (e["ph"] != "X") continue;
    const std::pair<int, int> row(e["pid"], e["tid"]);
    const std::int64_t begin = nanoseconds(e["ts"]);
    const std::int64_t end = begin + nanoseconds(e["dur"]);
    ASSERT_GE(nanoseconds(e["dur"]), 0);
    ASSERT_GE(begin, last[row]);
    last[row] = begin;
    auto& around = open[row];
    while (!around.empty() && around.back().second <= begin) around.pop_back();
    if (e["name"] == "wait") {
      ASSERT_TRUE(begin == end || !around.empty());
    } else {
      ASSERT_TRUE(around.empty()) << e;
    }
    if (!around.empty()) {
      ASSERT_LE(end, around.back().second) << e;
    }
    around.emplace_back(begin, end);
  }
}

/// Each arrow begins once and ends once, on the other rank.
void check_arrows(const json& all, std::uint64_t messages) {
  std::map<std::uint64_t, json> begun;
  std::uint64_t ends = 0;
  for (const json& e : all) {
    if (e["ph"] != "s") continue;
    ASSERT_TRUE(begun.emplace(e["id"].get<std::uint64_t>(), e).second);
  }
  for (const json& e : all) {
    if (e["ph"] != "f") continue;
    const auto from = begun.find(e["id"].get<std::uint64_t>());
    ASSERT_NE(from, begun.end());
    EXPECT_NE(from->second["pid"], e["pid"]);
    EXPECT_LE(from->second["ts"].get<double>(), e["ts"].get<double>() + 0.001);
    ++ends;
  }
  EXPECT_EQ(begun.size(), messages);
  EXPECT_EQ(ends, messages);
}

TEST(tracing, has_every_message_that_is_counted) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      traces result(ranks);
      run(where, ranks, traced_calls{&result});
      const json all = json::parse(spar::trace_file(result.events));
      std::uint64_t messages = 0;
      for (std::size_t r = 0; r < result.events.size(); ++r) {
        EXPECT_EQ(count(all, r, "send"), result.sent[r]);
        EXPECT_EQ(count(all, r, "receive"), result.received[r]);
        messages += result.sent[r];
      }
      ASSERT_NO_FATAL_FAILURE(check_rows(all));
      ASSERT_NO_FATAL_FAILURE(check_arrows(all, messages));
    }
  }
}

/// One dense exchange of `n` values between two ranks.
struct exchange {
  std::vector<std::string>* events;
  std::size_t n = 125; // 1000 bytes
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::tracing<Net> net{inner};
    std::vector<double> x(n, 1.0);
    auto pending = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    co_await std::move(pending);
    (*events)[static_cast<std::size_t>(net.rank())] = net.events();
  }
};

TEST(tracing, is_exact_in_virtual_time) {
  std::vector<std::string> events(2);
  run_sim(2, exchange{&events}, {.latency = 1e-3, .bandwidth = 1e6, .compute = 1e-6});
  const json all = json::parse(spar::trace_file(std::span(events).first(1)));
  std::map<std::string, json> named;
  for (const json& e : all)
    if (e["ph"] == "X") named[e["name"]] = e;
  // The message takes 1000 us on the link, and 1000 us of latency.
  EXPECT_EQ(named["send to 1"]["ts"], 0.0);
  EXPECT_EQ(named["send to 1"]["args"], (json{{"peer", 1}, {"bytes", 1000}, {"collective", 0}, {"lane", 0}}));
  EXPECT_EQ(named["receive from 1"]["ts"], 0.0);
  EXPECT_EQ(named["receive from 1"]["dur"], 2000.0);
  EXPECT_EQ(named["receive from 1"]["args"]["bytes"], 1000);
  EXPECT_EQ(named["wait"]["dur"], 2000.0);
  EXPECT_EQ(named["compute"]["ts"], 2000.0);
  EXPECT_EQ(named["compute"]["dur"], 125.0);
  EXPECT_EQ(named["compute"]["args"]["entries"], 125);
}

/// Two exchanges, of which only the second is recorded.
struct second_exchange {
  std::vector<std::string>* events;
  spar::traced_seconds* seconds;
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::tracing<Net> net{inner};
    net.record(false);
    std::vector<double> x(125, 1.0);
    for (const bool on : {false, true, false}) {
      net.record(on);
      auto pending = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
      co_await std::move(pending);
    }
    const auto rank = static_cast<std::size_t>(net.rank());
    (*events)[rank] = net.events();
    if (rank == 0) *seconds = net.seconds();
    net.clear();
    EXPECT_EQ(net.seconds().wait, 0);
    EXPECT_EQ(count(json::parse(spar::trace_file(std::vector{net.events()})), rank, "send"), 0U);
  }
};

TEST(tracing, records_only_while_it_is_on) {
  std::vector<std::string> events(2);
  spar::traced_seconds seconds;
  run_sim(2, second_exchange{&events, &seconds}, {.latency = 1e-3, .bandwidth = 1e6, .compute = 1e-6});
  const json all = json::parse(spar::trace_file(events));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(count(all, rank, "send"), 1U);
    EXPECT_EQ(count(all, rank, "receive"), 1U);
    EXPECT_EQ(count(all, rank, "wait"), 1U);
  }
  EXPECT_NEAR(seconds.wait, 2e-3, 1e-9);
  EXPECT_NEAR(seconds.compute, 125e-6, 1e-9);
}

/// Clears the record while a message is in flight.
struct clears {
  std::vector<std::string>* events;
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::tracing<Net> net{inner};
    std::vector<double> x(2000, 1.0), y(125, 1.0);
    auto first = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    net.clear();
    auto second = spar::start_allreduce(net, std::span(y), spar::recursive_doubling{});
    co_await std::move(first);
    co_await std::move(second);
    (*events)[static_cast<std::size_t>(net.rank())] = net.events();
  }
};

TEST(tracing, clearing_forgets_operations_in_flight) {
  std::vector<std::string> events(2);
  run_sim(2, clears{&events}, {.latency = 1e-3, .bandwidth = 1e6, .compute = 1e-6});
  const json all = json::parse(spar::trace_file(events));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(count(all, rank, "send"), 1U);
    EXPECT_EQ(count(all, rank, "receive"), 1U);
  }
  ASSERT_NO_FATAL_FAILURE(check_rows(all));
}

TEST(tracing, waiting_does_not_count_while_the_rank_computes) {
  using event = spar::detail::traced_event;
  const auto computation = [](std::int64_t begin, std::int64_t end) {
    return event{.what = event::kind::compute, .ended = true, .begin = begin, .end = end};
  };
  const auto receive = [](std::int64_t waits, std::int64_t end, bool ended = true) {
    return event{.what = event::kind::receive, .ended = ended, .waits = waits, .end = end};
  };
  // Two waits overlap each other and a computation; a receive that nobody awaits and one in flight do not count.
  const std::vector<event> events{receive(100, 300), receive(200, 500),      computation(250, 350),
                                  receive(-1, 900),  receive(600, 0, false), computation(700, 800)};
  const spar::traced_seconds seconds = spar::detail::seconds_of(events);
  EXPECT_NEAR(seconds.wait, 300e-9, 1e-15);
  EXPECT_NEAR(seconds.compute, 200e-9, 1e-15);
}

TEST(tracing, computations_take_time_on_threads) {
  std::vector<std::string> events(2);
  const double begin = spar::endpoint::now();
  run_threads(2, exchange{&events, 1'000'000});
  const double end = spar::endpoint::now();
  const json all = json::parse(spar::trace_file(events));
  for (int rank = 0; rank < 2; ++rank) {
    double received = end * 1e6;
    int computations = 0;
    for (const json& e : all) {
      if (e["ph"] != "X" || e["pid"] != rank) continue;
      if (e.value("cat", "") == "receive") received = e["ts"].get<double>() + e["dur"].get<double>();
      if (e["name"] != "compute") continue;
      ++computations;
      EXPECT_GT(e["dur"].get<double>(), 50);                                     // a million sums take longer
      EXPECT_GE(e["ts"].get<double>(), std::max(received - 0.002, begin * 1e6)); // the trace is written in nanoseconds
      EXPECT_LE(e["ts"].get<double>() + e["dur"].get<double>(), end * 1e6);
    }
    EXPECT_EQ(computations, 1);
  }
}

struct cancelled_call {
  std::vector<std::string>* events;
  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::tracing<Net> net{inner};
    std::vector<float> x(100, 1.0F);
    net.set_deadline(0.01);
    if (net.rank() == 0) {
      auto pending = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
      try {
        co_await std::move(pending);
      } catch (const spar::error&) { // rank 1 has left
      }
    }
    (*events)[static_cast<std::size_t>(net.rank())] = net.events();
  }
};

TEST(tracing, says_what_was_cancelled) {
  std::vector<std::string> events(2);
  run(mode::sim_synchronous, 2, cancelled_call{&events});
  const json all = json::parse(spar::trace_file(events));
  EXPECT_EQ(count(all, 0, "receive"), 1U);
  EXPECT_EQ(count(all, 1, "receive"), 0U);
  for (const json& e : all) {
    EXPECT_NE(e["ph"], "f");
    if (e.value("cat", "") != "receive") continue;
    EXPECT_EQ(e["args"]["cancelled"], true);
  }
}

} // namespace
} // namespace spar_test
