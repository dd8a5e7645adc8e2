// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The simulator's virtual time of each algorithm equals the alpha-beta-gamma formula of docs/reference/costs.md.
#include "support/compositions.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;

// Powers of two, whose sums are exact, so that times can be compared for equality.
constexpr double latency = 0x1p-20;
constexpr double overhead = 0x1p-22;
constexpr double beta = 0x1p-30;
constexpr double gamma_ = 0x1p-31;
constexpr double alpha = latency + overhead;

spar::simulator_options network() {
  spar::simulator_options options;
  options.latency = latency;
  options.overhead = overhead;
  options.bandwidth = 1 / beta;
  options.compute = gamma_;
  return options;
}

double log2_of(spar::rank_t ranks) { return std::floor(std::log2(ranks)); }
double log2_ceil(spar::rank_t ranks) { return std::ceil(std::log2(ranks)); }
bool power_of_two(spar::rank_t ranks) { return log2_of(ranks) == log2_ceil(ranks); }

template <class Algorithm>
struct stream_program {
  const inputs* mine;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto pending = spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
    co_await std::move(pending);
  }
};

template <class Algorithm>
struct dense_program {
  std::uint64_t n;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(n, 1.0F);
    auto pending = spar::start_allreduce(net, std::span<float>(x), Algorithm{});
    co_await std::move(pending);
    EXPECT_DOUBLE_EQ(pending.statistics().seconds, net.now());
  }
};

/// k entries on each rank, at the same or at disjoint indices, with equally many entries in each block for every P used
/// here.
constexpr std::uint64_t entries = 16ULL * 3 * 5 * 7 * 13;
constexpr std::uint64_t spacing = 64;
constexpr double n = static_cast<double>(entries * spacing);
constexpr double k = static_cast<double>(entries);
constexpr double entry = 8;
constexpr double value = 4;

inputs regular_inputs(spar::rank_t ranks, bool disjoint, std::uint64_t first = entries) {
  inputs all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].n = entries * spacing;
    for (std::uint64_t e = 0; e < first; ++e) {
      all[r].indices.push_back(static_cast<index>(e * spacing + (disjoint ? r : 0)));
      all[r].values.push_back(1);
    }
  }
  return all;
}

/// Number of entries in the union of the streams of `ranks` ranks.
double together(double ranks, bool disjoint) { return disjoint ? k * ranks : k; }

template <class Algorithm>
double seconds(spar::rank_t ranks, bool disjoint, const spar::simulator_options& options = network()) {
  const inputs mine = regular_inputs(ranks, disjoint);
  return run_sim(ranks, stream_program<Algorithm>{&mine}, options);
}

template <class Algorithm>
double dense_seconds(spar::rank_t ranks, std::uint64_t length) {
  return run_sim(ranks, dense_program<Algorithm>{length}, network());
}

// --- sparse ---

TEST(virtual_time, recursive_doubling_at_powers_of_two) {
  for (const spar::rank_t ranks : {1, 2, 4, 8, 16}) {
    for (const bool disjoint : {false, true}) {
      double expected = 0;
      for (double group = 1; group < ranks; group *= 2) {
        const double sent = together(group, disjoint);
        expected += alpha + sent * entry * beta + 2 * sent * gamma_;
      }
      EXPECT_DOUBLE_EQ(seconds<spar::recursive_doubling>(ranks, disjoint), expected) << ranks << ' ' << disjoint;
    }
  }
}

/// Folded ranks are late, so an active rank may find that its peer's message has arrived already:
/// docs/reference/costs.md gives the time rank by rank.
double folded_seconds(spar::rank_t ranks, bool disjoint) {
  const auto active = static_cast<std::size_t>(std::exp2(log2_of(ranks)));
  const std::size_t folded = static_cast<std::size_t>(ranks) - active;
  std::vector<double> ready(active), have(active, k); // when each active rank is ready, and with how many entries
  for (std::size_t u = 0; u < folded; ++u) {
    ready[u] = alpha + k * entry * beta + 2 * k * gamma_;
    have[u] = together(2, disjoint);
  }
  for (std::size_t distance = 1; distance < active; distance *= 2) {
    const auto before = ready;
    const auto sent = have;
    for (std::size_t u = 0; u < active; ++u) {
      const std::size_t peer = u ^ distance;
      const double left = before[u] + overhead + sent[u] * entry * beta;
      const double arrived = before[peer] + alpha + sent[peer] * entry * beta;
      ready[u] = std::max(std::max(arrived, before[u]) + (sent[u] + sent[peer]) * gamma_, left);
      if (disjoint) have[u] = sent[u] + sent[peer];
    }
  }
  double last = 0;
  for (std::size_t u = 0; u < active; ++u)
    last = std::max(last, ready[u] + (u < folded ? alpha + together(ranks, disjoint) * entry * beta : 0));
  return last;
}

