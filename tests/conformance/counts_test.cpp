// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages and bytes of every algorithm on every rank, exactly as docs/reference/costs.md derives them and, where the
// assumptions of the paper hold (SparCML, section 5.3), as in the paper.
#include "expected_traffic.hpp"
#include "support/compositions.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;

/// What a rank sent and received in one call, according to the counting transport and to the call's statistics.
struct measured {
  std::vector<spar::counting<spar::threads>::traffic> sent; // to each peer
  std::vector<spar::counting<spar::threads>::traffic> received;
  spar::statistics cost;
  spar::sparse_stream<float, index> sum; // of streams
};

/// Runs one collective through a counting transport; `call(net, input, algorithm)` starts the collective.
template <class Algorithm>
struct counted_allreduce {
  const inputs* mine;
  std::vector<measured>* results;
  Algorithm algorithm{};

  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::counting<Net> net{inner};
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, (*mine)[rank].view(), algorithm);
    (*results)[rank].sum = co_await std::move(pending);
    record((*results)[rank], net, pending.statistics());
  }

  template <class Counting>
  static void record(measured& result, const Counting& net, const spar::statistics& cost) {
    for (spar::rank_t peer = 0; peer < net.size(); ++peer) {
      result.sent.push_back({net.sent(peer).messages, net.sent(peer).bytes});
      result.received.push_back({net.received(peer).messages, net.received(peer).bytes});
    }
    result.cost = cost;
    EXPECT_EQ(net.sent().messages, cost.messages_sent);
    EXPECT_EQ(net.sent().bytes, cost.bytes_sent);
    EXPECT_EQ(net.received().messages, cost.messages_received);
    EXPECT_EQ(net.received().bytes, cost.bytes_received);
    EXPECT_EQ(net.last_call().bytes_sent, cost.bytes_sent);
  }
};

template <class Algorithm>
struct counted_dense {
  std::vector<std::vector<float>>* x;
  std::vector<measured>* results;
  Algorithm algorithm{};

  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::counting<Net> net{inner};
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, std::span<float>((*x)[rank]), algorithm);
    co_await std::move(pending);
    counted_allreduce<Algorithm>::record((*results)[rank], net, pending.statistics());
  }
};

/// Whatever one rank reports as sent, its peer reports as received, headers included.
void expect_consistent(const std::vector<measured>& all) {
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) ASSERT_TRUE(all[a].sent[b] == all[b].received[a]) << a << " to " << b;
    ASSERT_EQ(all[a].sent[a].messages, 0U) << "a rank sent itself a message";
    ASSERT_EQ(all[a].cost.header_bytes_sent, sizeof(spar::header) * all[a].cost.messages_sent);
    ASSERT_EQ(all[a].cost.header_bytes_received, sizeof(spar::header) * all[a].cost.messages_received);
  }
}

template <class Algorithm>
std::vector<measured> measure(mode where, const inputs& mine, Algorithm algorithm = {}) {
  std::vector<measured> results(mine.size());
  run(where, static_cast<spar::rank_t>(mine.size()), counted_allreduce<Algorithm>{&mine, &results, algorithm});
  expect_consistent(results);
  return results;
}

costs costs_of(const inputs& mine) {
  costs c{mine[0].n, std::vector<std::set<std::uint64_t>>(mine.size())};
  for (std::size_t r = 0; r < mine.size(); ++r) c.indices[r].insert(mine[r].indices.begin(), mine[r].indices.end());
  return c;
}

constexpr std::uint64_t dimension = 100'000;
constexpr std::uint64_t per_rank = 90;

/// The same k indices on every rank, or k different ones on each, spread over the whole range.
inputs extreme_inputs(spar::rank_t ranks, bool disjoint, std::uint64_t k = per_rank) {
  inputs all(static_cast<std::size_t>(ranks));
  const std::uint64_t stride = dimension / k;
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].n = dimension;
    for (std::uint64_t e = 0; e < k; ++e) {
      all[r].indices.push_back(static_cast<index>(e * stride + (disjoint ? r : 0)));
      all[r].values.push_back(1);
    }
  }
  return all;
}

