// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The simulator: repeatable traces, shared links, deadlock reports that name who waits for whom, and misuse.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

template <class Program>
std::string error_of(spar::simulator& engine, const Program& program) {
  try {
    engine.run([&](spar::sim& net) { return program(net); });
  } catch (const spar::error& e) {
    return e.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct allreduce_twice {
  const std::vector<contribution<float, std::uint32_t>>* inputs;
  std::vector<spar::sparse_stream<float, std::uint32_t>>* results;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto first = spar::start_allreduce(net, (*inputs)[rank].view(), spar::ssar_split{});
    auto second = spar::start_allreduce(net, (*inputs)[rank].view(), spar::rabenseifner{});
    co_await std::move(second);
    auto sum = co_await std::move(first);
    (*results)[rank] = std::move(sum);
  }
};

TEST(simulator, the_same_seed_gives_the_same_trace_and_any_seed_the_same_result) {
  constexpr spar::rank_t ranks = 9;
  const auto inputs = contributions<float, std::uint32_t>(pattern::random, ranks, 2000, 3, real_value<float>);
  struct outcome {
    std::vector<spar::simulator::trace_entry> trace;
    std::vector<spar::sparse_stream<float, std::uint32_t>> results;
    double time;
  };
  const auto simulate = [&](std::uint64_t seed) {
    auto options = random_order(seed);
    options.record = true;
    spar::simulator engine{ranks, options};
    std::vector<spar::sparse_stream<float, std::uint32_t>> results(ranks);
    const allreduce_twice program{&inputs, &results};
    engine.run([&](spar::sim& net) { return program(net); });
    return outcome{engine.trace(), std::move(results), engine.time()};
  };
  const auto first = simulate(1);
  ASSERT_FALSE(first.trace.empty());
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    const auto again = simulate(seed);
    const auto replay = simulate(seed);
    EXPECT_EQ(again.trace, replay.trace) << "seed " << seed;
    EXPECT_EQ(again.time, replay.time);
    EXPECT_EQ(again.trace == first.trace, seed == 1) << "seed " << seed;
    for (std::size_t r = 0; r < first.results.size(); ++r)
      EXPECT_TRUE(same_stream(first.results[r], again.results[r])) << "seed " << seed << ", rank " << r;
  }
}

TEST(simulator, a_trace_has_every_message_in_order_of_arrival) {
  const auto inputs = contributions<float, std::uint32_t>(pattern::identical, 4, 1000, 3, exact_value<float>);
  spar::simulator_options options;
  options.record = true;
  spar::simulator engine{4, options};
  std::vector<spar::sparse_stream<float, std::uint32_t>> results(4);
  const allreduce_twice program{&inputs, &results};
  engine.run([&](spar::sim& net) { return program(net); });
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  for (spar::rank_t r = 0; r < 4; ++r) {
    messages += engine.rank(r).statistics().messages_sent;
    bytes += engine.rank(r).statistics().bytes_sent;
  }
  std::uint64_t traced = 0;
  double last = 0;
  for (const auto& entry : engine.trace()) {
    EXPECT_GE(entry.time, last);
    EXPECT_NE(entry.source, entry.destination);
    last = entry.time;
    traced += entry.bytes;
  }
  EXPECT_EQ(engine.trace().size(), messages);
  EXPECT_EQ(traced, bytes);
}

// --- single messages ---

/// A message whose header has the count `number`.
spar::message_pieces message_of(std::span<const std::byte> payload, std::uint64_t number) {
  spar::message_pieces out;
  out.head.format = spar::wire_format::dense;
  out.head.count = number;
  out.head.lengths[0] = payload.size();
  out.pieces[0] = payload;
  return out;
}

/// Rank `from` sends messages of these sizes to rank `to` at once, and `to` receives them in order.
struct several_messages {
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t>* order;
  std::vector<double>* arrival;
  spar::rank_t from = 0;
  spar::rank_t to = 1;