TEST(virtual_time, recursive_doubling_at_other_numbers_of_ranks) {
  for (const spar::rank_t ranks : {3, 5, 7, 13}) {
    for (const bool disjoint : {false, true}) {
      EXPECT_DOUBLE_EQ(seconds<spar::recursive_doubling>(ranks, disjoint), folded_seconds(ranks, disjoint))
          << ranks << ' ' << disjoint;
    }
  }
}

TEST(virtual_time, ring) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const bool disjoint : {false, true}) {
      double expected = 0;
      for (double step = 1; step < ranks; ++step) {
        const double partial = together(step, disjoint) / ranks;
        const double reduced = together(ranks, disjoint) / ranks;
        expected += alpha + partial * entry * beta + (partial + k / ranks) * gamma_; // reduce-scatter
        expected += alpha + reduced * entry * beta;                                  // allgather
      }
      EXPECT_DOUBLE_EQ(seconds<spar::ring>(ranks, disjoint), expected) << ranks << ' ' << disjoint;
    }
  }
}

TEST(virtual_time, rabenseifner) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
    for (const bool disjoint : {false, true}) {
      if (disjoint && !power_of_two(ranks)) continue; // for these P, the waiting times depend on P
      const double active = std::exp2(log2_of(ranks));
      double expected = 0;
      if (!power_of_two(ranks)) expected += alpha + k * entry * beta + 2 * k * gamma_;
      for (double group = 1; group < active; group *= 2) {
        const double part = together(group, disjoint) / (2 * group);
        expected += alpha + part * entry * beta + 2 * part * gamma_;
        expected += alpha + together(active, disjoint) * group / active * entry * beta;
      }
      if (!power_of_two(ranks)) expected += alpha + k * entry * beta;
      EXPECT_DOUBLE_EQ(seconds<spar::rabenseifner>(ranks, disjoint), expected) << ranks << ' ' << disjoint;
    }
  }
}

/// P - 1 messages one after the other through each link, as in the paper, and the latency once. Then `times` passes
/// over the k entries.
double split_seconds(double ranks, double times = 1) {
  return (ranks < 2 ? 0 : latency + (ranks - 1) * (overhead + k / ranks * entry * beta)) + times * k * gamma_;
}

TEST(virtual_time, ssar_split) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const bool disjoint : {false, true}) {
      const double result = together(ranks, disjoint);
      const double rounds = log2_ceil(ranks);
      const double expected = split_seconds(ranks, std::max(1.0, rounds)) + rounds * alpha +
                              (ranks - 1) * (8 + result / ranks * entry) * beta + result / 2 * gamma_;
      EXPECT_DOUBLE_EQ(seconds<spar::ssar_split>(ranks, disjoint), expected) << ranks << ' ' << disjoint;
    }
  }
}

TEST(virtual_time, dsar_split) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const bool disjoint : {false, true}) {
      const double expected = split_seconds(ranks) + log2_ceil(ranks) * alpha + (ranks - 1) * n / ranks * value * beta;
      EXPECT_DOUBLE_EQ(seconds<spar::dsar_split>(ranks, disjoint), expected) << ranks << ' ' << disjoint;
    }
  }
}

TEST(virtual_time, quantised_split) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 8}) {
    const double block = n / ranks;
    const double bytes = block / 2 + std::ceil(block / 1024) * value; // four bits per value, one scale per bucket
    // Encodes its own block, and decodes all blocks, in 2.5 passes each.
    const double coding = 2.5 * (std::floor(block) + n) * gamma_;
    const double expected = split_seconds(ranks) + log2_ceil(ranks) * alpha + (ranks - 1) * bytes * beta + coding;
    EXPECT_DOUBLE_EQ(seconds<quantised_split<4>>(ranks, false), expected) << ranks;
  }
}

