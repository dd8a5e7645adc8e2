// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the decorator `faulty` does to single messages: exactly what is planned.
#include "support/ranks.hpp"

#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using kind = spar::fault::kind;

/// What rank 1 receives, in the order of its receives; each message is one number.
struct arrival {
  float value;
  double time;
};

/// Rank 0 sends the numbers 0, 1, 2, ..., each on its given lane, to rank 1, which receives them lane by lane.
struct numbers {
  std::vector<std::uint8_t> lanes;
  std::vector<arrival>* arrivals;
  std::vector<float>* sent; // the sender's memory after all sends

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    spar::call_record call;
    const spar::channel all(spar::detail::port_of(net), call, {});
    if (net.rank() == 0) {
      sent->clear();
      for (std::size_t i = 0; i < lanes.size(); ++i) sent->push_back(static_cast<float>(i));
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        const auto lane = all.lane(lanes[i]);
        co_await lane.send(1, spar::view_message<float>(std::span<const float>(*sent).subspan(i, 1)));
      }
    } else {
      std::vector<std::uint8_t> in_order = lanes;
      std::sort(in_order.begin(), in_order.end());
      for (const std::uint8_t number : in_order) {
        const auto lane = all.lane(number);
        spar::message_buffer in(net.memory());
        co_await lane.receive(0, in);
        arrivals->push_back({in.piece<float>(0)[0], net.now()});
      }
    }
  }
};

/// Runs the program in the simulator with a fault plan for each rank.
std::vector<arrival> arrivals_of(const std::vector<std::uint8_t>& lanes, const std::vector<spar::fault>& of_sender,
                                 const std::vector<spar::fault>& of_receiver = {}) {
  std::vector<arrival> arrivals;
  std::vector<float> sent;
  spar::simulator engine(2, {.latency = 1});
  std::deque<spar::faulty<spar::sim>> nets;
  nets.emplace_back(engine.rank(0), of_sender);
  nets.emplace_back(engine.rank(1), of_receiver);
  const numbers program{lanes, &arrivals, &sent};
  engine.run([&](spar::sim& net) { return program(nets[static_cast<std::size_t>(net.rank())]); });
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(sent[i], static_cast<float>(i)) << "the sender's memory has changed";
  return arrivals;
}

std::vector<float> values_of(const std::vector<arrival>& arrivals) {
  std::vector<float> values;
  for (const arrival& a : arrivals) values.push_back(a.value);
  return values;
}

TEST(faulty, without_a_plan_does_nothing) {
  EXPECT_EQ(values_of(arrivals_of({0, 1, 0}, {})), (std::vector<float>{0, 2, 1}));
}

TEST(faulty, a_delay_is_exact_in_virtual_time_and_keeps_the_order_of_a_tag) {
  // Lane 0 carries the messages 0, 1 and 3, of which 1 is late; message 2 on lane 1 is not.
  const auto arrivals = arrivals_of({0, 0, 1, 0}, {{.what = kind::delay, .message = 1, .seconds = 7}});
  EXPECT_EQ(values_of(arrivals), (std::vector<float>{0, 1, 3, 2}));
  EXPECT_NEAR(arrivals[0].time, 1, 1e-6);
  EXPECT_NEAR(arrivals[1].time, 8, 1e-6);
  EXPECT_NEAR(arrivals[2].time, 8, 1e-6);
}

TEST(faulty, a_delay_ends_when_so_many_more_have_been_sent) {
  spar::thread_group group(2);
  const std::vector<std::uint8_t> lanes{0, 1, 2, 3};
  std::vector<std::uint8_t> order; // the order in which messages leave
  group.run([&](spar::threads& inner) {
    struct logging : spar::counting_port<spar::threads_port> {
      using spar::counting_port<spar::threads_port>::counting_port;
      std::vector<std::uint8_t>* order = nullptr;
      auto send(const spar::message_pieces& out, spar::rank_t peer, spar::tag_t tag) {
        order->push_back(spar::lane_of(tag));
        return counting_port::send(out, peer, tag);
      }
    } logged(inner.port());
    logged.order = &order;
    spar::faulty<logging> net(logged, {{.what = kind::delay, .message = 0, .messages = 2}});
    std::vector<arrival> arrivals;
    std::vector<float> sent;
    const numbers program{lanes, &arrivals, &sent};
    spar::run_until_done(net, program(net));
    EXPECT_EQ(net.holds_back(), false);
  });
  EXPECT_EQ(order, (std::vector<std::uint8_t>{1, 2, 0, 3}));
}

TEST(faulty, a_dropped_message_never_leaves) {
  std::vector<arrival> arrivals;
  EXPECT_THROW(arrivals = arrivals_of({0, 1}, {{.what = kind::drop, .message = 1}}), spar::deadlock);
}

TEST(faulty, corruption_changes_one_bit_and_not_the_senders_memory) {
  // The second highest bit of the exponent, in the third message that arrives.
  const auto arrivals =
      arrivals_of({0, 0, 0}, {}, {{.what = kind::corrupt_payload, .message = 2, .bit = 32 * 100 + 29}});
  EXPECT_EQ(values_of(arrivals), (std::vector<float>{0, 1, 0x1p65F}));
  EXPECT_THROW((void)arrivals_of({0}, {}, {{.what = kind::corrupt_header, .message = 0, .bit = 50}}), spar::mismatch);
}

TEST(faulty, a_crash_ends_the_rank_and_stays_silent) {
  EXPECT_THROW((void)arrivals_of({0, 0}, {{.what = kind::crash, .message = 1}}), spar::deadlock);
  EXPECT_THROW((void)arrivals_of({0, 0}, {}, {{.what = kind::crash, .message = 1}}), spar::peer_failed);
}

} // namespace
} // namespace spar_test
