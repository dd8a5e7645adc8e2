// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The conformance suite over processes: the results are those of the simulator, bit for bit, for every number of ranks
// that the test is started with; sub-groups; many calls in flight; messages of every size; exact counts.
#include "processes/stream_algorithms.hpp"
#include "support/allreduce_program.hpp"
#include "support/processes.hpp"

#include <spar/storage/coded.hpp>
#include <spar/strided.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {

/// Values have 7 bits of mantissa, and are rounded twice.
template <>
struct loss_of<stored<spar::storage::coded<7>, spar::ssar_split>> {
  static double bound(double largest) { return 0x2.02p-8 * largest; }
};

namespace {

using index = std::uint32_t;

/// Rank 0's stream, on every rank.
template <class T, class Index>
spar::sparse_stream<T, Index> of_rank_0(spar::pool& memory, const spar::sparse_stream<T, Index>& mine) {
  std::uint64_t shape[3] = {mine.dimension(), mine.count(), mine.is_dense() ? 1U : 0U};
  take_from(0, std::span(shape));
  auto copy = shape[2] != 0 ? spar::sparse_stream<T, Index>::dense(memory, shape[0], 0, shape[1])
                            : spar::sparse_stream<T, Index>::sparse(memory, shape[0], shape[1]);
  if (mine.dimension() == shape[0] && mine.count() == shape[1] && mine.is_dense() == (shape[2] != 0)) {
    std::copy(mine.indices().begin(), mine.indices().end(), copy.indices().data());
    std::copy(mine.values().begin(), mine.values().end(), copy.values().data());
  }
  take_from(0, std::span(copy.indices().data(), copy.indices().size()));
  take_from(0, std::span(copy.values().data(), copy.values().size()));
  return copy;
}

/// Runs the program on this rank, and on all ranks of a simulator with the same inputs.
template <class T, class Index, class Algorithm, class Op, class Value>
void check_streams(communicator& net, Algorithm algorithm, Op op, Value value,
                   const std::vector<std::uint64_t>& dimensions) {
  const std::vector<pattern> shapes{std::begin(all_patterns), std::end(all_patterns)};
  auto cases = make_cases<T, Index>(net.size(), dimensions, shapes, value);
  auto simulated = make_cases<T, Index>(net.size(), dimensions, shapes, value);
  using program = allreduce_program<T, Index, Algorithm, Op>;
  const program program_here{&cases, algorithm, op};
  spar::any_transport any(net); // of the type on which the simulator runs the program
  spar::run_until_done(any, program_here(any));
  if (!depends_on_the_network<Algorithm>) run(mode::sim, net.size(), program{&simulated, algorithm, op});
  const auto rank = static_cast<std::size_t>(net.rank());
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(testing::Message() << Algorithm::name << ", P = " << net.size() << ", n = " << cases[c].n << ", "
                                    << cases[c].shape);
    auto& mine = cases[c].results[rank];
    if (over_mpi || depends_on_the_network<Algorithm>) {
      const auto first = of_rank_0(net.memory(), mine);
      EXPECT_TRUE(same_stream(mine, first));
    }
    if (!depends_on_the_network<Algorithm>) {
      EXPECT_TRUE(same_stream(mine, simulated[c].results[rank]));
    }
    const auto expected = expected_of(cases[c].inputs, op);
    double largest = 0;
    for (const double x : expected.weight) largest = std::max(largest, x);
    const double bound = loss_of<Algorithm>::bound(largest);
    std::vector<spar::sparse_stream<T, Index>> own(1);
    own[0] = std::move(mine);
    expect_result(own, expected, op, [&](std::size_t i) {
      return bound + (std::is_integral_v<T> ? 0 : expected.weight[i] * net.size() * 0x1p-24);
    });
  }
}

template <class Algorithm>
class processes_streams : public testing::Test {};
TYPED_TEST_SUITE(processes_streams, stream_algorithms);