TEST(virtual_time, the_split_costs_a_message_time_for_each_peer) {
  // The paper's model: alpha is the sender's overhead, (P - 1) alpha for the first phase, and there is no latency.
  auto options = network();
  options.latency = 0;
  options.overhead = alpha;
  options.compute = 0;
  for (const spar::rank_t ranks : {2, 4, 8, 13}) {
    const double p = ranks;
    const double expected = (p - 1 + log2_ceil(ranks)) * alpha + (p - 1) / p * k * entry * beta +
                            (p - 1) / p * k * entry * beta + (p - 1) * 8 * beta;
    EXPECT_DOUBLE_EQ(seconds<spar::ssar_split>(ranks, false, options), expected) << ranks;
  }
}

TEST(virtual_time, sparcml_is_doubling_if_streams_are_short) {
  constexpr std::uint64_t some = 50;
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8}) { // disjoint streams of eight ranks have 400 entries
    for (const bool disjoint : {false, true}) {
      const inputs mine = regular_inputs(ranks, disjoint, some);
      const double doubling = run_sim(ranks, stream_program<spar::recursive_doubling>{&mine}, network());
      const double both = run_sim(ranks, stream_program<spar::sparcml>{&mine}, network());
      const double numbers = (log2_of(ranks) + (power_of_two(ranks) ? 0 : 2)) * 8 * beta;
      if (power_of_two(ranks)) {
        EXPECT_DOUBLE_EQ(both, doubling + numbers) << ranks << ' ' << disjoint;
      } else { // a rank may wait for a message that takes fewer hops
        EXPECT_LE(both, doubling + numbers) << ranks << ' ' << disjoint;
        EXPECT_GT(both, doubling) << ranks << ' ' << disjoint;
      }
    }
  }
}

TEST(virtual_time, sparcml_is_an_agreement_and_its_choice_if_streams_are_long) {
  for (const spar::rank_t ranks : {1, 2, 4, 8, 16}) { // all ranks leave the agreement at the same time
    for (const bool disjoint : {false, true}) {
      spar::simulator engine{ranks, network()};
      double chosen = 0;
      switch (spar::choose_sparcml(engine.rank(0).network(), {ranks, n, k, 4, 4}, 4)) {
      case spar::sparcml_choice::doubling:
        chosen = seconds<spar::recursive_doubling>(ranks, disjoint);
        break;
      case spar::sparcml_choice::ssar:
        chosen = seconds<spar::ssar_split>(ranks, disjoint);
        break;
      case spar::sparcml_choice::dsar:
        chosen = seconds<spar::dsar_split>(ranks, disjoint);
        break;
      }
      const double agreement = log2_of(ranks) * (alpha + 8 * beta);
      EXPECT_DOUBLE_EQ(seconds<spar::sparcml>(ranks, disjoint), agreement + chosen) << ranks << ' ' << disjoint;
    }
  }
}

// --- dense ---

/// Recursive doubling of a dense vector with folded ranks, rank by rank.
double folded_dense_seconds(spar::rank_t ranks, double size) {
  const auto active = static_cast<std::size_t>(std::exp2(log2_of(ranks)));
  const std::size_t folded = static_cast<std::size_t>(ranks) - active;
  const double bytes = size * value;
  std::vector<double> ready(active);
  for (std::size_t u = 0; u < folded; ++u) ready[u] = alpha + bytes * beta + size * gamma_;
  for (std::size_t distance = 1; distance < active; distance *= 2) {
    const auto before = ready;
    for (std::size_t u = 0; u < active; ++u)
      ready[u] = std::max(before[u] + overhead, before[u ^ distance] + alpha) + bytes * beta + size * gamma_;
  }
  double last = 0;
  for (std::size_t u = 0; u < active; ++u) last = std::max(last, ready[u] + (u < folded ? alpha + bytes * beta : 0));
  return last;
}

