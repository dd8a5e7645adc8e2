// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of an allreduce as separate collectives: reduce-scatter, allgather, reduce and broadcast, dense and sparse,
// with every root.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using part = spar::sparse_stream<float, index>;
using parts = std::vector<part>;
using inputs = std::vector<contribution<float, index>>;
using vectors = std::vector<std::vector<float>>;

const pattern shapes[] = {pattern::empty,  pattern::one,       pattern::identical,  pattern::disjoint,
                          pattern::random, pattern::clustered, pattern::some_empty, pattern::full};

std::vector<std::uint64_t> dimensions(spar::rank_t ranks) {
  const auto p = static_cast<std::uint64_t>(ranks);
  return {0, 1, p - 1, p, 100, 6000};
}

/// Calls `check(where, ranks, n)` for every transport, number of ranks and dimension; in the quick set for each number
/// of ranks and dimension on one transport.
template <class Check>
void everywhere(const Check& check) {
  for (const mode where : all_modes) {
    for (std::size_t i = 0; i < all_ranks.size(); ++i) {
      const spar::rank_t ranks = all_ranks[i];
      std::size_t position = 0;
      for (const std::uint64_t n : dimensions(ranks)) {
        if (!runs_case(4, position_of(where), i, position++)) continue;
        SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", n = " << n);
        check(where, ranks, n);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  for (const spar::rank_t ranks : many_ranks()) {
    SCOPED_TRACE(testing::Message() << "P = " << ranks);
    check(mode::sim, ranks, 300);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// A whole number at each index of each rank.
vectors dense_inputs(spar::rank_t ranks, std::uint64_t n) {
  vectors all(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) all[r][i] = static_cast<float>((7 * r + 3 * i) % 11);
  return all;
}
std::vector<float> sum_of(const vectors& all) {
  std::vector<float> total(all[0].size());
  for (const auto& x : all)
    for (std::size_t i = 0; i < x.size(); ++i) total[i] += x[i];
  return total;
}

// --- dense ---

struct reduce_scatter_dense {
  vectors* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto pending = spar::start_reduce_scatter(net, std::span<float>((*x)[static_cast<std::size_t>(net.rank())]));
    co_await std::move(pending);
  }
};

template <class Ownership>
void expect_blocks(const vectors& x, const std::vector<float>& total, const Ownership& owner) {
  for (std::size_t r = 0; r < x.size(); ++r) {
    const spar::index_range own = owner[static_cast<spar::rank_t>(r)];
    for (std::uint64_t i = own.begin; i < own.end; ++i) ASSERT_EQ(x[r][i], total[i]) << "rank " << r << ", index " << i;
  }
}

TEST(reduce_scatter, of_dense_spans) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    auto x = dense_inputs(ranks, n);
    const auto total = sum_of(x);
    run(where, ranks, reduce_scatter_dense{&x});
    ASSERT_NO_FATAL_FAILURE(expect_blocks(x, total, spar::uniform_ownership{n, ranks}));
  });
}

/// The bounds of blocks of very different lengths: all indices on one rank, the lengths 0, 1, 0, 1, .. and the rest on
/// the last rank, and random bounds.
std::vector<std::vector<std::uint64_t>> bounds_of(spar::rank_t ranks, std::uint64_t n) {
  const auto p = static_cast<std::size_t>(ranks);
  std::vector<std::vector<std::uint64_t>> all(4, std::vector<std::uint64_t>(p + 1, n));
  all[0].assign(p, 0), all[0].push_back(n); // all on the last rank
  all[1][0] = 0;                            // all on the first rank
  for (std::size_t b = 0; b < p; ++b) all[2][b] = std::min<std::uint64_t>(b / 2, n);
  all[3][0] = 0;
  for (std::size_t b = 1; b < p; ++b) all[3][b] = spar::detail::splitmix(b) % (n + 1);
  std::sort(all[3].begin(), all[3].end());
  return all;
}

struct reduce_scatter_dense_to_owners {
  vectors* x;
  const std::vector<std::uint64_t>* bounds;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<float> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = spar::start_reduce_scatter(net, mine, spar::bounded_ownership{*bounds});
    co_await std::move(pending);
  }
};

TEST(reduce_scatter, of_dense_spans_to_blocks_of_the_caller) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const auto& bounds : bounds_of(ranks, n)) {
      auto x = dense_inputs(ranks, n);
      const auto total = sum_of(x);
      run(where, ranks, reduce_scatter_dense_to_owners{&x, &bounds});
      ASSERT_NO_FATAL_FAILURE(expect_blocks(x, total, spar::bounded_ownership{bounds}));
    }
  });
}

struct allgather_dense {
  vectors* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto pending = spar::start_allgather(net, std::span<float>((*x)[static_cast<std::size_t>(net.rank())]));
    co_await std::move(pending);
  }
};