TYPED_TEST(processes_streams, sum_of_floats) {
  communicator net(meeting());
  const auto p = static_cast<std::uint64_t>(net.size());
  check_streams<float, std::uint32_t>(net, TypeParam{}, spar::sum{}, real_value<float>,
                                      {0, 1, 3, p - 1, p, 100, 1000, 20'000});
}

#if SPAR_ALL_CASES
TYPED_TEST(processes_streams, average_of_doubles_with_wide_indices) {
  communicator net(meeting());
  check_streams<double, std::uint64_t>(net, TypeParam{}, spar::average{}, real_value<double>, {1, 100, 3000});
}
#endif

#if defined(SPAR_WITH_MPI) || SPAR_ALL_CASES // over UCX, these take too long to compile
template <class Algorithm>
class processes_integers : public testing::Test {};
using lossless = joined<testing::Types, stream_schedules
#if SPAR_ALL_CASES
                        ,
                        std::tuple<stored<spar::storage::coded<>, spar::ssar_split>>
#endif
                        >;
TYPED_TEST_SUITE(processes_integers, lossless);

TYPED_TEST(processes_integers, maximum) {
  communicator net(meeting());
  check_streams<std::int32_t, std::uint32_t>(net, TypeParam{}, spar::maximum{}, exact_value<std::int32_t>,
                                             {1, 100, 5000});
}

#endif

#if SPAR_ALL_CASES
TYPED_TEST(processes_integers, an_operation_of_the_user) {
  communicator net(meeting());
  check_streams<std::int64_t, std::uint32_t>(net, TypeParam{}, greatest_divisor{}, positive_value<std::int64_t>,
                                             {1, 100, 5000});
}
#endif

// --- rows ---

#if SPAR_ALL_CASES
template <class Algorithm>
class processes_rows : public testing::Test {};
using row_algorithms = testing::Types<spar::recursive_doubling, stored<spar::storage::coded<>, doubling_in_parts<2>>,
                                      stored<spar::storage::coded<>, spar::ssar_split>>;
TYPED_TEST_SUITE(processes_rows, row_algorithms);

TYPED_TEST(processes_rows, have_exact_sums) {
  using row = spar::row<float, 8>;
  communicator net(meeting());
  const auto rank = static_cast<std::size_t>(net.rank());
  for (const std::uint64_t n : {1U, 100U, 5000U}) {
    for (const pattern shape : all_patterns) {
      SCOPED_TRACE(testing::Message() << "n = " << n << ", " << shape);
      const auto all = contributions<row, index>(shape, net.size(), n, n, exact_value<row>);
      std::vector<row> expected(n), got(n);
      std::vector<char> present(n);
      for (const auto& its : all) {
        for (std::size_t e = 0; e < its.values.size(); ++e) {
          const std::size_t i = its.dense ? e : its.indices[e];
          present[i] = 1;
          for (std::size_t w = 0; w < 8; ++w) expected[i][w] += its.values[e][w];
        }
      }
      const auto sum = spar::allreduce(net, all[rank].view(), TypeParam{});
      if (!sum.is_dense() && shape != pattern::dense && shape != pattern::mixed) { // no zeros among the entries
        EXPECT_EQ(sum.count(), static_cast<std::uint64_t>(std::count(present.begin(), present.end(), 1)));
      }
      sum.to_dense(got, spar::sum{});
      EXPECT_EQ(got, expected);
    }
  }
}
#endif

// --- dense ---

template <class Algorithm>
class processes_dense : public testing::Test {};
using dense_algorithms = joined<testing::Types, dense_schedules>;
TYPED_TEST_SUITE(processes_dense, dense_algorithms);

TYPED_TEST(processes_dense, sums_of_every_size) {
  communicator net(meeting());
  for (const std::size_t n : {0U, 1U, 2U, 100U, 1000U, 1023U, 1024U, 1025U, 100'000U, 1'000'003U}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i + static_cast<std::size_t>(net.rank())) % 17);
    std::vector<float> out(n);
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

// --- pieces ---

TEST(processes_pieces, of_dense_spans) {
  communicator net(meeting());
  const auto p = static_cast<std::size_t>(net.size());
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, p, std::size_t{1000}, std::size_t{70'000}}) {
    const spar::uniform_ownership owner{n, net.size()};
    const spar::index_range own = owner[net.rank()];
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

TEST(processes_pieces, reduce_scatter_to_blocks_of_the_caller) {
  communicator net(meeting());
  const auto rank = static_cast<std::size_t>(net.rank());
  const auto p = static_cast<std::uint64_t>(net.size());
  for (const std::uint64_t n : {0U, 1U, 5000U, 200'000U}) {
    // Every other block is empty; the last block has the rest.
    std::vector<std::uint64_t> bounds(p + 1, n);
    for (std::uint64_t b = 0; b < p; ++b) bounds[b] = b / 2 * (n / p);
    const spar::bounded_ownership owner{bounds};
    const spar::index_range own = owner[net.rank()];
    std::vector<double> x(n, static_cast<double>(rank + 1));
    spar::reduce_scatter(net, x, owner);
    EXPECT_EQ(net.last_call().messages_sent, p - 1);
    EXPECT_EQ(net.last_call().bytes_sent, 8 * (p > 1 ? n - own.size() : 0));
    for (std::uint64_t i = own.begin; i < own.end; ++i) ASSERT_EQ(x[i], static_cast<double>(p * (p + 1)) / 2);

    const auto all = contributions<float, index>(pattern::random, net.size(), n, n, exact_value<float>);
    const auto expected = expected_of(all, spar::sum{});
    std::vector<float> dense(n), block(n);
    spar::reduce_scatter(net, all[rank].view(), owner).to_dense(dense, spar::sum{});
    for (std::uint64_t i = own.begin; i < own.end; ++i) block[i] = static_cast<float>(expected.values[i]);
    ASSERT_EQ(dense, block) << "n = " << n;
  }
}

TEST(processes_pieces, of_streams) {
  communicator net(meeting());
  const auto rank = static_cast<std::size_t>(net.rank());
  for (const std::uint64_t n : {1U, 100U, 30'000U}) {
    const auto all = contributions<float, index>(pattern::random, net.size(), n, n, exact_value<float>);
    const auto expected = expected_of(all, spar::sum{});
    const auto block = spar::reduce_scatter(net, all[rank].view());
    const spar::uniform_ownership owner{n, net.size()};
    std::uint64_t entries = 0;
    for (std::uint64_t i = owner[net.rank()].begin; i < owner[net.rank()].end; ++i)
      entries += expected.present[i] ? 1U : 0U;
    ASSERT_EQ(block.count(), entries);
    block.for_each([&](index i, float x) { ASSERT_EQ(x, static_cast<float>(expected.values[i])); });
    const auto gathered = spar::allgather(net, all[rank].view());
    for (std::size_t r = 0; r < all.size(); ++r) {
      ASSERT_TRUE(same_bits<index>(gathered.part(r).indices(), all[r].indices));
      ASSERT_TRUE(same_bits<float>(gathered.part(r).values(), all[r].values));
    }
    for (spar::rank_t root = 0; root < net.size(); ++root) {
      const auto sum = spar::reduce(net, all[rank].view(), root);
      if (net.rank() == root) {
        std::vector<float> dense(n);
        sum.to_dense(dense, spar::sum{});
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(dense[i], static_cast<float>(expected.values[i]));
      }
      const auto theirs = spar::broadcast(net, all[rank].view(), root);
      ASSERT_TRUE(same_bits<index>(theirs.indices(), all[static_cast<std::size_t>(root)].indices));
      ASSERT_TRUE(same_bits<float>(theirs.values(), all[static_cast<std::size_t>(root)].values));
    }
  }
}

TEST(processes_pieces, of_values_with_gaps) {
  communicator net(meeting());
  const auto p = static_cast<double>(net.size());
  for (const std::size_t rows : {std::size_t{0}, std::size_t{3}, std::size_t{20'000}}) {
    constexpr std::size_t columns = 5, width = 8;
    std::vector<double> x(rows * width, -1);
    const auto in_block = [&](std::size_t i) { return i % width < columns; };
    for (std::size_t i = 0; i < x.size(); ++i)
      if (in_block(i)) x[i] = static_cast<double>(i) + net.rank();
    const spar::strided block(x.data(), {rows, columns}, {width, 1});
    spar::allreduce(net, block, spar::ring{});
    spar::start_broadcast(net, block, net.size() - 1).wait();
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(x[i], in_block(i) ? p * static_cast<double>(i) + p * (p - 1) / 2 : -1) << i;
  }
}

TEST(processes_pieces, nobody_leaves_a_barrier_before_the_last_rank_enters) {
  communicator net(meeting());
  for (spar::rank_t last = 0; last < net.size(); ++last) {
    if (net.rank() == last) {
      wait_for_all();
      spar::barrier(net);
    } else {
      auto call = spar::start_barrier(net);
      for (int poll = 0; poll < 20; ++poll) ASSERT_FALSE(call.done());
      wait_for_all();
      call.wait();
    }
    spar::barrier(net, spar::named{"of a name"});
  }
}

// --- many in flight ---

TEST(processes_nonblocking, finished_in_another_order_than_started) {
  communicator net(meeting());
  constexpr std::size_t calls = 30;
  std::vector<std::vector<double>> x(calls);
  std::vector<std::vector<contribution<float, index>>> inputs;
  std::vector<spar::pending<communicator, void>> dense;
  std::vector<spar::pending<communicator, spar::sparse_stream<float, index>>> sparse;
  for (std::size_t c = 0; c < calls; ++c) {
    x[c].assign(c % 3 == 0 ? 50'000 : 10 + c, static_cast<double>(net.rank()) + static_cast<double>(c));
    inputs.push_back(
        contributions<float, index>(pattern::random, net.size(), c % 4 == 0 ? 60'000 : 200, c, exact_value<float>));
    dense.push_back(spar::start_allreduce(net, std::span<double>(x[c]), spar::ring{}));
    const auto mine = inputs[c][static_cast<std::size_t>(net.rank())].view();
    if (c % 2 == 0)
      sparse.push_back(spar::start_allreduce(net, mine, spar::ssar_split{}));
    else
      sparse.push_back(spar::start_allreduce(net, mine, spar::recursive_doubling{}));
  }
  std::vector<std::size_t> order(calls);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(static_cast<unsigned>(net.rank()));
  std::shuffle(order.begin(), order.end(), random);
  const double p = net.size();
  for (const std::size_t c : order) {
    while (c % 2 == 0 && !sparse[c].done()) {
    }
    const auto sum = sparse[c].wait();
    const auto expected = expected_of(inputs[c], spar::sum{});
    std::vector<float> values(inputs[c][0].n);
    sum.to_dense(values, spar::sum{});
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(expected.values[i]));
    dense[calls - 1 - c].wait();
  }
  for (std::size_t c = 0; c < calls; ++c)
    EXPECT_EQ(x[c], std::vector<double>(x[c].size(), p * static_cast<double>(c) + p * (p - 1) / 2));
}

TEST(processes_nonblocking, a_dropped_handle_waits) {
  communicator net(meeting());
  for (const std::size_t n : {10U, 100'000U}) {
    std::vector<float> x(n, 1.0F);
    {
      const auto dropped = spar::start_allreduce(net, std::span<float>(x), spar::rabenseifner{});
    }
    EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(net.size())));
  }
}

TEST(processes_nonblocking, tags_wrap_around) {
  communicator net(meeting());
  for (std::size_t c = 0; c < spar::max_in_flight + 10; ++c) {
    std::int64_t x = net.rank() + static_cast<std::int64_t>(c);
    spar::allreduce(net, std::span<std::int64_t>(&x, 1), spar::recursive_doubling{});
    const std::int64_t p = net.size();
    ASSERT_EQ(x, p * static_cast<std::int64_t>(c) + p * (p - 1) / 2);
  }
}

// --- groups, counts, errors ---

TEST(processes_groups, by_colour_and_key) {
  communicator world(meeting());
  const int colour = world.rank() % 2;
  communicator half = world.split(colour, -world.rank()); // the highest rank first
  const spar::rank_t size = (world.size() + 1 - colour) / 2;
  EXPECT_EQ(half.size(), size);
  EXPECT_EQ(half.rank(), size - 1 - world.rank() / 2);
  std::vector<std::int32_t> x(5000, world.rank());
  spar::allreduce(half, std::span<std::int32_t>(x));
  std::int32_t expected = 0;
  for (int r = colour; r < world.size(); r += 2) expected += r;
  EXPECT_EQ(x, std::vector<std::int32_t>(5000, expected));
}

TEST(processes_groups, have_the_model_of_rank_0_of_the_whole) {
  communicator world(meeting());
  world.set_network({.alpha = 1.0 + world.rank()});
  EXPECT_EQ(world.network().alpha, 1);
  EXPECT_EQ(world.split(world.rank() % 2, 0).network().alpha, 1);
}

TEST(processes_groups, several_at_once_do_not_mix) {
  communicator world(meeting());
  communicator again(meeting());
  communicator alone = world.split(world.rank(), 0);
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

TEST(processes_counts, are_those_of_the_other_transports) {
  communicator inner(meeting());
  spar::counting<communicator> net{inner};
  const auto rank = static_cast<std::size_t>(net.rank());
  const auto all = contributions<float, index>(pattern::random, net.size(), 20'000, 1, exact_value<float>);
  spar::allreduce(net, all[rank].view(), spar::ssar_split{});
  const spar::statistics cost = net.last_call();
  EXPECT_EQ(net.sent().messages, cost.messages_sent);
  EXPECT_EQ(net.sent().bytes, cost.bytes_sent);
  EXPECT_EQ(net.received().messages, cost.messages_received);
  EXPECT_EQ(net.received().bytes, cost.bytes_received);
  EXPECT_EQ(cost.header_bytes_sent, cost.messages_sent * sizeof(spar::header));

  std::vector<spar::statistics> simulated(all.size());
  spar::simulator engine{net.size()};
  struct program {
    const std::vector<contribution<float, index>>* inputs;
    std::vector<spar::statistics>* costs;
    spar::task<void> operator()(spar::sim& at) const& {
      const auto r = static_cast<std::size_t>(at.rank());
      auto pending = spar::start_allreduce(at, (*inputs)[r].view(), spar::ssar_split{});
      co_await std::move(pending);
      (*costs)[r] = pending.statistics();
    }
  };
  const program p{&all, &simulated};
  engine.run([&](spar::sim& at) { return p(at); });
  EXPECT_EQ(cost.messages_sent, simulated[rank].messages_sent);
  EXPECT_EQ(cost.bytes_sent, simulated[rank].bytes_sent);
  EXPECT_EQ(cost.bytes_received, simulated[rank].bytes_received);
  EXPECT_GE(cost.seconds, 0.0);
}

} // namespace
} // namespace spar_test
