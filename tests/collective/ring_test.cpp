// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ring: its bits, from sums in the order of the ring, and its exact numbers of messages and bytes.
#include "support/ranks.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/system/collectives.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using vectors = std::vector<std::vector<float>>;

/// Values whose sum depends on the order of the additions.
vectors inputs(spar::rank_t ranks, std::size_t n) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i)
      x[r][i] = std::sin(static_cast<float>(3 * r + i)) * std::exp2(static_cast<float>(3 * (r % 5)));
  }
  return x;
}

/// The first index of block b: the first n mod P blocks have one value more.
std::size_t begin_of(std::size_t b, std::size_t n, std::size_t p) { return b * (n / p) + std::min(b, n % p); }
std::size_t size_of_block(std::size_t b, std::size_t n, std::size_t p) {
  return begin_of(b + 1, n, p) - begin_of(b, n, p);
}

/// Block b is added up from rank b + 1 to rank b.
std::vector<float> sum_by_hand(const vectors& x) {
  const std::size_t p = x.size(), n = x[0].size();
  std::vector<float> all(n);
  for (std::size_t b = 0; b < p; ++b) {
    for (std::size_t i = begin_of(b, n, p); i < begin_of(b + 1, n, p); ++i) {
      all[i] = x[(b + 1) % p][i];
      for (std::size_t hop = 2; hop <= p; ++hop) all[i] = all[i] + x[(b + hop) % p][i];
    }
  }
  return all;
}

struct dense {
  vectors* x;
  std::vector<spar::statistics>* cost;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, std::span((*x)[rank]), spar::ring{});
    co_await pending;
    (*cost)[rank] = pending.statistics();
  }
};

TEST(ring, adds_each_block_in_the_order_of_the_ring) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 5, 8}) {
      for (const std::size_t n : {0U, 1U, 4U, 61U}) {
        vectors x = inputs(ranks, n);
        const auto expected = sum_by_hand(x);
        std::vector<spar::statistics> cost(x.size());
        run(where, ranks, dense{&x, &cost});
        for (const auto& one : x) EXPECT_EQ(one, expected) << where << ", P = " << ranks << ", n = " << n;
      }
    }
  }
}

TEST(ring, sends_every_block_but_its_own_and_then_every_block_but_that_of_the_next_rank) {
  for (const spar::rank_t ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t n : {0U, 1U, 4U, 61U}) {
      vectors x = inputs(ranks, n);
      std::vector<spar::statistics> cost(x.size());
      run(mode::sim, ranks, dense{&x, &cost});
      const std::size_t p = x.size();
      for (std::size_t r = 0; r < p; ++r) {
        const std::size_t values = 2 * n - size_of_block(r, n, p) - size_of_block((r + 1) % p, n, p);
        EXPECT_EQ(cost[r].messages_sent, 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(cost[r].messages_received, 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(cost[r].bytes_sent, p == 1 ? 0 : 4 * values) << "P = " << p << ", n = " << n << ", rank " << r;
      }
    }
  }
}

/// Rank r has the entries r, r + P, r + 2 P and so on, so that no two ranks share an index.
spar::sparse_stream<float> every_pth_entry(spar::pool& memory, std::size_t n, std::size_t rank, std::size_t p) {
  auto mine = spar::sparse_stream<float>::sparse(memory, n, (n - rank + p - 1) / p);
  for (std::size_t e = 0; e < mine.indices().size(); ++e) {
    mine.indices()[e] = static_cast<std::uint32_t>(rank + e * p);
    mine.values()[e] = 1 + static_cast<float>(mine.indices()[e]);
  }
  return mine;
}

struct sparse {
  std::size_t n;
  vectors* sums;
  std::vector<spar::statistics>* cost;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto mine = every_pth_entry(net.memory(), n, rank, sums->size());
    auto pending = spar::start_allreduce(net, mine, spar::ring{});
    const auto sum = co_await pending;
    sum.to_dense((*sums)[rank], spar::sum{});
    (*cost)[rank] = pending.statistics();
  }
};

TEST(ring, unites_the_entries_of_all_ranks) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      const std::size_t n = 1000;
      vectors sums(static_cast<std::size_t>(ranks), std::vector<float>(n));
      std::vector<spar::statistics> cost(sums.size());
      run(where, ranks, sparse{n, &sums, &cost});
      for (const auto& one : sums) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(one[i], 1 + static_cast<float>(i)) << where << ", P = " << ranks;
      }
      for (const auto& c : cost) EXPECT_EQ(c.messages_sent, 2 * (sums.size() - 1)) << where;
    }
  }
}

} // namespace
} // namespace spar_test