inputs random_inputs(spar::rank_t ranks, std::uint64_t k, std::uint64_t n, std::uint64_t seed) {
  inputs all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::mt19937_64 random(seed * 1000 + r);
    std::set<std::uint64_t> chosen;
    while (chosen.size() < k) chosen.insert(random() % n);
    all[r].n = n;
    for (const std::uint64_t i : chosen) {
      all[r].indices.push_back(static_cast<index>(i));
      all[r].values.push_back(1);
    }
  }
  return all;
}

std::vector<spar::rank_t> ranks_of(mode where) {
  std::vector<spar::rank_t> ranks(all_ranks.begin(), all_ranks.end());
  if (where == mode::sim) ranks.push_back(64);
  return ranks;
}

/// The shapes for which formulas are asserted. They have so few entries that nothing turns dense, except in the last.
std::vector<inputs> shapes(spar::rank_t ranks) {
  return {extreme_inputs(ranks, false), extreme_inputs(ranks, true), random_inputs(ranks, 50, 40'000, 1),
          random_inputs(ranks, 0, 1000, 1), random_inputs(ranks, 1, 5, 3)};
}

/// Checks `formula(costs, rank)` for every number of ranks and every shape on both transports.
template <class Algorithm, class Formula>
void expect_formula(const Formula& formula, Algorithm algorithm = {}, std::size_t skipped_shapes = 0) {
  for (const mode where : free_modes) {
    for (const spar::rank_t ranks : ranks_of(where)) {
      auto all_shapes = shapes(ranks);
      all_shapes.resize(all_shapes.size() - skipped_shapes);
      for (std::size_t shape = 0; shape < all_shapes.size(); ++shape) {
        const auto& mine = all_shapes[shape];
        const auto results = measure(where, mine, algorithm);
        if (testing::Test::HasFatalFailure()) return;
        const costs c = costs_of(mine);
        for (std::size_t r = 0; r < mine.size(); ++r) {
          const traffic expected = formula(c, r);
          ASSERT_EQ(results[r].cost.messages_sent, expected.messages)
              << where << ", P = " << ranks << ", shape " << shape << ", rank " << r;
          ASSERT_EQ(results[r].cost.bytes_sent, expected.bytes)
              << where << ", P = " << ranks << ", shape " << shape << ", rank " << r;
        }
      }
    }
  }
}

// --- the paper's formulas ---

TEST(counts, recursive_doubling_is_the_papers_formula_at_powers_of_two) {
  for (const spar::rank_t ranks : {1, 2, 4, 8, 64}) {
    std::uint64_t rounds = 0;
    while ((1 << rounds) < ranks) ++rounds;
    for (const bool disjoint : {false, true}) {
      const auto results = measure(mode::sim, extreme_inputs(ranks, disjoint), spar::recursive_doubling{});
      const std::uint64_t entries = disjoint ? per_rank * static_cast<std::uint64_t>(ranks - 1) : per_rank * rounds;
      for (const auto& result : results) {
        EXPECT_EQ(result.cost.messages_sent, rounds) << "P = " << ranks;
        EXPECT_EQ(result.cost.messages_received, rounds);
        EXPECT_EQ(result.cost.bytes_sent, 8 * entries) << "P = " << ranks << ", disjoint: " << disjoint;
        EXPECT_EQ(result.cost.bytes_received, 8 * entries);
      }
    }
  }
}

TEST(counts, split_allgather_is_the_papers_formula_in_the_extremes) {
  // With k a multiple of P, a rank sends k (P - 1) / P entries in the first phase. In the second phase it sends k (P -
  // 1) / P entries if all ranks have the same indices, and k (P - 1) if all indices are disjoint, plus 8 bytes for the
  // size of each part.
  for (const spar::rank_t ranks : {2, 3, 4, 5, 8, 64}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const std::uint64_t k = 10 * p;
    for (const bool disjoint : {false, true}) {
      const auto mine = extreme_inputs(ranks, disjoint, k);
      const auto results = measure(mode::sim, mine, spar::ssar_split{});
      const std::uint64_t second = disjoint ? k * (p - 1) : k * (p - 1) / p;
      std::uint64_t total = 0;
      for (const auto& result : results) total += result.cost.bytes_sent;
      EXPECT_EQ(total, p * (8 * (k * (p - 1) / p + second) + 8 * (p - 1))) << "P = " << ranks;
    }
  }
}

TEST(counts, random_patterns_stay_inside_the_papers_intervals) {
  for (const spar::rank_t ranks : {2, 4, 8, 64}) {
    const auto p = static_cast<double>(ranks);
    constexpr double k = 500;
    constexpr double n = 200'000;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const auto mine = random_inputs(ranks, 500, 200'000, seed);
      const auto mean_entries = [&](const std::vector<measured>& results) {
        double bytes = 0;
        for (const auto& result : results) bytes += static_cast<double>(result.cost.bytes_sent);
        return bytes / p / 8;
      };
      const double doubling = mean_entries(measure(mode::sim, mine, spar::recursive_doubling{}));
      EXPECT_GE(doubling, k * std::log2(p)) << "P = " << ranks;
      EXPECT_LE(doubling, k * (p - 1)) << "P = " << ranks;
      const double split = mean_entries(measure(mode::sim, mine, spar::ssar_split{})) - (p - 1);
      EXPECT_GE(split, 1.9 * k * (p - 1) / p) << "P = " << ranks; // own blocks hold k / P only on average
      EXPECT_LE(split, k * p) << "P = " << ranks;
      const double dsar = mean_entries(measure(mode::sim, mine, spar::dsar_split{}));
      EXPECT_GE(dsar, n / 2 * (p - 1) / p) << "P = " << ranks;
      EXPECT_LE(dsar, k + n / 2 * (p - 1) / p) << "P = " << ranks;
    }
  }
}

