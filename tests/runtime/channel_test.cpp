// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The channel of a call: which message a receive gets, what is counted, and what is refused.
#include "support/ranks.hpp"

#include <spar/collective/algorithm.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/storage/wire.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spar_test {
namespace {

/// Runs `Algorithm` as one call on a rank, and keeps its statistics.
template <class Algorithm>
struct one_call {
  Algorithm algorithm;
  std::vector<spar::statistics>* cost;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(7, algorithm);
    auto pending = spar::start_collective(net, agreed, algorithm);
    co_await pending;
    (*cost)[static_cast<std::size_t>(net.rank())] = pending.statistics();
  }
};
template <class Algorithm>
std::vector<spar::statistics> run_call(mode where, spar::rank_t ranks, const Algorithm& algorithm) {
  std::vector<spar::statistics> cost(static_cast<std::size_t>(ranks));
  run(where, ranks, one_call<Algorithm>{algorithm, &cost});
  return cost;
}

/// Each rank sends vectors of 0, 1 and 7 values to the next rank.
struct three_messages : spar::algorithm_defaults {
  static constexpr std::string_view name = "three_messages";
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    const spar::rank_t p = net.size();
    const auto mine = static_cast<float>(net.rank()), theirs = static_cast<float>((net.rank() + p - 1) % p);
    for (const std::size_t length : {0U, 1U, 7U}) {
      spar::buffer<float> x(net.memory(), length);
      for (float& v : x.span()) v = mine + static_cast<float>(length) / 8;
      auto sending = net.send((net.rank() + 1) % p, spar::view_message<float>(x.span()));
      spar::message_buffer in(net.memory());
      co_await net.receive((net.rank() + p - 1) % p, in);
      EXPECT_EQ(in.template piece<float>(0).size(), length);
      for (const float v : in.template piece<float>(0)) EXPECT_EQ(v, theirs + static_cast<float>(length) / 8);
      in.release();
      co_await sending;
    }
  }
};

TEST(channel, counts_every_message_and_byte) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {2, 3, 5}) {
      for (const auto& c : run_call(where, ranks, three_messages{})) {
        EXPECT_EQ(c.messages_sent, 3U) << where;
        EXPECT_EQ(c.messages_received, 3U) << where;
        EXPECT_EQ(c.bytes_sent, 8 * sizeof(float)) << where;
        EXPECT_EQ(c.bytes_received, 8 * sizeof(float)) << where;
        EXPECT_EQ(c.plain_bytes_sent, c.bytes_sent) << where;
        EXPECT_EQ(c.header_bytes_sent, 3 * sizeof(spar::header)) << where;
        EXPECT_EQ(c.header_bytes_received, 3 * sizeof(spar::header)) << where;
      }
    }
  }
}

/// Rank 0 sends on lane 1, then on lane 0; rank 1 receives from lane 0 first.
struct lanes_overtake : spar::algorithm_defaults {
  static constexpr std::string_view name = "lanes_overtake";
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    spar::buffer<float> x(net.memory(), 2);
    x.data()[0] = 10, x.data()[1] = 11;
    if (net.rank() == 0) {
      auto late = net.lane(1).send(1, spar::view_message<float>(std::span<const float>(x.data() + 1, 1)));
      auto early = net.lane(0).send(1, spar::view_message<float>(std::span<const float>(x.data(), 1)));
      co_await early;
      co_await late;
      co_return;
    }
    spar::message_buffer first(net.memory()), second(net.memory());
    co_await net.lane(0).receive(0, first);
    co_await net.lane(1).receive(0, second);
    EXPECT_EQ(first.template piece<float>(0)[0], 10.0F);
    EXPECT_EQ(second.template piece<float>(0)[0], 11.0F);
  }
};

TEST(channel, gives_a_receive_the_message_of_its_lane) {
  for (const mode where : all_modes) run_call(where, 2, lanes_overtake{});
}

/// In the reverse order of ranks, number i sends its rank to number i + 1.
struct reversed : spar::algorithm_defaults {
  static constexpr std::string_view name = "reversed";
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> plain) const& {
    const spar::rank_t p = plain.size();
    spar::buffer<spar::rank_t> order(plain.memory(), static_cast<std::size_t>(p));
    for (spar::rank_t r = 0; r < p; ++r) order.data()[r] = p - 1 - r;
    const auto net = plain.in_order({order.data(), order.data()});
    EXPECT_EQ(net.rank(), p - 1 - plain.rank());
    spar::buffer<float> x(net.memory(), 1);
    x.data()[0] = static_cast<float>(plain.rank());
    auto sending = net.send((net.rank() + 1) % p, spar::view_message<float>(x.span()));
    spar::message_buffer in(net.memory());
    co_await net.receive((net.rank() + p - 1) % p, in);
    EXPECT_EQ(in.template piece<float>(0)[0], static_cast<float>((plain.rank() + 1) % p));
    in.release();
    co_await sending;
  }
};

TEST(channel, in_another_order_reaches_the_ranks_by_their_numbers) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {2, 3, 5}) run_call(where, ranks, reversed{});
  }
}

/// What the ranks of a failing call report.
template <class Algorithm>
std::vector<std::string> errors_of(spar::rank_t ranks, const Algorithm& algorithm) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  spar::thread_group group{ranks};
  group.run([&](spar::threads& net) {
    try {
      const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(7, algorithm);
      spar::run_collective(net, agreed, algorithm);
    } catch (const spar::error& e) {
      said[static_cast<std::size_t>(net.rank())] = e.what();
    }
  });
  return said;
}

struct to_a_bad_rank : spar::algorithm_defaults {
  static constexpr std::string_view name = "to_a_bad_rank";
  spar::rank_t peer;
  explicit to_a_bad_rank(spar::rank_t to) : peer(to) {}
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    spar::buffer<float> x(net.memory(), 1);
    x.data()[0] = 0;
    co_await net.send(peer, spar::view_message<float>(x.span()));
  }
};

TEST(channel, refuses_to_send_to_its_own_rank_and_beyond_the_last) {
  for (const spar::rank_t peer : {0, 1, -1}) {
    EXPECT_NE(errors_of(1, to_a_bad_rank{peer})[0].find("its own rank or not in [0, P)"), std::string::npos) << peer;
  }
}

/// The ranks choose different algorithms.
struct differing : spar::algorithm_defaults {
  static constexpr std::string_view name = "differing";
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> plain) const& {
    const auto net = plain.with_algorithm(plain.rank() == 0 ? "left" : "right");
    spar::buffer<float> x(net.memory(), 1);
    x.data()[0] = 0;
    auto sending = net.send(1 - net.rank(), spar::view_message<float>(x.span()));
    spar::message_buffer in(net.memory());
    co_await net.receive(1 - net.rank(), in);
    in.release();
    co_await sending;
  }
};

TEST(channel, names_the_algorithms_that_ranks_have_chosen_differently) {
  const auto said = errors_of(2, differing{});
  EXPECT_NE((said[0] + said[1]).find("right"), std::string::npos) << said[0] << "\n" << said[1];
  EXPECT_FALSE(said[0].empty() || said[1].empty());
}

} // namespace
} // namespace spar_test
