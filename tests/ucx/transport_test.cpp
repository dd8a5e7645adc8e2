// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The conformance suite over UCX: the results are those of the simulator, bit for bit, for every number of ranks that
// the test is started with; messages of every form; sub-groups; many calls in flight; hosts; progress threads.
#include "support/allreduce_program.hpp"
#include "support/messages.hpp"
#include "support/schedules.hpp"
#include "support/ucx_ranks.hpp"

#include <spar/topology/hosts.hpp>
#include <spar/transport/counting.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using index = std::uint32_t;
using namespace std::chrono_literals;

/// Runs the program on this rank, and on all ranks of a simulator with the same inputs.
template <class T, class Index, class Algorithm, class Op, class Value>
void check_streams(spar::ucx& net, Algorithm algorithm, Op op, Value value,
                   const std::vector<std::uint64_t>& dimensions) {
  const std::vector<pattern> shapes{std::begin(all_patterns), std::end(all_patterns)};
  auto cases = make_cases<T, Index>(net.size(), dimensions, shapes, value);
  auto simulated = make_cases<T, Index>(net.size(), dimensions, shapes, value);
  using program = allreduce_program<T, Index, Algorithm, Op>;
  const program on_ucx{&cases, algorithm, op};
  spar::any_transport any(net); // of the type on which the simulator runs the program
  spar::run_until_done(any, on_ucx(any));
  if (!depends_on_the_network<Algorithm>) run(mode::sim, net.size(), program{&simulated, algorithm, op});
  const auto rank = static_cast<std::size_t>(net.rank());
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(testing::Message() << Algorithm::name << ", P = " << net.size() << ", n = " << cases[c].n << ", "
                                    << cases[c].shape);
    auto& own = cases[c].results[rank];
    if (!depends_on_the_network<Algorithm>) {
      EXPECT_TRUE(same_stream(own, simulated[c].results[rank]));
    }
    const auto expected = expected_of(cases[c].inputs, op);
    double largest = 0;
    for (const double x : expected.weight) largest = std::max(largest, x);
    const double bound = loss_of<Algorithm>::bound(largest);
    std::vector<spar::sparse_stream<T, Index>> results(1);
    results[0] = std::move(own);
    expect_result(results, expected, op,
                  [&](std::size_t i) { return bound + expected.weight[i] * net.size() * 0x1p-24; });
  }
}

template <class Algorithm>
class ucx_streams : public testing::Test {};
using algorithms = joined<testing::Types, stream_schedules>;
TYPED_TEST_SUITE(ucx_streams, algorithms);

TYPED_TEST(ucx_streams, sum_of_floats) {
  spar::ucx net(meeting());
  const auto p = static_cast<std::uint64_t>(net.size());
  check_streams<float, index>(net, TypeParam{}, spar::sum{}, real_value<float>, {0, 1, 3, p - 1, p, 100, 1000, 20'000});
}

template <class Algorithm>
class ucx_dense : public testing::Test {};
using dense_algorithms = joined<testing::Types, dense_schedules>;
TYPED_TEST_SUITE(ucx_dense, dense_algorithms);

TYPED_TEST(ucx_dense, sums_of_every_size) {
  spar::ucx net(meeting());
  for (const std::size_t n : {0U, 1U, 2U, 100U, 1000U, 1023U, 1024U, 1025U, 100'000U, 1'000'003U}) {
    std::vector<float> x(n), out(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i + static_cast<std::size_t>(net.rank())) % 17);
    spar::allreduce(net, std::span<const float>(x), std::span<float>(out), TypeParam{});
    spar::allreduce(net, std::span<float>(x), TypeParam{});
    for (std::size_t i = 0; i < n; ++i) {
      float expected = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(net.size()); ++r)
        expected += static_cast<float>((i + r) % 17);
      ASSERT_EQ(x[i], expected) << "n = " << n << ", index " << i;
      ASSERT_EQ(out[i], expected) << "n = " << n << ", index " << i;
    }
  }
}

TEST(ucx_messages, of_every_form_arrive) {
  spar::ucx net(meeting());
  if (net.size() < 2) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    spar::counting counted(net);
    exchange_messages<in_host_memory>(counted, seed);
  }
  EXPECT_EQ(net.memory().live(), 0U);
}