TEST(allgather, of_dense_blocks) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    auto x = dense_inputs(ranks, n);
    const spar::uniform_ownership owner{n, ranks};
    std::vector<float> whole(n);
    for (spar::rank_t r = 0; r < ranks; ++r)
      for (std::uint64_t i = owner[r].begin; i < owner[r].end; ++i) whole[i] = x[static_cast<std::size_t>(r)][i];
    run(where, ranks, allgather_dense{&x});
    for (const auto& mine : x) ASSERT_EQ(mine, whole);
  });
}

/// One reduce or broadcast for every root, one after the other.
struct rooted_dense {
  std::vector<vectors>* x; // by root
  bool broadcasts;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    for (std::size_t root = 0; root < x->size(); ++root) {
      const std::span<float> mine((*x)[root][static_cast<std::size_t>(net.rank())]);
      if (broadcasts) {
        auto pending = spar::start_broadcast(net, mine, static_cast<spar::rank_t>(root));
        co_await std::move(pending);
      } else {
        auto pending =
            spar::start_reduce(net, mine, static_cast<spar::rank_t>(root), spar::binomial_reduce{}, spar::maximum{});
        co_await std::move(pending);
      }
    }
  }
};

TEST(reduce, of_dense_spans_to_every_root) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    const auto before = dense_inputs(ranks, n);
    std::vector<float> largest(n);
    for (const auto& mine : before)
      for (std::size_t i = 0; i < n; ++i) largest[i] = std::max(largest[i], mine[i]);
    std::vector<vectors> x(static_cast<std::size_t>(std::min(ranks, 13)), before);
    run(where, ranks, rooted_dense{&x, false});
    for (std::size_t root = 0; root < x.size(); ++root) ASSERT_EQ(x[root][root], largest) << "root " << root;
  });
}

TEST(broadcast, of_dense_spans_from_every_root) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    const auto before = dense_inputs(ranks, n);
    std::vector<vectors> x(static_cast<std::size_t>(std::min(ranks, 13)), before);
    run(where, ranks, rooted_dense{&x, true});
    for (std::size_t root = 0; root < x.size(); ++root)
      for (const auto& mine : x[root]) ASSERT_EQ(mine, before[root]) << "root " << root;
  });
}

// --- sparse ---

struct reduce_scatter_sparse {
  const inputs* mine;
  parts* results;
  const std::vector<std::uint64_t>* bounds = nullptr;
  bool by_ring = false;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto view = (*mine)[rank].view();
    if (bounds == nullptr) {
      auto pending = spar::start_reduce_scatter(net, view);
      (*results)[rank] = co_await std::move(pending);
    } else if (by_ring) {
      const spar::bounded_ownership owners{*bounds};
      auto pending = spar::start_reduce_scatter(net, view, owners, spar::ring_reduce_scatter{});
      (*results)[rank] = co_await std::move(pending);
    } else {
      auto pending = spar::start_reduce_scatter(net, view, spar::bounded_ownership{*bounds});
      (*results)[rank] = co_await std::move(pending);
    }
  }
};

/// Checks that `result` holds exactly the entries that `expected` has in `range`.
void expect_range(const part& result, const expectation<float>& expected, spar::index_range range) {
  ASSERT_FALSE(result.is_dense());
  ASSERT_NO_THROW(spar::validate(result.view()));
  std::size_t e = 0;
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    if (!expected.present[i]) continue;
    ASSERT_LT(e, result.count());
    ASSERT_EQ(result.indices()[e], i);
    ASSERT_EQ(result.values()[e], static_cast<float>(expected.values[i])) << "index " << i;
    ++e;
  }
  ASSERT_EQ(e, result.count());
}

TEST(reduce_scatter, of_streams) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const pattern shape : shapes) {
      const auto mine = contributions<float, index>(shape, ranks, n, n + 1, exact_value<float>);
      parts results(static_cast<std::size_t>(ranks));
      run(where, ranks, reduce_scatter_sparse{&mine, &results});
      const auto expected = expected_of(mine, spar::sum{});
      const spar::uniform_ownership owner{n, ranks};
      for (spar::rank_t r = 0; r < ranks; ++r)
        ASSERT_NO_FATAL_FAILURE(expect_range(results[static_cast<std::size_t>(r)], expected, owner[r]))
            << shape << ' ' << r;
    }
  });
}