TEST(virtual_time, dense_algorithms) {
  constexpr std::uint64_t length = 16ULL * 3 * 5 * 7 * 13;
  constexpr auto size = static_cast<double>(length);
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
    const double p = ranks;
    const double m = log2_of(ranks);
    const double active = std::exp2(m);
    const double folding = power_of_two(ranks) ? 0 : 2 * (alpha + size * value * beta) + size * gamma_;
    const double halved = (active - 1) / active * size;
    EXPECT_DOUBLE_EQ(dense_seconds<spar::recursive_doubling>(ranks, length),
                     power_of_two(ranks) ? m * (alpha + size * value * beta + size * gamma_)
                                         : folded_dense_seconds(ranks, size));
    EXPECT_DOUBLE_EQ(dense_seconds<spar::rabenseifner>(ranks, length),
                     folding + 2 * m * alpha + 2 * halved * value * beta + halved * gamma_);
    const double passed = (p - 1) / p * size;
    EXPECT_DOUBLE_EQ(dense_seconds<spar::ring>(ranks, length),
                     2 * (p - 1) * alpha + 2 * passed * value * beta + passed * gamma_);
  }
}

TEST(virtual_time, is_what_the_cost_model_says_of_dense_algorithms) {
  spar::network_model model;
  model.alpha = alpha;
  model.beta = beta;
  model.gamma_dense = gamma_;
  constexpr std::uint64_t length = 16ULL * 3 * 5 * 7 * 13;
  for (const spar::rank_t ranks : {1, 2, 4, 8, 16, 3, 5, 7, 13}) {
    const spar::call_shape call{ranks, static_cast<double>(length), static_cast<double>(length), 4, 4};
    const double doubling = dense_seconds<spar::recursive_doubling>(ranks, length);
    if (power_of_two(ranks)) {
      EXPECT_DOUBLE_EQ(doubling, spar::seconds_dense_recursive_doubling(model, call));
    } else { // the model counts every latency, also those that pass while a rank waits for folded ranks
      EXPECT_LE(doubling, spar::seconds_dense_recursive_doubling(model, call));
      EXPECT_GE(doubling, spar::seconds_dense_recursive_doubling(model, call) - log2_ceil(ranks) * latency);
    }
    EXPECT_DOUBLE_EQ(dense_seconds<spar::rabenseifner>(ranks, length), spar::seconds_rabenseifner(model, call));
    EXPECT_DOUBLE_EQ(dense_seconds<spar::ring>(ranks, length), spar::seconds_ring(model, call));
  }
}

enum class piece { reduce_scatter, allgather, reduce, broadcast };

struct piece_program {
  piece what;
  std::uint64_t length;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(length, 1.0F);
    const std::span<float> mine(x);
    if (what == piece::reduce_scatter) {
      auto pending = spar::start_reduce_scatter(net, mine);
      co_await std::move(pending);
    } else if (what == piece::allgather) {
      auto pending = spar::start_allgather(net, mine);
      co_await std::move(pending);
    } else if (what == piece::reduce) {
      auto pending = spar::start_reduce(net, mine, 0);
      co_await std::move(pending);
    } else {
      auto pending = spar::start_broadcast(net, mine, 0);
      co_await std::move(pending);
    }
  }
};

TEST(virtual_time, pieces) {
  constexpr std::uint64_t length = 16ULL * 3 * 5 * 7 * 13;
  constexpr auto size = static_cast<double>(length);
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
    const double p = ranks;
    const double passed = (p - 1) / p * size;
    const auto time = [&](piece what) { return run_sim(ranks, piece_program{what, length}, network()); };
    EXPECT_DOUBLE_EQ(time(piece::reduce_scatter), (p - 1) * alpha + passed * value * beta + passed * gamma_) << ranks;
    EXPECT_DOUBLE_EQ(time(piece::allgather), log2_ceil(ranks) * alpha + passed * value * beta) << ranks;
    if (!power_of_two(ranks)) continue;
    const double rounds = log2_of(ranks);
    EXPECT_DOUBLE_EQ(time(piece::reduce), rounds * (alpha + size * value * beta + size * gamma_)) << ranks;
    EXPECT_DOUBLE_EQ(time(piece::broadcast), rounds * (alpha + size * value * beta)) << ranks;
  }
}

} // namespace
} // namespace spar_test