// --- the formulas of docs/reference/costs.md, for every P ---

TEST(counts, recursive_doubling) {
  expect_formula<spar::recursive_doubling>([](const costs& c, std::size_t r) { return c.recursive_doubling(r); }, {},
                                           1);
}

TEST(counts, ring) {
  // Skips the last shape, which turns blocks dense; a test below covers dense streams.
  expect_formula<spar::ring>([](const costs& c, std::size_t r) { return c.ring(r); }, {}, 1);
}

TEST(counts, rabenseifner) {
  expect_formula<spar::rabenseifner>([](const costs& c, std::size_t r) { return c.rabenseifner(r); }, {}, 1);
}

TEST(counts, ssar_split) {
  expect_formula<spar::ssar_split>([](const costs& c, std::size_t r) { return c.ssar_split(r); });
}

TEST(counts, dsar_split) {
  expect_formula<spar::dsar_split>([](const costs& c, std::size_t r) { return c.dsar_split(r); });
}

TEST(counts, quantised_split) {
  expect_formula<quantised_split<8>>([](const costs& c, std::size_t r) { return c.quantised_split(r, 8, 1024); });
  expect_formula<quantised_split<4>>([](const costs& c, std::size_t r) { return c.quantised_split(r, 4, 1024); });
  expect_formula([](const costs& c, std::size_t r) { return c.quantised_split(r, 2, 64); },
                 quantised_split<2>{.store = {.blocks = {.bucket = 64}}});
}

