// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `cheapest` with `storage::coded`: in the simulator, whose network the model knows, the choice among storages,
// algorithms and parts is at most a twentieth slower than the fastest of them.
#include "support/extent.hpp"
#include "support/ranks.hpp"

#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace spar_test {
namespace {

using index = std::uint32_t;

struct entries {
  std::vector<index> indices;
  std::vector<float> values;
};

/// k normally distributed values far from 0 on each rank, at random indices.
std::vector<entries> inputs(spar::rank_t ranks, std::uint64_t n, std::uint64_t k) {
  std::mt19937_64 random(1);
  const double least = std::sqrt(2 * std::log(static_cast<double>(n) / static_cast<double>(k)));
  std::exponential_distribution<double> above(least);
  std::vector<entries> all(static_cast<std::size_t>(ranks));
  for (entries& mine : all) {
    std::vector<index>& at = mine.indices;
    while (at.size() < k) {
      while (at.size() < k) at.push_back(static_cast<index>(random() % n));
      std::sort(at.begin(), at.end());
      at.erase(std::unique(at.begin(), at.end()), at.end());
    }
    for (std::size_t i = 0; i < k; ++i)
      mine.values.push_back(static_cast<float>((least + above(random)) * (random() % 2 == 0 ? 1 : -1)));
  }
  return all;
}

template <class Parts>
struct call {
  const std::vector<entries>* all;
  std::uint64_t n;
  spar::network_model model;
  Parts parts;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    spar::detail::port_of(net).node().set_network(model);
    const entries& mine = (*all)[static_cast<std::size_t>(net.rank())];
    auto pending = spar::start_allreduce(net, spar::sparse_view(n, mine.indices, mine.values), parts);
    co_await std::move(pending);
  }
};

/// The simulated seconds of each way to sum streams, beside those that the model expects.
struct ways {
  std::vector<double> found, expected;
};

template <class Storage>
void add(ways& to, const Storage& store, const std::vector<entries>& all, std::uint64_t n, std::uint64_t k,
         const spar::network_model& model, const spar::simulator_options& network) {
  const auto ranks = static_cast<spar::rank_t>(all.size());
  const auto shape = spar::shape_of<float, index>(store, model, ranks, n, k);
  const auto run = [&](const auto& schedule, double expected) {
    const auto parts = spar::compose(store, schedule);
    to.found.push_back(run_sim(ranks, call<decltype(parts)>{&all, n, model, parts}, network));
    to.expected.push_back(expected);
  };
  for (const std::uint64_t parts : {1U, 2U}) {
    if (parts > 1 && shape.coding == 0) continue;
    const double expected = spar::seconds_recursive_doubling(model, shape, parts);
    run(spar::recursive_doubling{.dense_from = shape.dense_fraction(model), .parts = parts}, expected);
  }
  run(spar::ssar_split{}, spar::seconds_ssar_split(model, shape));
}

/// Checks that the way that the model expects to be the fastest takes at most `bound` times as long as the fastest.
void expect_near_the_fastest(std::initializer_list<spar::rank_t> numbers, double bound) {
  for (const double shared : {0.0, 0.5, 1.0}) { // the part of alpha that is latency
    for (const spar::rank_t ranks : numbers) {
      for (const std::uint64_t k : {600U, 3000U}) {
        const std::uint64_t n = 1000 * k;
        const auto all = inputs(ranks, n, k);
        for (const double alpha : {1e-6, 5e-6, 2e-5}) {
          for (const double gbits : {2.0, 4.0, 5.0, 7.0, 10.0, 14.0}) {
            const double bandwidth = gbits / 8 * 1e9, latency = shared * alpha;
            const spar::simulator_options network{
                .latency = latency, .bandwidth = bandwidth, .overhead = alpha - latency, .compute = 2e-9};
            const spar::network_model model{alpha, 1 / bandwidth, 2e-9, 2e-9, 7.2e-9, latency};
            ways to;
            add(to, spar::storage::coo{}, all, n, k, model, network);
            add(to, spar::storage::coded<>{}, all, n, k, model, network);
            const auto chosen = std::min_element(to.expected.begin(), to.expected.end()) - to.expected.begin();
            EXPECT_LE(to.found[static_cast<std::size_t>(chosen)],
                      bound * *std::min_element(to.found.begin(), to.found.end()))
                << "P = " << ranks << ", k = " << k << ", alpha = " << alpha << ", " << gbits << " Gbit/s, " << shared
                << " of alpha shared: way " << chosen;
          }
        }
      }
    }
  }
}

TEST(coded_choice, is_within_a_twentieth_of_the_fastest) {
  expect_near_the_fastest({2, 3, 4, 5, 8}, 1.05);
  if (!is_full()) return;
  expect_near_the_fastest({9, 13, 16}, 1.05);
  // Two messages that reach a link almost at once pass it in either order, which no model of the sizes can tell.
  expect_near_the_fastest({6, 7, 11, 12, 15}, 1.15);
}

} // namespace
} // namespace spar_test