  spar::task<void> operator()(spar::sim& net) const& {
    std::vector<std::byte> payload(1 << 20);
    if (net.rank() == from) {
      using sending = decltype(net.port().send(message_of(payload, 0), to, 0));
      std::vector<sending> all;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        all.push_back(net.port().send(message_of(std::span(payload).first(sizes[i]), i), to, 3));
      for (auto& one : all) co_await one;
    }
    if (net.rank() == to) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        spar::message_buffer in(net.memory());
        co_await net.port().receive(in, from, 3);
        order->push_back(in.head().count);
        arrival->push_back(net.now());
      }
    }
  }
};

TEST(simulator, messages_of_one_tag_arrive_in_order) {
  for (const spar::rank_t per_host : {1, 2}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      auto options = random_order(seed);
      if (seed == 0) options.jitter = 0;
      options.ranks_per_host = per_host;
      spar::simulator engine{2, options};
      std::vector<std::uint64_t> order;
      std::vector<double> arrival;
      const several_messages program{{100'000, 8, 20'000, 0, 500}, &order, &arrival};
      engine.run([&](spar::sim& net) { return program(net); });
      EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2, 3, 4})) << "seed " << seed << ", per host " << per_host;
    }
  }
}

TEST(simulator, a_message_takes_latency_overhead_and_its_bytes) {
  spar::simulator_options options;
  options.latency = 0x1p-10;
  options.overhead = 0x1p-12;
  options.bandwidth = 0x1p20;
  for (const std::size_t bytes : {0U, 1U, 1024U, 65536U}) {
    spar::simulator engine{2, options};
    std::vector<std::uint64_t> order;
    std::vector<double> arrival;
    const several_messages program{{bytes, bytes}, &order, &arrival};
    engine.run([&](spar::sim& net) { return program(net); });
    const double occupied = 0x1p-12 + static_cast<double>(bytes) * 0x1p-20;
    ASSERT_EQ(arrival.size(), 2U);
    EXPECT_EQ(arrival[0], 0x1p-10 + occupied);
    EXPECT_EQ(arrival[1], 0x1p-10 + 2 * occupied);
    EXPECT_EQ(engine.time(), arrival[1]);
  }
}

/// Every rank but the last `receivers` sends one message of `bytes` bytes to a receiver that its number determines.
struct many_to {
  std::size_t bytes;
  spar::rank_t receivers;
  spar::task<void> operator()(spar::sim& net) const& {
    const spar::rank_t senders = net.size() - receivers;
    const std::vector<std::byte> payload(bytes);
    if (net.rank() < senders) {
      co_await net.port().send(message_of(payload, 0), senders + net.rank() % receivers, 0);
    } else {
      for (spar::rank_t s = net.rank() - senders; s < senders; s += receivers) {
        spar::message_buffer in(net.memory());
        co_await net.port().receive(in, s, 0);
      }
    }
  }
};

double time_of(spar::rank_t ranks, spar::rank_t per_host, const many_to& program) {
  spar::simulator_options options;
  options.latency = 0x1p-10;
  options.bandwidth = 0x1p20;
  options.ranks_per_host = per_host;
  return run_sim(ranks, program, options);
}

TEST(simulator, ranks_of_a_host_share_its_links) {
  const double message = 0x1p-4; // 65536 bytes at 2^20 bytes per second
  // Two senders and two receivers, each on its own host: nothing is shared.
  EXPECT_EQ(time_of(4, 1, {65536, 2}), 0x1p-10 + message);
  // Senders 0 and 1 on one host, receivers 2 and 3 on another: both links carry both messages.
  EXPECT_EQ(time_of(4, 2, {65536, 2}), 0x1p-10 + 2 * message);
  // All on one host: no link.
  EXPECT_EQ(time_of(4, 4, {65536, 2}), 0x1p-10 + message);
  // Three senders, one receiver: they share its incoming link.
  EXPECT_EQ(time_of(4, 1, {65536, 1}), 0x1p-10 + 3 * message);
}

