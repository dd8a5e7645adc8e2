// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Handles of calls: results in any order of waiting, errors, cancellation, and what a call must have done at its end.
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Each rank sends its rank and `add` to the next rank; the result is what arrives.
struct from_the_left : spar::algorithm_defaults {
  static constexpr std::string_view name = "from_the_left";
  float add;
  explicit from_the_left(float a) : add(a) {}
  template <class Net>
  spar::task<float> operator()(spar::channel<Net> net) const& {
    const spar::rank_t p = net.size();
    spar::buffer<float> x(net.memory(), 1);
    x.data()[0] = static_cast<float>(net.rank()) + add;
    auto sending = net.send((net.rank() + 1) % p, spar::view_message<float>(x.span()));
    spar::message_buffer in(net.memory());
    co_await net.receive((net.rank() + p - 1) % p, in);
    const float got = in.template piece<float>(0)[0];
    in.release();
    co_await sending;
    co_return got;
  }
};

template <class Algorithm>
auto start(spar::threads& net, const Algorithm& algorithm) {
  return spar::start_collective(net, spar::signature_of<float, std::uint32_t, spar::sum>(1, algorithm), algorithm);
}

/// Runs `on_rank` on `ranks` threads; returns the errors of the ranks, empty if there was none.
template <class F>
std::vector<std::string> errors_of(spar::rank_t ranks, F on_rank) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  spar::thread_group group{ranks};
  group.run([&](spar::threads& net) {
    try {
      on_rank(net);
    } catch (const std::exception& e) {
      said[static_cast<std::size_t>(net.rank())] = e.what();
    }
  });
  return said;
}

TEST(pending, gives_its_result_in_any_order_of_waiting) {
  for (const std::string& said : errors_of(3, [](spar::threads& net) {
         const auto left = static_cast<float>((net.rank() + 2) % 3);
         auto first = start(net, from_the_left{10});
         auto second = start(net, from_the_left{20});
         auto third = start(net, from_the_left{30});
         EXPECT_EQ(third.wait(), left + 30);
         while (!first.done()) {
         }
         EXPECT_EQ(first.wait(), left + 10);
         EXPECT_EQ(second.wait(), left + 20);
         EXPECT_EQ(second.statistics().messages_sent, 1U);
         EXPECT_EQ(second.statistics().bytes_sent, sizeof(float));
       })) {
    EXPECT_EQ(said, "");
  }
}

TEST(pending, waits_for_a_limited_time) {
  using clock = std::chrono::steady_clock;
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    if (net.rank() == 1) {
      spar::barrier(net);
      spar::barrier(net);
      return spar::barrier(net);
    }
    spar::barrier(net);
    auto second = spar::start_barrier(net);
    EXPECT_TRUE(second.wait_for(__builtin_inf()));
    EXPECT_TRUE(second.wait_for(0)) << "a call that has ended";
    auto third = spar::start_barrier(net);
    EXPECT_THROW((void)third.wait_for(-1), spar::invalid_argument);
    EXPECT_THROW((void)third.wait_for(__builtin_nan("")), spar::invalid_argument);
    third.wait();
    auto moved = std::move(third);
    EXPECT_TRUE(moved.wait_for(1));
    EXPECT_THROW((void)third.wait_for(1), spar::invalid_argument);
  });
  spar::threads& alone = group.rank(0);
  auto call = spar::start_barrier(alone); // the other rank calls only after the wait
  const auto begin = clock::now();
  EXPECT_FALSE(call.wait_for(0.02));
  EXPECT_GE(clock::now() - begin, std::chrono::milliseconds(20));
  EXPECT_LT(clock::now() - begin, std::chrono::milliseconds(900)) << "slept until the rank asks its peer";
  std::thread other([&] { spar::barrier(group.rank(1)); });
  EXPECT_TRUE(call.wait_for(600));
  other.join();
}