TEST(ucx_pieces, reduce_scatter_allgather_reduce_and_broadcast) {
  spar::ucx net(meeting());
  const auto p = static_cast<std::size_t>(net.size());
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, p, std::size_t{1000}, std::size_t{70'000}}) {
    const spar::index_range own = spar::uniform_ownership{n, net.size()}[net.rank()];
    std::vector<double> x(n, static_cast<double>(net.rank() + 1));
    const double total = static_cast<double>(p * (p + 1)) / 2;
    spar::reduce_scatter(net, std::span<double>(x));
    for (std::uint64_t i = own.begin; i < own.end; ++i) ASSERT_EQ(x[i], total);
    spar::allgather(net, std::span<double>(x));
    ASSERT_EQ(x, std::vector<double>(n, total));
    for (spar::rank_t root = 0; root < net.size(); ++root) {
      x.assign(n, static_cast<double>(net.rank() + 1));
      spar::reduce(net, std::span<double>(x), root);
      if (net.rank() == root) {
        ASSERT_EQ(x, std::vector<double>(n, total));
      }
      x.assign(n, static_cast<double>(net.rank()));
      spar::broadcast(net, std::span<double>(x), root);
      ASSERT_EQ(x, std::vector<double>(n, static_cast<double>(root)));
    }
  }
}

/// Two hundred named calls, small and large, started in a different order on each rank.
void many_named_calls(spar::ucx& net, std::uint64_t seed) {
  constexpr std::size_t calls = 200;
  std::vector<std::size_t> order(calls);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(net.rank()));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<float>> x(calls);
  std::vector<spar::pending<spar::ucx, void>> started;
  for (const std::size_t c : order) {
    x[c].assign(c % 20 == 0 ? 50'000 : 1 + c, static_cast<float>(c));
    started.push_back(spar::start_allreduce(net, spar::named{"layer " + std::to_string(c)}, std::span(x[c])));
  }
  for (auto& call : started) call.wait();
  for (std::size_t c = 0; c < calls; ++c) {
    ASSERT_EQ(x[c], std::vector<float>(x[c].size(), static_cast<float>(c * static_cast<std::size_t>(net.size()))));
  }
}

TEST(ucx_nonblocking, two_hundred_named_calls_in_another_order_on_each_rank) {
  spar::ucx net(meeting());
  for (std::uint64_t seed = 0; seed < 3; ++seed) many_named_calls(net, seed);
}

TEST(ucx_nonblocking, tags_wrap_around) {
  spar::ucx net(meeting());
  for (std::size_t c = 0; c < spar::max_in_flight + 10; ++c) {
    std::int64_t x = net.rank() + static_cast<std::int64_t>(c);
    spar::allreduce(net, std::span<std::int64_t>(&x, 1), spar::recursive_doubling{});
    const std::int64_t p = net.size();
    ASSERT_EQ(x, p * static_cast<std::int64_t>(c) + p * (p - 1) / 2);
  }
}

TEST(ucx_nonblocking, waiting_for_nothing_is_an_error) {
  spar::ucx net(meeting());
  const auto wait = [&] {
    for (int i = 0; i < 1000; ++i) net.progress(true); // UCX may have something to do at first
  };
  EXPECT_THROW(wait(), spar::deadlock);
}

TEST(ucx_split, by_colour_and_key) {
  spar::ucx world(meeting());
  const int colour = world.rank() % 2;
  spar::ucx half = world.split(colour, -world.rank()); // the highest rank first
  const spar::rank_t size = (world.size() + 1 - colour) / 2;
  EXPECT_EQ(half.size(), size);
  EXPECT_EQ(half.rank(), size - 1 - world.rank() / 2);
  std::vector<std::int32_t> x(5000, world.rank());
  spar::allreduce(half, std::span<std::int32_t>(x));
  std::int32_t expected = 0;
  for (int r = colour; r < world.size(); r += 2) expected += r;
  EXPECT_EQ(x, std::vector<std::int32_t>(5000, expected));
  EXPECT_THROW((void)world.split(-1, 0), spar::invalid_argument);
}

TEST(ucx_split, has_the_model_of_rank_0_of_the_whole) {
  spar::ucx world(meeting());
  world.set_network({.alpha = 1.0 + world.rank()});
  EXPECT_EQ(world.network().alpha, 1);
  EXPECT_EQ(world.split(world.rank() % 2, 0).network().alpha, 1);
}