TEST(simulator, a_link_serves_whoever_reaches_it_first) {
  // Rank 0 sends to rank 1 and then to rank 2; rank 1 sends to rank 2 at once. Rank 1's message reaches rank 2's link
  // first and does not wait for rank 0's, although rank 0's message was sent earlier.
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      const std::vector<std::byte> payload(65536);
      if (net.rank() == 0) {
        auto first = net.port().send(message_of(payload, 0), 1, 0);
        auto second = net.port().send(message_of(payload, 0), 2, 0);
        co_await first;
        co_await second;
      } else {
        if (net.rank() == 1) co_await net.port().send(message_of(payload, 0), 2, 0);
        spar::message_buffer in(net.memory());
        co_await net.port().receive(in, 0, 0);
        if (net.rank() == 2) {
          spar::message_buffer other(net.memory());
          co_await net.port().receive(other, 1, 0);
        }
      }
    }
  };
  spar::simulator_options options;
  options.latency = 0x1p-10;
  options.bandwidth = 0x1p20;
  EXPECT_EQ(run_sim(3, program{}, options), 0x1p-10 + 2 * 0x1p-4);
}

TEST(simulator, computing_takes_time) {
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      net.port().compute(static_cast<std::uint64_t>(net.rank()) * 1024);
      co_return;
    }
  };
  spar::simulator_options options;
  options.compute = 0x1p-20;
  EXPECT_EQ(run_sim(4, program{}, options), 3 * 0x1p-10);
}

TEST(simulator, ranks_share_the_cores_that_there_are) {
  const auto program = [](spar::sim& net) -> spar::task<void> {
    net.port().compute(1024);
    net.port().compute(1024); // continues at once if the rank has its own core
    co_return;
  };
  for (const auto& [cores, turns] : {std::pair{0, 2}, {1, 10}, {2, 6}, {5, 2}, {100, 2}}) { // for five ranks
    spar::simulator_options options;
    options.compute = 0x1p-20;
    options.cores = cores;
    spar::simulator engine{5, options};
    engine.run(program);
    EXPECT_DOUBLE_EQ(engine.time(), turns * 0x1p-10) << cores << " cores";
  }
}

TEST(simulator, a_synchronous_send_ends_when_it_is_received) {
  struct program {
    std::array<double, 2>* ends;
    spar::task<void> operator()(spar::sim& net) const& {
      const std::vector<std::byte> payload(16);
      if (net.rank() == 0) {
        co_await net.port().send(message_of(payload, 0), 1, 0);
      } else {
        net.port().compute(1000); // one second, then receives
        spar::message_buffer in(net.memory());
        co_await net.port().receive(in, 0, 0);
      }
      (*ends)[static_cast<std::size_t>(net.rank())] = net.now();
    }
  };
  for (const bool synchronous : {false, true}) {
    spar::simulator_options options;
    options.compute = 1e-3;
    options.synchronous = synchronous;
    std::array<double, 2> ends{};
    run_sim(2, program{&ends}, options);
    if (synchronous) {
      EXPECT_GE(ends[0], 1.0);
    } else {
      EXPECT_LT(ends[0], 1e-3);
    }
  }
}

// --- errors ---

TEST(simulator, a_deadlock_says_who_waits_for_whom) {
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      if (net.rank() == 0) {
        const std::vector<std::byte> payload(16);
        co_await net.port().send(message_of(payload, 0), 2, 5 * spar::max_lanes + 1);
      }
      spar::message_buffer in(net.memory());
      co_await net.port().receive(in, (net.rank() + 1) % net.size(), 3 * spar::max_lanes + 2);
    }
  };
  spar::simulator engine{3};
  EXPECT_THROW(engine.run([p = program{}](spar::sim& net) { return p(net); }), spar::deadlock);
  const std::string text = error_of(engine, program{});
  for (const char* part : {"rank 0 waits for a message from rank 1 (collective 3, lane 2)",
                           "rank 1 waits for a message from rank 2", "rank 2 waits for a message from rank 0",
                           "rank 2 has posted no receive for a message from rank 0", "(collective 5, lane 1)"})
    EXPECT_TRUE(contains(text, part)) << text;
}

/// Awaits nothing of spar, for ever.
struct never {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  void await_resume() const noexcept {}
};

