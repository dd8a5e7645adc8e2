// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The SGD steps against a serial computation: weights, residuals, what is conserved, and convergence.
#include <spar/optimizer/sgd.hpp>
#include <spar/spar.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

namespace {

using spar::selector::exact_topk;
using values = std::vector<float>;

/// A composition whose selector takes the k largest entries.
template <class Schedule, class Storage = spar::storage::coo>
auto top(std::uint64_t k) {
  using algorithm = spar::composition<exact_topk, Storage, spar::flat, Schedule>;
  return spar::error_feedback<float, algorithm>({.select = {.k = k}});
}

/// The gradient of a rank in a step: whole numbers, so that all sums are exact.
values gradient_of(std::size_t n, spar::rank_t rank, int step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  values g(n);
  for (float& x : g) x = static_cast<float>(random() % 41) - 20;
  return g;
}

/// The same training on one rank, written from the papers without the library.
struct serial {
  serial(std::size_t n, int ranks) : weights(n, 100), residuals(static_cast<std::size_t>(ranks), values(n)) {}

  void step(std::size_t k, float rate, int number) {
    values sum(weights.size());
    for (std::size_t r = 0; r < residuals.size(); ++r) {
      values& kept = residuals[r];
      const values g = gradient_of(weights.size(), static_cast<spar::rank_t>(r), number);
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i] += rate * g[i];
      std::vector<std::size_t> order(kept.size());
      std::iota(order.begin(), order.end(), 0U);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return std::abs(kept[a]) > std::abs(kept[b]); });
      for (std::size_t e = 0; e < std::min(k, order.size()); ++e) {
        sum[order[e]] += kept[order[e]];
        kept[order[e]] = 0;
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) weights[i] -= sum[i] / static_cast<float>(residuals.size());
  }

  values weights;
  std::vector<values> residuals;
};

values copy(std::span<const float> x) { return {x.begin(), x.end()}; }

template <class Schedule>
void compare_with_serial() {
  const std::size_t n = 50;
  const float rate = 0.5F;
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7}) {
    for (const std::uint64_t k : {0U, 1U, 5U, 50U}) {
      spar::thread_group group{ranks};
      group.run([&](spar::threads& net) {
        serial expected(n, ranks);
        auto reduce = top<Schedule>(k);
        values weights(n, 100);
        for (int step = 0; step < 6; ++step) {
          values gradient = gradient_of(n, net.rank(), step);
          spar::sgd_step(net, weights, gradient, rate, reduce);
          expected.step(k, rate, step);
          ASSERT_EQ(weights, expected.weights) << "P = " << ranks << ", k = " << k << ", step " << step;
          ASSERT_EQ(copy(reduce.residual()), expected.residuals[static_cast<std::size_t>(net.rank())]);
        }
      });
    }
  }
}

TEST(sgd_step, top_k_is_what_the_papers_say) { compare_with_serial<spar::gather_and_merge>(); }
TEST(sgd_step, top_k_over_sparcml_is_too) { compare_with_serial<spar::cheapest>(); }

TEST(sgd_step, dense_is_top_k_of_everything) {
  for (const spar::rank_t ranks : {1, 3, 4}) {
    spar::thread_group group{ranks};
    group.run([&](spar::threads& net) {
      serial expected(30, ranks);
      values weights(30, 100);
      for (int step = 0; step < 4; ++step) {
        values gradient = gradient_of(30, net.rank(), step);
        spar::sgd_step(net, weights, gradient, 0.25F, spar::cheapest{});
        expected.step(30, 0.25F, step);
        ASSERT_EQ(weights, expected.weights) << "P = " << ranks << ", step " << step;
      }
    });
  }
}

TEST(sgd_step, loses_nothing) {
  spar::thread_group group{4}; // a power of two, so that the mean is exact
  group.run([](spar::threads& net) {
    auto reduce = top<spar::cheapest>(3);
    values brought(40);
    values weights(40);
    for (int step = 0; step < 10; ++step) {
      values gradient = gradient_of(40, net.rank(), step);
      for (std::size_t i = 0; i < 40; ++i) brought[i] += gradient[i];
      spar::sgd_step(net, weights, gradient, 1.0F, reduce);
    }
    spar::allreduce(net, brought);
    values kept = copy(reduce.residual());
    spar::allreduce(net, kept);
    for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(kept[i] - 4 * weights[i], brought[i]) << "weight " << i;
  });
}