TEST(ucx_split, several_groups_at_once_do_not_mix) {
  spar::ucx world(meeting());
  spar::ucx again(meeting());
  spar::ucx alone = world.split(world.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  std::vector<double> a(20'000, 1.0), b(20'000, 2.0), c(20'000, 3.0);
  auto first = spar::start_allreduce(world, std::span<double>(a), spar::ring{});
  auto second = spar::start_allreduce(again, std::span<double>(b), spar::ring{});
  auto third = spar::start_allreduce(alone, std::span<double>(c), spar::ring{});
  third.wait();
  while (!first.done() || !second.done()) {
  }
  second.wait();
  first.wait();
  const double p = world.size();
  EXPECT_EQ(a, std::vector<double>(20'000, p));
  EXPECT_EQ(b, std::vector<double>(20'000, 2 * p));
  EXPECT_EQ(c, std::vector<double>(20'000, 3.0));
}

TEST(ucx_split, goes_on_with_calls_in_flight_and_again_and_again) {
  spar::ucx net(meeting());
  std::vector<float> x(200'000, 1.0F);
  auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
  for (int i = 0; i < 5; ++i) {
    if (net.rank() == i % net.size()) std::this_thread::sleep_for(10ms);
    spar::ucx half = net.split(net.rank() % 2, 0);
    float one = 1;
    spar::allreduce(half, std::span(&one, 1));
    EXPECT_EQ(one, static_cast<float>(half.size()));
  }
  call.wait();
  EXPECT_EQ(x[0], static_cast<float>(net.size()));
}

/// Rank 0 begins to wait, does nothing for longer than a second, then asks rank 1 why its message is late. The question
/// opens a connection while this message arrives.
TEST(ucx_messages, one_that_arrives_while_its_wait_is_asked_about) {
  if (meeting().size() < 2) return;
  for (int i = 0; i < 3; ++i) {
    spar::ucx net(meeting());
    std::vector<float> x(2'000'000, net.rank() == 1 ? 7.0F : 0.0F);
    auto call = spar::start_broadcast(net, std::span(x), 1);
    net.progress(false);
    if (net.rank() == 0) {
      std::this_thread::sleep_for(1100ms);
      for (int polls = 0; polls < 1000; ++polls) net.progress(false);
    }
    call.wait();
    EXPECT_EQ(x.front(), 7);
    EXPECT_EQ(x.back(), 7);
  }
}

TEST(ucx_hosts, all_processes_of_this_test_are_on_one_host) {
  spar::ucx net(meeting());
  EXPECT_EQ(spar::hosts_of(net), std::vector<spar::rank_t>(static_cast<std::size_t>(net.size()), 0));
  const spar::flex_plan plan(spar::tree_of_hosts(spar::hosts_of(net)), 1000);
  std::vector<float> x(1000, 1.0F);
  spar::allreduce(net, std::span(x), spar::flexreduce(plan));
  EXPECT_EQ(x, std::vector<float>(1000, static_cast<float>(net.size())));
}

TEST(ucx_progress_thread, many_calls) {
  spar::ucx net(meeting());
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const spar::progress_thread progress(net);
    many_named_calls(net, seed);
  }
  many_named_calls(net, 7); // and again without the thread
}

/// The calls of the other ranks need rank 0 in every round, which calls nothing of spar meanwhile.
TEST(ucx_progress_thread, calls_go_on_while_the_application_is_elsewhere) {
  spar::ucx net(meeting());
  std::vector<float> x(50'000, 1.0F);
  const double start = net.now();
  if (net.rank() != 0) {
    spar::allreduce(net, std::span(x), spar::ring{});
    EXPECT_LT(net.now() - start, 1);
  } else {
    const spar::progress_thread progress(net);
    auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
    std::this_thread::sleep_for(1200ms);
    call.wait();
  }
  EXPECT_EQ(x, std::vector<float>(50'000, static_cast<float>(net.size())));
}

TEST(ucx_sleep, a_waiting_rank_takes_little_processor_time) {
  spar::ucx net(meeting());
  if (net.size() < 2) return;
  spar::barrier(net);
  const std::clock_t before = std::clock();
  if (net.rank() == 0) std::this_thread::sleep_for(1s);
  spar::barrier(net);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

} // namespace
} // namespace spar_test