TEST(counts, the_quantised_phase_is_bits_of_32_and_a_scale_a_bucket) {
  const auto check = [](auto algorithm, std::uint64_t bits) {
    constexpr std::uint64_t ranks = 4;
    constexpr std::uint64_t n = ranks * 8 * 1024; // only whole buckets
    const auto mine = random_inputs(ranks, 100, n, 5);
    const auto quantised = measure(mode::threads, mine, algorithm);
    const auto plain = measure(mode::threads, mine, spar::dsar_split{});
    const costs c = costs_of(mine);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::uint64_t second = quantised[r].cost.bytes_sent - c.split(r).bytes;
      const std::uint64_t dense = plain[r].cost.bytes_sent - c.split(r).bytes;
      EXPECT_EQ(dense, 4 * n * (ranks - 1) / ranks);
      EXPECT_EQ(second, dense * bits / 32 + 4 * (dense / 4 / 1024));
      EXPECT_EQ(quantised[r].cost.messages_sent, plain[r].cost.messages_sent);
    }
  };
  check(quantised_split<2>{}, 2);
  check(quantised_split<4>{}, 4);
  check(quantised_split<8>{}, 8);
}

/// Rank r has k(r) entries, no two of them at the same index.
template <class Entries>
inputs disjoint_inputs(spar::rank_t ranks, const Entries& k) {
  inputs all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].n = dimension;
    for (std::uint64_t e = 0; e < k(r); ++e) {
      all[r].indices.push_back(static_cast<index>(e * all.size() + r));
      all[r].values.push_back(static_cast<float>(r + 1));
    }
  }
  return all;
}

/// Calls in which all streams are short, or some, or none, or which become long in any round.
std::vector<inputs> short_and_long(spar::rank_t ranks) {
  const auto last = static_cast<std::size_t>(ranks - 1);
  std::vector<inputs> all{extreme_inputs(ranks, false),
                          extreme_inputs(ranks, false, 508), // the most entries of a short stream
                          extreme_inputs(ranks, false, 509),
                          random_inputs(ranks, 4'000, 200'000, 9),
                          random_inputs(ranks, 6'000, 20'000, 9),
                          disjoint_inputs(ranks, [](std::size_t) { return 0U; }),
                          disjoint_inputs(ranks, [](std::size_t r) { return r == 0 ? 600U : 0U; }),
                          disjoint_inputs(ranks, [&](std::size_t r) { return r == last ? std::size_t{509} : r % 3; })};
  for (const std::uint64_t k : {31U, 63U, 127U, 254U, 255U}) // sums of at most 16, 8, 4, 2 and 1 ranks are short
    all.push_back(disjoint_inputs(ranks, [&](std::size_t) { return k; }));
  return all;
}

spar::network_model model_of(mode where) {
  spar::simulator engine{1};
  spar::thread_group group{1};
  return where == mode::sim ? engine.rank(0).network() : group.rank(0).network();
}