TEST(reduce_scatter, of_streams_to_blocks_of_the_caller) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const pattern shape : {pattern::random, pattern::some_empty, pattern::identical}) {
      const auto mine = contributions<float, index>(shape, ranks, n, n + 1, exact_value<float>);
      const auto expected = expected_of(mine, spar::sum{});
      for (const auto& bounds : bounds_of(ranks, n)) {
        const spar::bounded_ownership owner{bounds};
        for (const bool by_ring : {false, true}) {
          parts results(static_cast<std::size_t>(ranks));
          run(where, ranks, reduce_scatter_sparse{&mine, &results, &bounds, by_ring});
          for (spar::rank_t r = 0; r < ranks; ++r) {
            part& block = results[static_cast<std::size_t>(r)];
            if (block.is_dense()) continue; // a block of the ring that turned dense; its values are checked below
            ASSERT_NO_FATAL_FAILURE(expect_range(block, expected, owner[r])) << shape << ' ' << r;
          }
          for (spar::rank_t r = 0; r < ranks; ++r) {
            std::vector<float> dense(n);
            results[static_cast<std::size_t>(r)].to_dense(dense, spar::sum{});
            for (std::uint64_t i = 0; i < n; ++i) {
              const bool own = i >= owner[r].begin && i < owner[r].end;
              ASSERT_EQ(dense[i], own ? static_cast<float>(expected.values[i]) : 0) << shape << ", rank " << r;
            }
          }
        }
      }
    }
  });
}

using collected = std::optional<spar::gathered<float, index>>;

struct allgather_sparse {
  const inputs* mine;
  std::vector<collected>* results;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allgather(net, (*mine)[rank].view());
    (*results)[rank].emplace(co_await std::move(pending));
  }
};

TEST(allgather, of_streams) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const pattern shape : shapes) {
      const auto mine = contributions<float, index>(shape, ranks, n, n + 1, exact_value<float>);
      std::vector<collected> results(static_cast<std::size_t>(ranks));
      run(where, ranks, allgather_sparse{&mine, &results});
      std::uint64_t entries = 0;
      for (const auto& input : mine) entries += input.indices.size();
      for (const auto& result : results) {
        ASSERT_EQ(result->size(), mine.size());
        ASSERT_EQ(result->count(), entries);
        ASSERT_EQ(result->dimension(), n);
        for (std::size_t r = 0; r < mine.size(); ++r) {
          ASSERT_TRUE(same_bits<index>(result->part(r).indices(), mine[r].indices)) << shape << ", part " << r;
          ASSERT_TRUE(same_bits<float>(result->part(r).values(), mine[r].values)) << shape << ", part " << r;
        }
      }
    }
  });
}

struct rooted_sparse {
  const inputs* mine;
  std::vector<parts>* results; // by root
  bool broadcasts;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (std::size_t root = 0; root < results->size(); ++root) {
      if (broadcasts) {
        auto pending = spar::start_broadcast(net, (*mine)[rank].view(), static_cast<spar::rank_t>(root));
        (*results)[root][rank] = co_await std::move(pending);
      } else {
        auto pending = spar::start_reduce(net, (*mine)[rank].view(), static_cast<spar::rank_t>(root));
        (*results)[root][rank] = co_await std::move(pending);
      }
    }
  }
};

TEST(reduce, of_streams_to_every_root) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const pattern shape : all_patterns) {
      const auto mine = contributions<float, index>(shape, ranks, n, n + 1, exact_value<float>);
      std::vector<parts> results(static_cast<std::size_t>(std::min(ranks, 13)));
      for (auto& of_root : results) of_root.resize(static_cast<std::size_t>(ranks));
      run(where, ranks, rooted_sparse{&mine, &results, false});
      const auto expected = expected_of(mine, spar::sum{});
      for (std::size_t root = 0; root < results.size(); ++root) {
        std::vector<float> dense(n);
        results[root][root].to_dense(dense, spar::sum{});
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(dense[i], static_cast<float>(expected.values[i])) << shape << ", root " << root << ", index " << i;
        for (std::size_t r = 0; r < mine.size(); ++r) {
          if (r != root) {
            ASSERT_EQ(results[root][r].count(), 0U) << shape << ", root " << root << ", rank " << r;
          }
        }
      }
    }
  });
}

TEST(broadcast, of_streams_from_every_root) {
  everywhere([](mode where, spar::rank_t ranks, std::uint64_t n) {
    for (const pattern shape : all_patterns) {
      const auto mine = contributions<float, index>(shape, ranks, n, n + 1, exact_value<float>);
      std::vector<parts> results(static_cast<std::size_t>(std::min(ranks, 13)));
      for (auto& of_root : results) of_root.resize(static_cast<std::size_t>(ranks));
      run(where, ranks, rooted_sparse{&mine, &results, true});
      for (std::size_t root = 0; root < results.size(); ++root) {
        for (const part& result : results[root]) {
          ASSERT_EQ(result.is_dense(), mine[root].dense) << shape << ", root " << root;
          ASSERT_TRUE(same_bits<index>(result.indices(), mine[root].indices)) << shape << ", root " << root;
          ASSERT_TRUE(same_bits<float>(result.values(), mine[root].values)) << shape << ", root " << root;
        }
      }
    }
  });
}

} // namespace
} // namespace spar_test
