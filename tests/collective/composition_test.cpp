// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of a selector and a schedule on dense values.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/selector/exact_topk.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/system/collectives.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

namespace {

template <class Algorithm, class Op = spar::sum, class T = float>
struct collective_program {
  std::vector<std::vector<T>>* x;
  Algorithm algorithm{};
  Op op{};
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<T> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = spar::start_allreduce(net, mine, algorithm, op);
    co_await std::move(pending);
  }
};

std::vector<std::vector<float>> sparse_vectors(spar::rank_t ranks, std::size_t n) {
  std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r)
    for (std::size_t i = r; i < n; i += 7) x[r][i] = static_cast<float>(i % 5) - 2;
  return x;
}

std::vector<float> sum_of(const std::vector<std::vector<float>>& all) {
  std::vector<float> total(all[0].size());
  for (const auto& x : all)
    for (std::size_t i = 0; i < x.size(); ++i) total[i] += x[i];
  return total;
}

template <class Selector, class Schedule>
using composed = spar::composition<Selector, spar::storage::coo, spar::flat, Schedule>;
template <class Schedule = spar::cheapest>
using of_nonzeros = composed<spar::selector::nonzeros, Schedule>;

template <class Algorithm>
class compositions : public testing::Test {};
using algorithms =
    testing::Types<of_nonzeros<>, of_nonzeros<spar::recursive_doubling>, of_nonzeros<spar::ring>,
                   of_nonzeros<spar::rabenseifner>, of_nonzeros<spar::ssar_split>, of_nonzeros<spar::dsar_split>>;
TYPED_TEST_SUITE(compositions, algorithms);

TYPED_TEST(compositions, of_all_nonzero_entries_are_the_dense_sum) {
  for (const mode where : {mode::threads, mode::sim_synchronous}) {
    for (const spar::rank_t ranks : {1, 2, 3, 4, 8}) {
      for (const std::size_t n : {0U, 1U, 50U, 3000U}) {
        auto x = sparse_vectors(ranks, n);
        const auto total = sum_of(x);
        run(where, ranks, collective_program<TypeParam>{&x});
        for (const auto& mine : x) ASSERT_EQ(mine, total) << where << ", P = " << ranks << ", n = " << n;
      }
    }
  }
}

/// Every rank has its own density, so that streams and dense values meet, and zeros of both signs.
std::vector<std::vector<double>> of_densities(std::span<const double> densities, std::size_t n) {
  std::mt19937_64 random(n);
  std::vector<std::vector<double>> x;
  for (const double density : densities) {
    auto& mine = x.emplace_back(n);
    for (double& value : mine) {
      value = random() % 5 == 0 ? -0.0 : 0.0;
      if (static_cast<double>(random() % 1000) < 1000 * density) value = static_cast<double>(random() % 100) - 50;
    }
  }
  return x;
}

TEST(composition, of_nonzeros_takes_any_density_on_any_rank) {
  const std::vector<std::vector<double>> all{
      {0.003, 0.003},  {0.022, 0.022, 0.022}, {0.17, 0.17, 0.17, 0.17},      {0.45, 0.45, 0.45}, {0, 1, 0.01, 0.3},
      {1, 0, 0, 0, 0}, {1, 1, 1, 1},          {0.09, 0.1, 0.11, 0.12, 0.13}, {0, 0, 0}};
  for (const auto& densities : all) {
    const auto ranks = static_cast<spar::rank_t>(densities.size());
    for (const std::size_t n : {1U, 7U, 1000U, 20'001U}) {
      auto x = of_densities(densities, n);
      std::vector<double> total(n);
      for (const auto& mine : x)
        for (std::size_t i = 0; i < n; ++i) total[i] += mine[i];
      run(mode::threads, ranks, collective_program<of_nonzeros<>, spar::sum, double>{&x});
      for (const auto& mine : x) {
        ASSERT_EQ(mine, total) << "P = " << ranks << ", n = " << n << ", first density " << densities[0];
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(std::signbit(mine[i]), std::signbit(x[0][i])) << "index " << i;
      }
    }
  }
}

TEST(composition, of_nonzeros_sends_dense_values_where_these_are_faster) {
  constexpr std::size_t n = 100'000;
  for (const spar::rank_t ranks : {2, 4}) {
    for (const double density : {0.17, 0.45, 1.0}) {
      const std::vector<double> densities(static_cast<std::size_t>(ranks), density);
      const auto inputs = of_densities(densities, n);
      spar::thread_group group{ranks};
      group.run([&](spar::threads& net) {
        auto x = inputs[static_cast<std::size_t>(net.rank())];
        spar::allreduce(net, x);
        const std::uint64_t dense = net.statistics().bytes_sent;
        x = inputs[static_cast<std::size_t>(net.rank())];
        spar::allreduce(net, x, spar::selector::nonzeros{});
        const std::uint64_t in_place = net.statistics().bytes_sent - dense;
        EXPECT_GE(in_place, dense);
        EXPECT_LE(in_place, dense + 1000) << "P = " << ranks << ", density " << density;
      });
    }
  }
}

TEST(composition, averages) {
  auto x = sparse_vectors(4, 200);
  auto total = sum_of(x);
  for (float& value : total) value /= 4;
  run(mode::sim, 4, collective_program<of_nonzeros<>, spar::average>{&x});
  for (const auto& mine : x) EXPECT_EQ(mine, total);
}

TEST(composition, sends_only_what_is_selected) {
  using algorithm = composed<spar::selector::exact_topk, spar::recursive_doubling>;
  std::vector<std::vector<float>> x{{9, 1, 0, -8, 2, 0}, {1, 7, 0, 3, 0, -5}};
  run(mode::threads, 2, collective_program<algorithm>{&x, {.select = {.k = 2}}});
  const std::vector<float> expected{9, 7, 0, -8, 0, -5};
  EXPECT_EQ(x[0], expected);
  EXPECT_EQ(x[1], expected);
}

TEST(composition, refuses_operations_that_zeros_matter_to) {
  for (const spar::rank_t ranks : {1, 3}) {
    std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>{-1, 0});
    const collective_program<of_nonzeros<>, spar::maximum> program{&x};
    EXPECT_THROW(run_sim(ranks, program), spar::invalid_argument);
    spar::thread_group group{ranks};
    EXPECT_THROW(group.run([&](spar::threads& net) {
      try {
        spar::run_until_done(net, program(net));
      } catch (const spar::invalid_argument&) {
        EXPECT_EQ(net.statistics().messages_sent, 0U);
        throw;
      }
    }),
                 spar::invalid_argument);
  }
}

TEST(composition, refuses_what_its_selector_refuses) {
  using algorithm = composed<spar::selector::exact_topk, spar::recursive_doubling>;
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    EXPECT_THROW(spar::allreduce(net, x, algorithm{.select = {.k = 11}}), spar::invalid_argument);
    EXPECT_THROW(spar::allreduce(net, x, algorithm{.select = {.density = 2}}), spar::invalid_argument);
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    EXPECT_EQ(x, std::vector<float>(10, 1.0F));
    spar::allreduce(net, x, algorithm{.select = {.density = 1}}); // the communicator still works
    EXPECT_EQ(x, std::vector<float>(10, 2.0F));
  });
}

} // namespace
} // namespace spar_test