TEST(counts, sparcml_is_doubling_of_short_streams_and_then_its_choice) {
  std::set<std::optional<spar::sparcml_choice>> seen;
  for (const mode where : free_modes) {
    for (const spar::rank_t ranks : ranks_of(where)) {
      for (const auto& mine : short_and_long(ranks)) {
        std::uint64_t k = 0;
        for (const auto& its : mine) k = std::max<std::uint64_t>(k, its.indices.size());
        if (ranks > 13 && k > 130) continue; // the reference would take too long
        SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", k = " << k);
        auto results = measure(where, mine, spar::sparcml{});
        std::vector<spar::sparse_stream<float, index>> sums;
        for (auto& its : results) sums.push_back(std::move(its.sum));
        expect_result(sums, expected_of(mine, spar::sum{}), spar::sum{}, exactly);

        const costs c = costs_of(mine);
        const spar::network_model model = model_of(where);
        const spar::call_shape call{ranks, static_cast<double>(mine[0].n), static_cast<double>(k), 4, 4};
        std::optional<spar::sparcml_choice> choice;
        if (!c.all_short()) choice = spar::choose_sparcml(model, call, 4);
        seen.insert(choice);
        std::vector<measured> chosen(mine.size());
        if (choice == spar::sparcml_choice::doubling)
          chosen = measure(where, mine, spar::recursive_doubling{.dense_from = call.dense_fraction(model)});
        if (choice == spar::sparcml_choice::ssar) chosen = measure(where, mine, spar::ssar_split{});
        if (choice == spar::sparcml_choice::dsar) chosen = measure(where, mine, spar::dsar_split{});
        for (std::size_t r = 0; r < mine.size(); ++r) {
          const traffic first = c.sum_if_short(r);
          ASSERT_EQ(results[r].cost.messages_sent, first.messages + chosen[r].cost.messages_sent) << "rank " << r;
          ASSERT_EQ(results[r].cost.bytes_sent, first.bytes + chosen[r].cost.bytes_sent) << "rank " << r;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U) << "expected short calls and each of the three choices at least once";
}

TEST(counts, a_stream_that_turned_dense_is_sent_as_n_values) {
  // 60 of 100 entries, each on two ranks: 120 > delta = 50, so from the second round on the vectors are dense.
  for (const spar::rank_t ranks : {4, 8, 64}) {
    std::uint64_t rounds = 0;
    while ((1 << rounds) < ranks) ++rounds;
    const auto mine = random_inputs(ranks, 40, 100, 2);
    const auto results = measure(mode::sim, mine, spar::recursive_doubling{});
    for (const auto& result : results) EXPECT_EQ(result.cost.bytes_sent, 40 * 8 + (rounds - 1) * 100 * 4);
  }
}

/// Streams of `ranks` ranks that overlap, with many entries at the low indices, where sums turn dense, and few at the
/// others, where they do not.
inputs crowded_inputs(spar::rank_t ranks) {
  inputs all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].n = 1001;
    for (std::uint64_t i = 0; i < 1001; i += 1 + i / 20) {
      all[r].indices.push_back(static_cast<index>(i + r % 2));
      all[r].values.push_back(static_cast<float>(1 + r));
      if (i + r % 2 == 1000) break;
    }
  }
  return all;
}

/// Streams whose first half is long and whose second half is short, so that messages of the second half may be faster.
inputs lopsided_inputs(spar::rank_t ranks) {
  inputs all = random_inputs(ranks, 4000, dimension / 2, 5);
  for (auto& mine : all) {
    mine.n = dimension;
    mine.indices.push_back(static_cast<index>(dimension - 1));
    mine.values.push_back(1);
  }
  return all;
}

/// Checks that recursive doubling in parts has the result of recursive doubling as a whole, and sends `parts` messages
/// in place of one, or one message if streams are not encoded.
template <class Storage>
void expect_parts(mode where, const inputs& mine, std::uint64_t parts) {
  using schedule = spar::recursive_doubling;
  constexpr bool encodes = !std::is_same_v<Storage, spar::storage::coo>;
  const auto whole = measure(where, mine, spar::compose(Storage(), schedule{}));
  const auto divided = measure(where, mine, spar::compose(Storage(), schedule{.parts = parts}));
  for (std::size_t r = 0; r < mine.size(); ++r) {
    std::vector<float> expected(mine[0].n, 0), sum(mine[0].n, 0);
    whole[r].sum.view().to_dense(std::span(expected), spar::sum{});
    divided[r].sum.view().to_dense(std::span(sum), spar::sum{});
    EXPECT_EQ(sum, expected) << where << ", P = " << mine.size() << ", " << parts << " parts, rank " << r;
    EXPECT_EQ(divided[r].cost.messages_sent, (encodes ? parts : 1) * whole[r].cost.messages_sent);
  }
}

TEST(counts, recursive_doubling_in_parts_has_the_same_sum_and_a_message_for_each_encoded_part) {
  for (const mode where : free_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      for (const auto& mine : {extreme_inputs(ranks, true), random_inputs(ranks, 50, 40'000, 1), crowded_inputs(ranks),
                               random_inputs(ranks, 0, 0, 1), random_inputs(ranks, 1, 1, 3)}) {
        for (const std::uint64_t parts : {2U, 3U, 8U}) expect_parts<spar::storage::coded<>>(where, mine, parts);
        expect_parts<spar::storage::coo>(where, mine, 2);
      }
      if (ranks <= 8) expect_parts<spar::storage::coded<>>(where, lopsided_inputs(ranks), 2);
    }
  }
}