TEST(pending, may_move_and_be_destroyed_before_its_end) {
  for (const std::string& said : errors_of(2, [](spar::threads& net) {
         auto first = start(net, from_the_left{1});
         auto moved = std::move(first);
         auto kept = start(net, from_the_left{2});
         EXPECT_EQ(moved.wait(), static_cast<float>(1 - net.rank()) + 1);
         EXPECT_EQ(kept.wait(), static_cast<float>(1 - net.rank()) + 2);
       })) {
    EXPECT_EQ(said, "");
  }
}

TEST(pending, that_outlives_its_communicator_keeps_its_result) {
  std::vector<std::optional<spar::pending<spar::threads, float>>> kept(2);
  {
    spar::thread_group group{2};
    group.run([&](spar::threads& net) {
      auto call = start(net, from_the_left{5});
      while (!call.done()) {
      }
      EXPECT_EQ(call.statistics().messages_sent, 1U);
      kept[static_cast<std::size_t>(net.rank())].emplace(std::move(call));
    });
  }
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(kept[rank]->done());
    EXPECT_EQ(kept[rank]->statistics().messages_sent, 0U);
    EXPECT_EQ(kept[rank]->wait(), static_cast<float>(1 - rank) + 5);
  }
}

struct failing : spar::algorithm_defaults {
  static constexpr std::string_view name = "failing";
  template <class Net>
  spar::task<float> operator()(spar::channel<Net> net) const& {
    if (net.rank() == 1) throw std::runtime_error("no more steps");
    spar::message_buffer in(net.memory());
    co_await net.receive(1, in);
    co_return 0.0F;
  }
};

TEST(pending, throws_the_error_of_its_call_from_wait_alone) {
  const auto said = errors_of(3, [](spar::threads& net) {
    auto call = start(net, failing{});
    while (!call.done()) {
    }
    call.wait();
  });
  EXPECT_EQ(said[1], "no more steps");
  for (const int other : {0, 2}) {
    EXPECT_NE(said[static_cast<std::size_t>(other)].find("no more steps"), std::string::npos) << other;
    EXPECT_NE(said[static_cast<std::size_t>(other)], "no more steps") << other;
  }
}

struct waiting : spar::algorithm_defaults {
  static constexpr std::string_view name = "waiting";
  template <class Net>
  spar::task<float> operator()(spar::channel<Net> net) const& {
    spar::message_buffer in(net.memory());
    co_await net.receive((net.rank() + 1) % net.size(), in);
    co_return 0.0F;
  }
};

TEST(pending, that_is_cancelled_ends_on_all_ranks) {
  for (const std::string& said : errors_of(3, [](spar::threads& net) {
         auto call = start(net, waiting{});
         if (net.rank() == 2) call.cancel();
         call.wait();
       })) {
    EXPECT_NE(said.find("a call was cancelled"), std::string::npos) << said;
  }
}

/// Rank 0 sends two messages, and then one on another lane; rank 1 receives only the first and the last.
struct one_message_too_many : spar::algorithm_defaults {
  static constexpr std::string_view name = "one_message_too_many";
  template <class Net>
  spar::task<float> operator()(spar::channel<Net> net) const& {
    spar::buffer<float> x(net.memory(), 1);
    x.data()[0] = 0;
    if (net.rank() == 0) {
      co_await net.send(1, spar::view_message<float>(x.span()));
      co_await net.send(1, spar::view_message<float>(x.span()));
      co_await net.lane(1).send(1, spar::view_message<float>(x.span()));
      co_return 0.0F;
    }
    spar::message_buffer in(net.memory()), last(net.memory());
    co_await net.receive(0, in);
    co_await net.lane(1).receive(0, last);
    co_return 0.0F;
  }
};

TEST(pending, ends_in_mismatch_if_a_message_is_left_over) {
  const auto said = errors_of(2, [](spar::threads& net) { start(net, one_message_too_many{}).wait(); });
  EXPECT_NE(said[1].find("one_message_too_many"), std::string::npos) << said[1];
}

} // namespace