TEST(simulator, a_deadlock_says_which_collectives_are_awaited_and_who_has_not_come) {
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10);
      const never awaited;
      if (net.rank() == 3) co_await awaited;
      const spar::named name{net.rank() == 0 ? "layer1" : "layer 1"};
      auto pending = spar::start_allreduce(net, name, std::span<float>(x), spar::ring{});
      co_await std::move(pending);
    }
  };
  spar::simulator engine{4};
  const std::string text = error_of(engine, program{});
  for (const char* part : {"rank 0 waits for a message from rank 3 (collective named layer1, lane 0)",
                           "rank 1 waits for rank 0 to start the collective named layer 1",
                           "rank 2 waits for rank 0 to start the collective named layer 1",
                           "rank 3 is in no call (calls without a name: 0)"})
    EXPECT_TRUE(contains(text, part)) << text;
}

TEST(simulator, a_rank_that_has_left_is_named) {
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10);
      if (net.rank() == 2) co_return;
      auto pending = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
      co_await std::move(pending);
    }
  };
  spar::simulator engine{4};
  const std::string text = error_of(engine, program{});
  EXPECT_TRUE(contains(text, "rank 2 has left (calls without a name: 0), but rank 3 waits for a message from rank 2"))
      << text;
}

TEST(simulator, blocking_in_a_program_is_refused) {
  struct waits {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10);
      spar::allreduce(net, std::span<float>(x), spar::ring{});
      co_return;
    }
  };
  spar::simulator engine{2};
  const std::string text = error_of(engine, waits{});
  EXPECT_TRUE(contains(text, "rank 0")) << text;
  EXPECT_TRUE(contains(text, "co_await")) << text;
}

TEST(simulator, a_dropped_handle_is_an_error) {
  struct drops {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10);
      {
        const auto dropped = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
      }
      co_return;
    }
  };
  spar::simulator engine{2};
  EXPECT_FALSE(error_of(engine, drops{}).empty());
}

TEST(simulator, done_looks_without_blocking) {
  struct polls {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10, 1.0F);
      auto pending = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
      EXPECT_FALSE(pending.done());
      co_await std::move(pending);
      EXPECT_EQ(x[9], 3.0F);
    }
  };
  run_sim(3, polls{});
}

TEST(simulator, the_first_error_of_a_rank_ends_the_run) {
  struct fails {
    spar::task<void> operator()(spar::sim& net) const& {
      std::vector<float> x(10);
      if (net.rank() == 1) throw std::domain_error("no more data");
      auto pending = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
      co_await std::move(pending);
    }
  };
  spar::simulator engine{3};
  EXPECT_THROW(engine.run([p = fails{}](spar::sim& net) { return p(net); }), std::domain_error);
}

TEST(simulator, impossible_options_are_refused) {
  EXPECT_THROW(spar::simulator{0}, spar::invalid_argument);
  EXPECT_THROW(spar::simulator{-3}, spar::invalid_argument);
  EXPECT_THROW((spar::simulator{2, {.bandwidth = 0}}), spar::invalid_argument);
  EXPECT_THROW((spar::simulator{2, {.bandwidth = -1}}), spar::invalid_argument);
  EXPECT_THROW((spar::simulator{2, {.cores = -1}}), spar::invalid_argument);
  EXPECT_THROW((spar::simulator{2, {.ranks_per_host = 0}}), spar::invalid_argument);
}

TEST(simulator, thousands_of_ranks) {
  struct program {
    spar::task<void> operator()(spar::sim& net) const& {
      const std::array<std::uint32_t, 2> indices{0, 10 + static_cast<std::uint32_t>(net.rank())};
      const std::array<float, 2> values{1, 2};
      auto pending =
          spar::start_allreduce(net, spar::sparse_view(100'000, indices, values), spar::recursive_doubling{});
      const auto sum = co_await std::move(pending);
      EXPECT_EQ(sum.count(), 1025U);
      EXPECT_EQ(sum.values()[0], 1024.0F);
    }
  };
  EXPECT_GT(run_sim(1024, program{}), 0.0);
}

} // namespace
} // namespace spar_test