TEST(counts, a_part_turns_dense_alone) {
  // The first of two parts has all entries, one for each of its indices. Encoded entries take more bytes than dense
  // values only if nearly all indices have one.
  inputs mine(2);
  for (std::size_t r = 0; r < 2; ++r) {
    mine[r].n = 1000;
    for (std::uint64_t e = 0; e < 250; ++e) {
      mine[r].indices.push_back(static_cast<index>(2 * e + r));
      mine[r].values.push_back(static_cast<float>(e + r));
    }
  }
  const auto is_dense = [&](std::uint64_t parts) {
    const auto schedule = spar::compose(spar::storage::coded<>{}, spar::recursive_doubling{.parts = parts});
    const auto results = measure(mode::sim, mine, schedule);
    EXPECT_EQ(results[0].sum.is_dense(), results[1].sum.is_dense());
    return results[0].sum.is_dense();
  };
  EXPECT_FALSE(is_dense(1));
  EXPECT_TRUE(is_dense(2));
  expect_parts<spar::storage::coded<>>(mode::sim, mine, 2);
}

// --- dense ---

template <class Algorithm, class Formula>
void expect_dense_formula(const Formula& formula) {
  for (const mode where : free_modes) {
    for (const spar::rank_t ranks : ranks_of(where)) {
      for (const std::uint64_t n : {0U, 1U, 5U, 100U, 3001U}) {
        const auto p = static_cast<std::size_t>(ranks);
        std::vector<std::vector<float>> x(p, std::vector<float>(n, 1.0F));
        std::vector<measured> results(p);
        run(where, ranks, counted_dense<Algorithm>{&x, &results});
        expect_consistent(results);
        if (testing::Test::HasFatalFailure()) return;
        const costs c{n, std::vector<std::set<std::uint64_t>>(p)};
        for (std::size_t r = 0; r < p; ++r) {
          const traffic expected = formula(c, r);
          ASSERT_EQ(results[r].cost.messages_sent, expected.messages) << where << ", P = " << ranks << ", n = " << n;
          ASSERT_EQ(results[r].cost.bytes_sent, expected.bytes) << where << ", P = " << ranks << ", n = " << n;
        }
      }
    }
  }
}

TEST(counts, dense_recursive_doubling) {
  expect_dense_formula<spar::recursive_doubling>(
      [](const costs& c, std::size_t r) { return c.dense_recursive_doubling(r); });
}
TEST(counts, dense_ring) {
  expect_dense_formula<spar::ring>([](const costs& c, std::size_t r) { return c.dense_ring(r); });
}
TEST(counts, dense_rabenseifner) {
  expect_dense_formula<spar::rabenseifner>([](const costs& c, std::size_t r) { return c.dense_rabenseifner(r); });
}

// --- pieces ---

enum class piece {
  reduce_scatter,
  reduce_scatter_to_owners,
  allgather,
  dense_reduce_scatter,
  dense_reduce_scatter_to_owners,
  dense_allgather,
  reduce,
  broadcast
};

/// The bounds of P blocks of [0, n) whose lengths are 0, 0, 5, 0, 0, 5, .. and, on the last rank, the rest.
std::vector<std::uint64_t> uneven_bounds(std::size_t ranks, std::uint64_t n) {
  std::vector<std::uint64_t> bounds(ranks + 1, n);
  for (std::size_t b = 0; b < ranks; ++b) bounds[b] = std::min<std::uint64_t>(b / 3 * 5, n);
  return bounds;
}