TEST(sgd_step, tells_what_it_subtracted) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    auto reduce = top<spar::gather_and_merge>(1);
    values weights(3);
    values gradient = net.rank() == 0 ? values{0, 8, 1} : values{0, 2, 6};
    const auto update = spar::sgd_step(net, weights, gradient, 1.0F, reduce);
    EXPECT_EQ(weights, (values{0, -4, -3}));
    ASSERT_EQ(update.sum.count(), 2U);
    EXPECT_EQ(update.sum.values()[0], 4);
    ASSERT_EQ(update.contributed.count(), 1U);
    EXPECT_EQ(update.contributed.values()[0], net.rank() == 0 ? 8 : 6);
  });
}

/// Every rank pulls the weights towards a different point, so that its gradient never vanishes: without the residuals
/// the ranks' largest entries would pull to the wrong place for ever. Returns the distance from the mean of the points.
template <class Reduce>
double distance_after(spar::threads& net, Reduce reduce, int steps, bool feedback) {
  const std::size_t n = 60;
  values weights(n);
  const values mine = gradient_of(n, net.rank(), 1);
  values mean = mine;
  spar::allreduce(net, mean, spar::cheapest{}, spar::average{});
  for (int step = 0; step < steps; ++step) {
    values gradient(n);
    for (std::size_t i = 0; i < n; ++i) gradient[i] = weights[i] - mine[i];
    spar::sgd_step(net, weights, gradient, 3 / static_cast<float>(10 + step), reduce);
    if (!feedback) reduce.set_residual({});
  }
  double distance = 0;
  for (std::size_t i = 0; i < n; ++i)
    distance = std::max(distance, std::abs(static_cast<double>(weights[i] - mean[i])));
  double largest = distance; // equal on every rank if the weights are
  spar::allreduce(net, std::span(&largest, 1), spar::cheapest{}, spar::maximum{});
  EXPECT_EQ(largest, distance);
  return distance;
}

TEST(sgd_step, converges_by_the_feedback) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    using quantised = spar::storage::then<spar::storage::coo, spar::storage::qsgd<4>>;
    const auto exact = [] { return top<spar::cheapest>(3); };
    EXPECT_LT(distance_after(net, exact(), 4000, true), 0.2);
    EXPECT_LT(distance_after(net, top<spar::dsar_split, quantised>(3), 4000, true), 0.2);
    EXPECT_GT(distance_after(net, exact(), 4000, false), 1);
  });
}

TEST(sgd_step, is_what_a_started_reduction_and_descend_are) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    auto blocking = top<spar::cheapest>(4);
    auto started = top<spar::cheapest>(4);
    values weights(20);
    values others(20);
    for (int step = 0; step < 3; ++step) {
      values gradient = gradient_of(20, net.rank(), step);
      const values same = gradient;
      spar::sgd_step(net, weights, gradient, 1.0F, blocking);
      auto call = started.start_reduce(net, std::span<const float>(same), spar::average{});
      spar::descend(std::span<float>(others), call.wait().sum);
    }
    EXPECT_EQ(weights, others);
  });
}

TEST(sgd_step, has_no_weights) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    auto reduce = top<spar::cheapest>(0);
    values none;
    EXPECT_EQ(spar::sgd_step(net, none, none, 1.0F, reduce).sum.count(), 0U);
    spar::sgd_step(net, none, none, 1.0F, spar::cheapest{});
  });
}

TEST(sgd_step, refuses_other_lengths_before_anything_is_sent) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    auto reduce = top<spar::cheapest>(1);
    values weights(3);
    values gradient(4, 1.0F);
    const auto sentence = [&](auto step) -> std::string {
      try {
        step();
      } catch (const spar::invalid_argument& error) {
        return error.what();
      }
      return "no error";
    };
    const std::string due = "there are 3 weights, but the gradient has length 4";
    EXPECT_EQ(sentence([&] { spar::sgd_step(net, weights, gradient, 1.0F, reduce); }), due);
    EXPECT_EQ(sentence([&] { spar::sgd_step(net, weights, gradient, 1.0F, spar::cheapest{}); }), due);
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    EXPECT_TRUE(reduce.residual().empty());
  });
}

TEST(descend, wants_as_many_weights_as_the_update_has_dimensions) {
  spar::pool memory;
  const auto update = spar::sparse_stream<float>::sparse(memory, 100, 0);
  std::vector<float> weights(2);
  EXPECT_THROW(spar::descend(std::span(weights), update), spar::invalid_argument);
}

} // namespace
} // namespace spar_test