struct counted_piece {
  piece what;
  const inputs* mine;
  std::vector<std::vector<float>>* x;
  spar::rank_t root;
  std::vector<measured>* results;

  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    spar::counting<Net> net{inner};
    const auto rank = static_cast<std::size_t>(net.rank());
    const std::span<float> dense((*x)[rank]);
    const auto bounds = uneven_bounds(x->size(), what == piece::reduce_scatter_to_owners ? (*mine)[0].n : dense.size());
    const spar::bounded_ownership owners{bounds};
    switch (what) {
    case piece::reduce_scatter_to_owners: {
      auto pending = spar::start_reduce_scatter(net, (*mine)[rank].view(), owners);
      co_await std::move(pending);
      break;
    }
    case piece::dense_reduce_scatter_to_owners: {
      auto pending = spar::start_reduce_scatter(net, dense, owners);
      co_await std::move(pending);
      break;
    }
    case piece::reduce_scatter: {
      auto pending = spar::start_reduce_scatter(net, (*mine)[rank].view());
      co_await std::move(pending);
      break;
    }
    case piece::allgather: {
      auto pending = spar::start_allgather(net, (*mine)[rank].view());
      co_await std::move(pending);
      break;
    }
    case piece::dense_reduce_scatter: {
      auto pending = spar::start_reduce_scatter(net, dense);
      co_await std::move(pending);
      break;
    }
    case piece::dense_allgather: {
      auto pending = spar::start_allgather(net, dense);
      co_await std::move(pending);
      break;
    }
    case piece::reduce: {
      auto pending = spar::start_reduce(net, dense, root);
      co_await std::move(pending);
      break;
    }
    case piece::broadcast: {
      auto pending = spar::start_broadcast(net, dense, root);
      co_await std::move(pending);
      break;
    }
    }
    counted_allreduce<spar::ring>::record((*results)[rank], net, net.last_call());
  }
};

TEST(counts, pieces) {
  for (const mode where : free_modes) {
    for (const spar::rank_t ranks : ranks_of(where)) {
      const auto mine = random_inputs(ranks, 40, 5000, 4);
      constexpr std::uint64_t n = 333;
      costs c = costs_of(mine);
      costs d{n, std::vector<std::set<std::uint64_t>>(mine.size())};
      const spar::rank_t root = ranks / 2;
      for (const piece what :
           {piece::reduce_scatter, piece::reduce_scatter_to_owners, piece::allgather, piece::dense_reduce_scatter,
            piece::dense_reduce_scatter_to_owners, piece::dense_allgather, piece::reduce, piece::broadcast}) {
        SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", piece " << static_cast<int>(what));
        std::vector<std::vector<float>> x(mine.size(), std::vector<float>(n, 1.0F));
        std::vector<measured> results(mine.size());
        run(where, ranks, counted_piece{what, &mine, &x, root, &results});
        ASSERT_NO_FATAL_FAILURE(expect_consistent(results));
        for (std::uint64_t r = 0; r < mine.size(); ++r) {
          const std::uint64_t p = mine.size();
          traffic expected;
          if (what == piece::reduce_scatter) expected = c.split(r);
          if (what == piece::allgather) expected = c.allgather(r);
          if (what == piece::dense_reduce_scatter_to_owners) {
            const auto bounds = uneven_bounds(p, n);
            expected = {p - 1, 4 * (n - (bounds[r + 1] - bounds[r]))};
          }
          if (what == piece::reduce_scatter_to_owners) {
            const auto bounds = uneven_bounds(p, mine[0].n);
            expected = {p - 1, 0};
            for (const index i : mine[r].indices) expected.bytes += i >= bounds[r] && i < bounds[r + 1] ? 0 : 8;
          }
          if (what == piece::dense_reduce_scatter) expected = {p - 1, 4 * (n - d.block_size(r, p))};
          if (what == piece::dense_allgather)
            expected = d.bruck(r, [&](std::uint64_t b) { return 4 * d.block_size(b, p); });
          if (what == piece::reduce) expected = r == static_cast<std::uint64_t>(root) ? traffic{} : traffic{1, 4 * n};
          if (what == piece::broadcast) expected = d.broadcast(r, static_cast<std::uint64_t>(root), 4 * n);
          ASSERT_EQ(results[r].cost.messages_sent, expected.messages) << "rank " << r;
          ASSERT_EQ(results[r].cost.bytes_sent, expected.bytes) << "rank " << r;
        }
      }
    }
  }
}

} // namespace
} // namespace spar_test
