// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk: the right entries, nothing lost, and never more messages and bytes than documented.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/system/published.hpp>
#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

namespace {

using reducer = spar::ok_topk<float>;
using vectors = std::vector<std::vector<float>>;

/// The ranks with their state, and the outcome of each call.
struct job {
  job(spar::rank_t ranks, const spar::ok_topk_allreduce<>& options) : results(static_cast<std::size_t>(ranks)) {
    for (spar::rank_t r = 0; r < ranks; ++r) reducers.push_back(std::make_unique<reducer>(options));
    costs.resize(results.size());
  }

  struct call {
    job* its;
    const vectors* x;
    template <class Net>
    spar::task<void> operator()(Net& net) const& {
      const auto r = static_cast<std::size_t>(net.rank());
      auto pending = its->reducers[r]->start_reduce(net, std::span<const float>((*x)[r]));
      its->results[r] = co_await std::move(pending);
      its->costs[r] = pending.statistics();
    }
  };
  void run(mode where, const vectors& x) {
    spar_test::run(where, static_cast<spar::rank_t>(results.size()), call{this, &x});
  }
  [[nodiscard]] std::vector<float> residual(std::size_t r) const {
    const auto kept = reducers[r]->residual();
    return {kept.begin(), kept.end()};
  }

  std::vector<std::unique_ptr<reducer>> reducers;
  std::vector<spar::selected_sum<float, std::uint32_t>> results;
  std::vector<spar::statistics> costs;
};

/// Loads a state of the schedule without thresholds, which the next call has to find.
void load_state(reducer& reduce, const spar::balanced_owners::state& by) {
  reducer::state state{.by = by};
  spar::detail::state_writer words;
  state.shared_state(words);
  state.own_state(words);
  const auto names = spar::detail::names_of(reduce.algorithm());
  reduce.load(spar::detail::to_bytes<float>(words.words, reduce.residual(), names));
}

std::vector<float> dense_of(const spar::sparse_stream<float>& s) {
  std::vector<float> x(s.dimension());
  s.to_dense(std::span<float>(x), spar::sum{});
  return x;
}

vectors accumulated(const job& ranks, const vectors& x) {
  vectors acc = x;
  for (std::size_t r = 0; r < x.size(); ++r) {
    const auto kept = ranks.residual(r);
    for (std::size_t i = 0; i < kept.size(); ++i) acc[r][i] += kept[i];
  }
  return acc;
}

std::vector<float> total(const vectors& all) {
  std::vector<float> sum(all[0].size());
  for (const auto& x : all)
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  return sum;
}

/// The k largest magnitudes, found by sorting; of equal ones, those with the lowest index.
std::vector<float> topk(const std::vector<float>& x, std::uint64_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(x[a]) > std::abs(x[b]); });
  std::vector<float> kept(x.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(k, x.size()); ++i) kept[order[i]] = x[order[i]];
  return kept;
}

std::uint64_t nonzeros(const std::vector<float>& x) {
  return static_cast<std::uint64_t>(std::count_if(x.begin(), x.end(), [](float v) { return v != 0; }));
}

/// Whole numbers, so that sums are exact, with a heavy-tailed distribution.
vectors whole_numbers(spar::rank_t ranks, std::size_t n, std::uint64_t seed) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::mt19937_64 random(seed * 1000 + r);
    for (float& value : x[r]) {
      const auto size = static_cast<float>(1U << (random() % 12));
      value = std::floor(size * static_cast<float>(random() % 1000) / 500) - size;
    }
  }
  return x;
}

TEST(ok_topk, with_epsilon_0_is_the_topk_of_the_sum_of_topks) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      for (const std::uint64_t k : {0U, 1U, 9U, 40U, 90U}) {
        if (!runs_case(3, position_of(where), ranks, k)) continue;
        job all(ranks, {.select = {.k = k, .period = 3, .epsilon = 0}, .by = {.tau = 2}});
        for (std::uint64_t step = 0; step < 5; ++step) {
          const vectors x = whole_numbers(ranks, 90, step);
          vectors acc = accumulated(all, x);
          vectors tops;
          for (const auto& a : acc) tops.push_back(topk(a, k));
          const auto expected = topk(total(tops), k);
          all.run(where, x);
          for (std::size_t r = 0; r < x.size(); ++r) {
            ASSERT_EQ(dense_of(all.results[r].sum), expected) << where << ", P = " << ranks << ", k = " << k;
            ASSERT_EQ(all.results[r].sum.count(), nonzeros(expected));
            // Only entries that reached the result have left the residual.
            for (std::size_t i = 0; i < 90; ++i) {
              const bool left = expected[i] != 0 && tops[r][i] != 0;
              ASSERT_EQ(all.residual(r)[i], left ? 0 : acc[r][i]) << "rank " << r << ", index " << i;
            }
          }
        }
      }
    }
  }
}

using generator = std::function<float(spar::rank_t rank, std::size_t i, std::size_t n, std::uint64_t step)>;

struct input {
  const char* name;
  generator value;
};

/// Pseudo-random in [-1, 1), a function of the arguments (splitmix64).
float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = (a * 0x9e3779b97f4a7c15U + b) * 0xd1342543de82ef95U + c + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) / (1U << 23) - 1;
}

float spiky(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const float x = noise(a, b, c);
  return x * x * x * x * x;
}

std::vector<input> hard_inputs(spar::rank_t ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  const auto r = [](spar::rank_t rank) { return static_cast<std::uint64_t>(rank); };
  return {
      {"uniform", [=](auto rank, auto i, auto, auto step) { return spiky(r(rank), i, step); }},
      {"one region",
       [=](auto rank, auto i, auto n, auto step) { return (i < n / 20 ? 100.0F : 1e-3F) * spiky(r(rank), i, step); }},
      {"one owner",
       [=](auto rank, auto i, auto n, auto step) { // the ranks differ, except where the sums are large
         return i >= n - n / 30 ? 50 + noise(0, i, step) : spiky(r(rank), i, step);
       }},
      {"disjoint regions", [=](auto rank, auto i, auto n,
                               auto step) { return (i * p / n == r(rank) ? 1.0F : 1e-4F) * spiky(r(rank), i, step); }},
      {"jumping regions",
       [=](auto rank, auto i, auto n, auto step) {
         return ((i * p / n + step * 3) % p == 0 ? 1.0F : 1e-4F) * spiky(r(rank), i, step);
       }},
      {"constant", [](auto, auto, auto, auto) { return 1.0F; }},
      {"zero", [](auto, auto, auto, auto) { return 0.0F; }},
      {"grows 100-fold and collapses",
       [=](auto rank, auto i, auto, auto step) {
         const float scale = step % 4 == 2 ? 100.0F : step % 4 == 3 ? 1e-4F : 1.0F;
         return scale * spiky(r(rank), i, step);
       }},
      {"few nonzeros", [=](auto rank, auto i, auto,
                           auto step) { return (i * 31 + r(rank)) % 1013 == 0 ? spiky(r(rank), i, step) : 0.0F; }},
  };
}

std::uint64_t log2_ceil(std::uint64_t p) {
  std::uint64_t rounds = 0;
  for (std::uint64_t d = 1; d < p; d *= 2) ++rounds;
  return rounds;
}

struct case_of_bounds {
  spar::rank_t ranks;
  double epsilon;
};

class ok_topk_bounds : public testing::TestWithParam<case_of_bounds> {};
INSTANTIATE_TEST_SUITE_P(ranks, ok_topk_bounds,
                         testing::Values(case_of_bounds{1, 0.1}, case_of_bounds{2, 0.1}, case_of_bounds{3, 0.1},
                                         case_of_bounds{4, 0.1}, case_of_bounds{5, 0}, case_of_bounds{7, 0.1},
                                         case_of_bounds{8, 0.1}, case_of_bounds{8, 0}, case_of_bounds{13, 0.3}));
#if !defined(SPAR_SANITIZES_ADDRESSES) && !defined(SPAR_SANITIZES_THREADS) // these take minutes under sanitizers
INSTANTIATE_TEST_SUITE_P(many_ranks, ok_topk_bounds,
                         testing::ValuesIn(is_full() ? std::vector{case_of_bounds{64, 0.1}, case_of_bounds{256, 0.1}}
                                                     : std::vector{case_of_bounds{64, 0.1}}));
#endif

TEST_P(ok_topk_bounds, hold_on_every_call_in_the_simulator) {
  const auto [ranks, epsilon] = GetParam();
  const auto p = static_cast<std::uint64_t>(ranks);
  const std::size_t n = ranks < 64 ? 4000 : 16000;
  const std::uint64_t k = n / 50;
  const std::uint64_t log_p = log2_ceil(p);
  for (const input& in : hard_inputs(ranks)) {
    job all(ranks, {.select = {.k = k, .period = 3, .epsilon = epsilon}, .by = {.tau = 4}});
    std::vector<double> brought(n), summed(n), size(n);
    for (std::uint64_t step = 0; step < (ranks < 64 ? 9U : 4U); ++step) {
      vectors x(p, std::vector<float>(n));
      for (spar::rank_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < n; ++i) x[static_cast<std::size_t>(r)][i] = in.value(r, i, n, step);
      all.run(mode::sim, x);
      all.results[0].sum.for_each([&](std::uint32_t i, float value) { summed[i] += static_cast<double>(value); });
      for (std::size_t i = 0; i < n; ++i) {
        double left = 0;
        for (std::size_t r = 0; r < p; ++r) {
          brought[i] += static_cast<double>(x[r][i]);
          size[i] += std::abs(static_cast<double>(x[r][i]));
          left += static_cast<double>(all.reducers[r]->residual()[i]);
        }
        ASSERT_NEAR(summed[i] + left, brought[i], 1e-6 * size[i]) << in.name << ", index " << i << ", call " << step;
      }
      const auto slack = static_cast<std::uint64_t>(epsilon * static_cast<double>(k));
      const auto& sum = all.results[0].sum;
      ASSERT_LE(sum.count(), k + slack) << in.name << ", call " << step;
      // There may be fewer entries only if everything that was sent is in the sum.
      for (std::size_t r = 0; r < p && sum.count() < k - std::min(k, slack); ++r) {
        ASSERT_EQ(all.results[r].contributed.count(), all.reducers[r]->report().selected) << in.name;
      }
      const double most = static_cast<double>(k + slack);
      const double shared = static_cast<double>(p - 1) / static_cast<double>(p);
      const auto bound = static_cast<std::uint64_t>(2 * most + 4 * most * shared) + 10 * p;
      const auto room =
          static_cast<std::uint64_t>(8 * std::sqrt(static_cast<double>(p) * (most + static_cast<double>(p))));
      const auto& shape = all.reducers[0]->report().by;
      const std::uint64_t searching = shape.threshold_rounds * 64 * log_p + shape.boundary_rounds * 28 * p;
      ASSERT_LE(shape.threshold_rounds, 9U);
      ASSERT_LE(shape.boundary_rounds, 6U);
      for (std::size_t r = 0; r < p; ++r) {
        ASSERT_TRUE(std::ranges::equal(all.results[r].sum.values(), sum.values())) << in.name;
        ASSERT_TRUE(std::ranges::equal(all.results[r].sum.indices(), sum.indices())) << in.name;
        ASSERT_LE(all.reducers[r]->report().selected, k + slack) << in.name << ", call " << step;
        const std::uint64_t again = shape.repeated ? 2 * (k + slack) + 4 * p : 0;
        ASSERT_LE(all.costs[r].bytes_sent / 4, bound + searching + again) << in.name << ", call " << step;
        ASSERT_LE(all.costs[r].bytes_received / 4, bound + searching + room + again) << in.name << ", call " << step;
        const std::uint64_t counting = shape.counted_first || shape.repeated ? 2 : 0;
        const std::uint64_t rounds = 2 + counting + shape.threshold_rounds + 2 * shape.boundary_rounds;
        ASSERT_LE(all.costs[r].messages_sent, (shape.repeated ? 3 : 2) * p + rounds * log_p)
            << in.name << ", call " << step;
      }
    }
  }
}

TEST(ok_topk, bounds_hold_for_few_entries_among_many_ranks) {
  for (const spar::rank_t ranks : {2, 13, 33, 64, 200}) {
    if (ranks > (is_full() ? 200 : is_shortened ? 33 : 64)) break;
    const auto p = static_cast<std::uint64_t>(ranks);
    for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, p - 1, p, 3 * p}) {
      job all(ranks, {.select = {.k = k, .period = 2, .epsilon = 0.1}, .by = {.tau = 3}});
      for (std::uint64_t step = 0; step < 4; ++step) {
        vectors x(p, std::vector<float>(1000));
        for (std::size_t r = 0; r < p; ++r)
          for (std::size_t i = 0; i < x[r].size(); ++i)
            x[r][i] = (step == 3 && i > 900 ? 50.0F : 1.0F) * spiky(r, i, step);
        all.run(mode::sim, x);
        const std::uint64_t most = k + k / 10;
        const auto& shape = all.reducers[0]->report().by;
        const std::uint64_t rounds = shape.threshold_rounds;
        const std::uint64_t searching =
            (rounds == 0 ? 0 : (rounds - 1) * 62 * log2_ceil(p) + 3 * p) + shape.boundary_rounds * 28 * p;
        const std::uint64_t again = shape.repeated ? 2 * most + 4 * p : 0;
        const std::uint64_t bound = 2 * most + 4 * most * (p - 1) / p + 1 + 10 * p + searching + again;
        const auto room = static_cast<std::uint64_t>(8 * std::sqrt(static_cast<double>(p * (most + p))));
        for (std::size_t r = 0; r < p; ++r) {
          ASSERT_LE(all.costs[r].bytes_sent / 4, bound) << "P = " << p << ", k = " << k << ", call " << step;
          ASSERT_LE(all.costs[r].bytes_received / 4, bound + room) << "P = " << p << ", k = " << k << ", call " << step;
        }
      }
    }
  }
}

TEST(ok_topk, the_largest_numbers_of_unsigned_types_have_ties_too) {
  for (const spar::rank_t ranks : {1, 2, 4}) {
    spar::thread_group group{ranks};
    group.run([&](spar::threads& net) {
      spar::ok_topk<std::uint32_t> reduce{{.select = {.k = 3, .epsilon = 0}}};
      std::vector<std::uint32_t> x(40, 0);
      const auto own = static_cast<std::size_t>(net.rank());
      for (std::size_t i = 0; i < 3; ++i) x[own + 4 * i] = std::numeric_limits<std::uint32_t>::max();
      reduce(net, std::span(x));
      EXPECT_EQ(std::count(x.begin(), x.end(), std::numeric_limits<std::uint32_t>::max()), 3);
      EXPECT_EQ(std::count(x.begin(), x.end(), 0U), 37);
    });
  }
}

/// The last step alone: rank 0 has all entries, or every rank has equally many.
struct shares_to_gather : spar::algorithm_defaults {
  static constexpr std::string_view name = "shares_to_gather";
  bool even;
  bool* balanced;

  shares_to_gather(bool are_even, bool* where) : even(are_even), balanced(where) {}

  template <class Net, class Op>
  spar::task<spar::sparse_stream<float>> operator()(spar::channel<Net> net, spar::stream_view<float> mine, Op) const& {
    std::vector<std::uint64_t> bounds{0};
    for (spar::rank_t r = 0; r < net.size(); ++r) {
      bounds.push_back(even ? bounds.back() + mine.count() : (r == 0 ? 400 : bounds.back()));
    }
    auto own = spar::sparse_stream<float>::copy(net.memory(), mine);
    const std::span<const std::uint64_t> shares(bounds);
    const spar::flat over;
    const spar::storage::coo store;
    const spar::residual_view<float> none;
    auto all = co_await spar::gather_shares(net, over, std::move(own), shares, shares, *balanced, store, none);
    co_return all;
  }
};

struct gathering {
  bool even;
  std::array<bool, 8>* balanced;
  std::array<std::uint64_t, 8>* bytes;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::uint32_t>(net.rank());
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < (even ? 50 : rank == 0 ? 400 : 0); ++i) indices.push_back(50 * rank + i);
    const std::vector<float> values(indices.begin(), indices.end());
    const auto mine = spar::sparse_view(1000, indices, values);
    const shares_to_gather gather(even, &(*balanced)[rank]);
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(1000, gather);
    auto pending = spar::start_collective(net, agreed, gather, mine, spar::sum{});
    const auto all = co_await std::move(pending);
    EXPECT_EQ(all.count(), 400U);
    all.for_each([&, next = 0U](std::uint32_t i, float value) mutable {
      EXPECT_EQ(i, next++);
      EXPECT_EQ(value, static_cast<float>(i));
    });
    (*bytes)[rank] = pending.statistics().bytes_sent;
  }
};

TEST(ok_topk, uneven_shares_are_evened_out_and_even_ones_are_not) {
  for (const mode where : all_modes) {
    std::array<bool, 8> balanced{};
    std::array<std::uint64_t, 8> bytes{};
    run(where, 8, gathering{false, &balanced, &bytes});
    for (const bool its : balanced) EXPECT_TRUE(its);
    // Rank 0 moves 7 of 8 parts away, and sends as much again in three rounds; without balancing, it would send
    // everything in each round.
    EXPECT_EQ(bytes[0], 350U * 8 + 350U * 8 + 7U * 8);
    EXPECT_EQ(bytes[5], 350U * 8 + 7U * 8);
    run(where, 8, gathering{true, &balanced, &bytes});
    for (const bool its : balanced) EXPECT_FALSE(its);
    for (const std::uint64_t its : bytes) EXPECT_EQ(its, 350U * 8 + 7U * 8);
  }
}

TEST(ok_topk, boundaries_that_leave_indices_to_nobody_are_replaced) {
  for (const auto& bounds : std::vector<std::vector<std::uint64_t>>{{5, 7, 10, 20}, {20, 20, 20, 20}, {0, 15, 7, 20}}) {
    job all(3, {.select = {.k = 20, .epsilon = 0}});
    for (auto& reduce : all.reducers) load_state(*reduce, {.calls = 1, .boundaries = bounds});
    const vectors x(3, std::vector<float>(20, 1.0F));
    all.run(mode::sim, x);
    EXPECT_EQ(dense_of(all.results[0].sum), std::vector<float>(20, 3.0F));
  }
}

TEST(ok_topk, sends_no_more_messages_than_its_steps_need) {
  for (const spar::rank_t ranks : all_ranks) {
    const auto p = static_cast<std::uint64_t>(ranks);
    job all(ranks, {.select = {.k = 50, .period = 2}, .by = {.tau = 3}});
    for (std::uint64_t step = 0; step < 6; ++step) {
      // The large values are spread evenly over the owners, so that no balancing is needed.
      vectors x(p, std::vector<float>(p * 100));
      for (std::size_t r = 0; r < p; ++r)
        for (std::size_t i = 0; i < x[r].size(); ++i) x[r][i] = noise(r, i, step) * (i % 20 == 0 ? 100.0F : 1.0F);
      all.run(mode::sim, x);
      for (std::size_t r = 0; r < p; ++r) {
        const auto& did = all.reducers[r]->report().by;
        const spar::folded_ranks folded(static_cast<spar::rank_t>(r), ranks);
        std::uint64_t doubling = log2_ceil(static_cast<std::uint64_t>(folded.active_ranks()));
        if (folded.has_partner()) doubling = folded.active() ? doubling + 1 : 1;
        // If the threshold has changed, the last of its rounds is an allgather of counts.
        const std::uint64_t rounds = did.threshold_rounds;
        ASSERT_FALSE(did.repeated);
        ASSERT_EQ(did.counted_first, step % 3 == 0);
        const std::uint64_t counting = did.counted_first ? 2 : 0;
        const std::uint64_t least = (p - 1) + (2 + counting + 2 * did.boundary_rounds) * log2_ceil(p);
        const std::uint64_t looking = rounds == 0 ? 0 : (rounds - 1) * doubling + log2_ceil(p);
        if (!did.evened_out) {
          ASSERT_EQ(all.costs[r].messages_sent, least + looking) << "P = " << p << ", rank " << r << ", " << step;
        } else {
          ASSERT_LE(all.costs[r].messages_sent, least + looking + p - 1) << "P = " << p << ", rank " << r;
          ASSERT_GE(all.costs[r].messages_sent, least + looking);
        }
      }
    }
  }
}

using sizes = std::vector<std::uint64_t>;

/// The quotas of a call, computed from all ranks' numbers of entries: entries[r][b] of rank r are in block b.
struct expected_quotas {
  bool count_first = true;
  bool exceeded = false;
  std::vector<sizes> before{}; // the entries of the last call; empty if there was none

  void begin(const std::vector<sizes>& entries, std::uint64_t limit) {
    const std::size_t p = entries.size();
    count_first = before.empty() || exceeded;
    exceeded = false;
    for (std::size_t b = 0; !before.empty() && b < p; ++b) {
      std::uint64_t received = 0;
      for (std::size_t r = 0; r < p; ++r) received += before[r][b];
      ASSERT_LE(received, limit);
      for (std::size_t r = 0; r < p; ++r) exceeded |= entries[r][b] > before[r][b] + (limit - received) / p;
    }
  }
};

/// The steps of a call to the counts of what the owners have received.
struct split_within_quotas : spar::algorithm_defaults {
  static constexpr std::string_view name = "split_within_quotas";
  spar::owners_state* state;
  spar::owners_report* did;
  std::uint64_t most;

  split_within_quotas(spar::owners_state* now, spar::owners_report* report, std::uint64_t largest)
      : state(now), did(report), most(largest) {}

  template <class Net, class Op>
  spar::task<spar::sparse_stream<float>> operator()(spar::channel<Net> net, spar::stream_view<float> mine,
                                                    Op op) const& {
    const spar::uniform_ownership target{mine.dimension(), net.size()};
    const spar::selected_call<spar::flat, spar::storage::coo, float, spar::owners_state, spar::owners_report> call{
        .over = {},
        .store = {},
        .bounds = {0, 0, most - static_cast<std::uint64_t>(net.size())},
        .period = 1'000'000,
        .state = *state,
        .report = *did,
        .residual = {}};
    spar::owners_call owners(net, mine, target, call, 1'000'000, true);
    const auto reduce = [&](spar::block_quotas& quotas) {
      return spar::reduce_to_owners(net, call.over, mine, owners.boundaries(), op, call.store, call.residual, quotas);
    };
    spar::sparse_stream<float> sums = co_await owners.exchange(reduce);
    co_await owners.count(sums);
    co_return sums;
  }
};

struct blocks_job {
  explicit blocks_job(std::size_t p) : states(p), did(p), sums(p), costs(p) {
    for (auto& state : states) state.calls = 1, state.boundaries.resize(p + 1);
  }

  std::vector<spar::owners_state> states;
  std::vector<spar::owners_report> did;
  std::vector<std::vector<float>> sums;
  std::vector<spar::statistics> costs;
};

struct split_call {
  blocks_job* its;
  const std::vector<std::vector<std::uint32_t>>* indices;
  std::uint32_t n;
  std::uint64_t most;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    const std::vector<float> values((*indices)[r].size(), static_cast<float>(r + 1));
    const auto mine = spar::sparse_view(n, (*indices)[r], values);
    const split_within_quotas split(&its->states[r], &its->did[r], most);
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(n, split);
    auto pending = spar::start_collective(net, agreed, split, mine, spar::sum{});
    const auto block = co_await std::move(pending);
    its->sums[r].assign(n, 0);
    block.to_dense(std::span(its->sums[r]), spar::sum{});
    its->costs[r] = pending.statistics();
  }
};

std::uint64_t count_between(const std::vector<std::uint32_t>& indices, std::uint64_t begin, std::uint64_t end) {
  return static_cast<std::uint64_t>(
      std::count_if(indices.begin(), indices.end(), [&](std::uint32_t i) { return i >= begin && i < end; }));
}

/// Entries that jump into one block, come back, leave ranks without entries, or stay.
TEST(ok_topk, quotas_bound_what_an_owner_gets_wherever_the_entries_jump) {
  constexpr std::uint32_t n = 2400;
  constexpr std::uint64_t k = 60;
  int repeats = 0, ordinary = 0, counted = 0;
  for (const spar::rank_t ranks : all_ranks) {
    const auto p = static_cast<std::size_t>(ranks);
    const std::uint64_t most = k + p;
    const std::uint64_t limit = most + 4 * static_cast<std::uint64_t>(std::sqrt(static_cast<double>(most * p)));
    for (std::uint64_t seed = 0; seed < (is_full() ? 20U : 3U); ++seed) {
      blocks_job all(p);
      expected_quotas model;
      std::mt19937_64 random(seed * 100 + p);
      for (int call = 0; call < 12; ++call) {
        // 0: spread; 1: one short region; 2: every other rank has nothing; 3: each rank in a region of its own
        const auto shape = call < 2 ? 0 : random() % 5;
        const std::uint64_t region = random() % 20;
        std::vector<std::vector<std::uint32_t>> indices(p);
        std::vector<float> total(n);
        for (std::size_t r = 0; r < p; ++r) {
          const std::uint64_t width = shape == 1 ? n / 20 : shape == 3 ? n / p : n;
          const std::uint64_t first = shape == 1 ? region * width : shape == 3 ? (r + region) % p * width : 0;
          std::vector<bool> taken(n);
          for (std::uint64_t e = 0; e < (shape == 2 && r % 2 == 0 ? 0 : k); ++e) taken[first + random() % width] = true;
          for (std::uint32_t i = 0; i < n; ++i) {
            if (!taken[i]) continue;
            indices[r].push_back(i);
            total[i] += static_cast<float>(r + 1);
          }
        }
        const auto in_blocks = [&] {
          std::vector<sizes> entries(p, sizes(p));
          for (std::size_t r = 0; r < p; ++r)
            for (std::size_t b = 0; b < p; ++b)
              entries[r][b] = count_between(indices[r], all.states[0].boundaries[b], all.states[0].boundaries[b + 1]);
          return entries;
        };
        const auto of_old_bounds = in_blocks();
        run(mode::sim, ranks, split_call{&all, &indices, n, most});
        const bool first_call = call == 0;
        model.begin(first_call || model.exceeded ? in_blocks() : of_old_bounds, limit);
        const bool expects_repeat = !model.count_first && model.exceeded;
        const auto entries = in_blocks();
        for (std::size_t r = 0; r < p; ++r) {
          const auto& did = all.did[r];
          const sizes& bounds = all.states[r].boundaries;
          ASSERT_EQ(bounds, all.states[0].boundaries);
          ASSERT_EQ(did.counted_first, model.count_first) << "P = " << p << ", call " << call;
          ASSERT_EQ(did.repeated, expects_repeat) << "P = " << p << ", call " << call;
          for (std::uint32_t i = 0; i < n; ++i) {
            const bool own = i >= bounds[r] && i < bounds[r + 1];
            ASSERT_EQ(all.sums[r][i], own ? total[i] : 0) << "index " << i;
          }
          std::uint64_t received = 0;
          for (std::size_t s = 0; s < p; ++s) received += entries[s][r];
          ASSERT_EQ(all.states[0].counts.received[r], received);
          const bool counts = did.counted_first || did.repeated;
          ASSERT_LE(received, counts ? most : limit) << "P = " << p << ", call " << call;
          // Besides entries, three counters of each owner arrive, the totals of the blocks, and at most so many
          // counters of the search for boundaries.
          const std::uint64_t arrived = all.costs[r].bytes_received - (counts ? 28 : 12) * (p - 1);
          const std::uint64_t searching = did.boundary_rounds * 112 * (p - 1);
          ASSERT_LE(arrived, 8 * (did.repeated ? 2 * limit : limit) + searching);
          if (!did.repeated && searching == 0) {
            ASSERT_EQ(arrived, 8 * (received - entries[r][r]));
          }
          const std::uint64_t log_p = log2_ceil(p);
          ASSERT_EQ(all.costs[r].messages_sent,
                    (did.repeated ? 2 : 1) * (p - 1) + (counts ? 3 : 1) * log_p + did.boundary_rounds * 2 * log_p);
        }
        ASSERT_EQ(all.states[0].counts.quotas_hold, model.exceeded ? 0U : 1U);
        model.before = entries;
        (expects_repeat ? repeats : model.count_first ? counted : ordinary)++;
      }
    }
  }
  EXPECT_GT(repeats, 20);
  EXPECT_GT(counted, 40);
  EXPECT_GT(ordinary, 60);
}

/// Values at every 20th index, 5 in each of the uniform blocks, so that all sizes follow from P.
vectors five_in_each_block(spar::rank_t ranks) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(static_cast<std::size_t>(ranks) * 100));
  for (auto& own : x)
    for (std::size_t i = 10; i < own.size(); i += 20) own[i] = static_cast<float>(i);
  return x;
}

TEST(ok_topk, a_call_within_quotas_sends_these_messages_and_bytes) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      const auto p = static_cast<std::uint64_t>(ranks);
      job all(ranks, {.select = {.k = 5 * p, .epsilon = 0}, .by = {.tau = 4}});
      const vectors x = five_in_each_block(ranks);
      for (std::uint64_t step = 0; step < 6; ++step) {
        all.run(where, x);
        if (step == 0) continue; // searches for the threshold
        const bool counted_first = step % 4 == 0;
        for (std::size_t r = 0; r < p; ++r) {
          const auto& did = all.reducers[r]->report().by;
          ASSERT_EQ(did.counted_first, counted_first) << "P = " << p << ", call " << step;
          ASSERT_FALSE(did.repeated || did.evened_out);
          ASSERT_EQ(all.costs[r].messages_sent, p - 1 + (counted_first ? 4 : 2) * log2_ceil(p)) << "P = " << p;
          // 5 entries to each owner, three counters of each rank, and the 5 entries and the size of each share
          ASSERT_EQ(all.costs[r].bytes_sent, (p - 1) * (40 + 12 + 48 + (counted_first ? 16 : 0))) << "P = " << p;
          ASSERT_EQ(all.costs[r].bytes_received, all.costs[r].bytes_sent);
        }
      }
    }
  }
}

/// The most entries that an owner gets within quotas, if each rank selects k entries.
std::uint64_t limit_of(std::uint64_t k, std::uint64_t p) {
  return k + p + 4 * static_cast<std::uint64_t>(std::sqrt(static_cast<double>((k + p) * p)));
}

/// A state with uniform boundaries and quotas, with which the next call neither searches nor counts first.
spar::balanced_owners::state with_quotas(std::uint64_t p, sizes quotas) {
  spar::balanced_owners::state now{.calls = 1};
  for (std::uint64_t b = 0; b <= p; ++b) now.boundaries.push_back(100 * b);
  now.counts = {.received = sizes(p, limit_of(5 * p, p)), .sent = std::move(quotas)};
  return now;
}

TEST(ok_topk, quotas_may_be_reached_and_one_rank_over_a_quota_makes_all_repeat) {
  for (const spar::rank_t ranks : {2, 3, 4, 7, 8}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const vectors x = five_in_each_block(ranks);
    const auto expected = total(x);
    for (const bool over : {false, true}) {
      job all(ranks, {.select = {.k = 5 * p, .epsilon = 0}});
      for (std::size_t r = 0; r < p; ++r) {
        sizes quotas(p, 5);
        if (over && r == 1) quotas[0] = 4;
        load_state(*all.reducers[r], with_quotas(p, quotas));
      }
      for (int call = 0; call < 3; ++call) {
        all.run(mode::sim, x);
        for (std::size_t r = 0; r < p; ++r) {
          const auto& did = all.reducers[r]->report().by;
          ASSERT_EQ(dense_of(all.results[r].sum), expected);
          ASSERT_EQ(did.repeated, over && call == 0);
          ASSERT_EQ(did.counted_first, over && call == 1) << "P = " << p << ", call " << call;
          ASSERT_EQ(did.boundary_rounds, 0U);
          if (call > 0) continue;
          const std::uint64_t counting = over ? 16 : 0;
          const std::uint64_t again = over && r != 1 ? 40 : 0; // rank 1 has sent flags, which are headers alone
          ASSERT_EQ(all.costs[r].bytes_sent, (p - 1) * (40 + 12 + 48 + counting + again)) << "rank " << r;
          ASSERT_EQ(all.costs[r].messages_sent, (over ? 2 : 1) * (p - 1) + (over ? 4 : 2) * log2_ceil(p));
        }
      }
    }
  }
}

/// Quotas are state of a rank of its own: any numbers, or none, lead to the same sums.
TEST(ok_topk, any_saved_quotas_give_the_same_sums) {
  constexpr spar::rank_t ranks = 4;
  const vectors x = five_in_each_block(ranks);
  for (const sizes& quotas : {sizes{}, sizes{1, 2}, sizes(4, 0), sizes(4, std::numeric_limits<std::uint64_t>::max())}) {
    job all(ranks, {.select = {.k = 20, .epsilon = 0}});
    for (std::size_t r = 0; r < 4; ++r) load_state(*all.reducers[r], with_quotas(4, r == 2 ? quotas : sizes(4, 5)));
    all.run(mode::sim, x);
    for (std::size_t r = 0; r < 4; ++r) ASSERT_EQ(dense_of(all.results[r].sum), total(x));
  }
  spar::balanced_owners::state too_many = with_quotas(4, sizes(4, 5));
  too_many.counts.received[1] = limit_of(20, 4) + 1;
  job all(ranks, {.select = {.k = 20, .epsilon = 0}});
  for (auto& reduce : all.reducers) load_state(*reduce, too_many);
  all.run(mode::sim, x);
  EXPECT_TRUE(all.reducers[0]->report().by.counted_first);
}

/// With tau = 1, every call counts first and computes new boundaries. Sums are added up in the order of ranks, so
/// quotas and boundaries change no bit.
TEST(ok_topk, quotas_and_boundaries_change_no_bit_of_sums_residuals_and_thresholds) {
  constexpr std::size_t n = 1500;
  std::uint64_t repeats = 0, within = 0;
  for (const spar::rank_t ranks : {2, 5, 8}) {
    const std::vector<input> inputs = hard_inputs(ranks);
    for (std::size_t at = 0; at < inputs.size(); ++at) {
      if (!runs_case(2, at, static_cast<std::uint64_t>(ranks))) continue;
      job quoted(ranks, {.select = {.k = 40, .period = 5}, .by = {.tau = 9}});
      job counted(ranks, {.select = {.k = 40, .period = 5}, .by = {.tau = 1}});
      for (std::uint64_t step = 0; step < 12; ++step) {
        vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
        for (spar::rank_t r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < n; ++i) x[static_cast<std::size_t>(r)][i] = inputs[at].value(r, i, n, step);
        quoted.run(mode::sim, x);
        counted.run(mode::sim, x);
        for (std::size_t r = 0; r < x.size(); ++r) {
          ASSERT_EQ(dense_of(quoted.results[r].sum), dense_of(counted.results[r].sum)) << inputs[at].name;
          ASSERT_EQ(quoted.residual(r), counted.residual(r)) << inputs[at].name << ", call " << step;
          ASSERT_EQ(quoted.reducers[r]->current_state().by.global_threshold,
                    counted.reducers[r]->current_state().by.global_threshold);
          ASSERT_TRUE(counted.reducers[r]->report().by.counted_first);
        }
        const auto& did = quoted.reducers[0]->report().by;
        repeats += did.repeated ? 1 : 0;
        within += did.counted_first || did.repeated ? 0 : 1;
      }
    }
  }
  EXPECT_GT(repeats, 2U);
  EXPECT_GT(within, 50U);
}

/// 1000 entries of 20,000 on 8 ranks, over links with 20 us and 1 Gbit/s.
TEST(ok_topk, a_call_within_quotas_takes_at_most_290_us_of_virtual_time) {
  job all(8, {.select = {.k = 1000}});
  spar::simulator_options links;
  links.latency = 20e-6;
  links.bandwidth = 125e6;
  for (std::uint64_t step = 0; step < 6; ++step) {
    vectors x(8, std::vector<float>(20'000));
    for (std::size_t r = 0; r < 8; ++r)
      for (std::size_t i = 0; i < x[r].size(); ++i) x[r][i] = spiky(9, i, 0) + 1e-3F * noise(r, i, step);
    if (step == 4) { // an input that fits no quotas
      for (auto& own : x) std::fill(own.begin(), own.begin() + 1000, 100.0F);
    }
    const double seconds = run_sim<spar::any_transport>(8, job::call{&all, &x}, links);
    const auto& did = all.reducers[0]->report().by;
    EXPECT_EQ(did.counted_first, step == 0 || step == 5);
    EXPECT_EQ(did.repeated, step == 4);
    if (step > 0 && step < 4) {
      EXPECT_EQ(did.threshold_rounds, 0U);
      EXPECT_LE(seconds, 290e-6) << "call " << step;
    } else {
      EXPECT_GT(seconds, 370e-6) << "call " << step;
    }
  }
}

TEST(ok_topk, keeps_nan_and_infinity) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const double epsilon : {0.0, 0.1}) {
    job all(3, {.select = {.k = 2, .epsilon = epsilon}});
    for (int step = 0; step < 3; ++step) {
      vectors x(3, std::vector<float>(40, 1.0F));
      x[0][7] = nan;
      x[2][30] = -infinity;
      all.run(mode::threads, x);
      const auto sum = dense_of(all.results[1].sum);
      EXPECT_TRUE(std::isnan(sum[7]));
      EXPECT_EQ(sum[30], -infinity);
      EXPECT_EQ(all.results[1].sum.count(), 2U);
    }
  }
}

template <class T>
void reduce_three_of_five() {
  for (const spar::rank_t ranks : {1, 3, 4}) {
    spar::thread_group group{ranks};
    group.run([&](spar::threads& net) {
      spar::ok_topk<T, std::uint64_t> reduce{{.select = {.k = 3, .epsilon = 0}}};
      std::vector<T> x(50);
      for (std::size_t i = 0; i < 5; ++i) x[i * 10] = static_cast<T>(static_cast<int>(i) * 10 - 25);
      reduce(net, std::span<T>(x));
      std::vector<T> expected(50);
      expected[0] = static_cast<T>(-25 * net.size());
      expected[10] = static_cast<T>(-15 * net.size());
      expected[40] = static_cast<T>(15 * net.size());
      EXPECT_TRUE(x == expected);
    });
  }
}

TEST(ok_topk, of_every_type_and_64_bit_indices) {
  reduce_three_of_five<std::int32_t>();
#if SPAR_ALL_CASES
  reduce_three_of_five<double>();
  reduce_three_of_five<std::int64_t>();
#endif
#ifdef SPAR_HAS_HALF
  reduce_three_of_five<spar::half>();
#endif
}

/// Large enough for three threads, which add the residual as well.
TEST(ok_topk, by_several_threads_is_the_same) {
  job alone(2, {.select = {.density = 0.01, .period = 3}});
  job shared(2, {.select = {.density = 0.01, .period = 3, .threads = 3}});
  for (std::uint64_t call = 0; call < 5; ++call) {
    const vectors x = whole_numbers(2, 100'003, call);
    alone.run(mode::threads, x);
    shared.run(mode::threads, x);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(dense_of(alone.results[r].sum) == dense_of(shared.results[r].sum));
      EXPECT_TRUE(alone.residual(r) == shared.residual(r));
      EXPECT_EQ(alone.reducers[r]->current_state().select, shared.reducers[r]->current_state().select);
    }
  }
}

TEST(ok_topk, averages) {
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    spar::ok_topk<float> reduce{{.select = {.density = 0.5, .epsilon = 0}}};
    std::vector<float> x{1, 8, 0, -16};
    reduce(net, std::span<float>(x), spar::average{});
    EXPECT_EQ(x, (std::vector<float>{0, 8, 0, -16}));
    EXPECT_EQ(reduce.residual()[0], 1);
  });
}

TEST(ok_topk, of_nothing) {
  for (const spar::rank_t ranks : {1, 4, 5}) {
    spar::thread_group group{ranks};
    group.run([](spar::threads& net) {
      spar::ok_topk<float> reduce{{.select = {.density = 0.1}}};
      std::vector<float> empty;
      reduce(net, std::span<float>(empty));
      spar::ok_topk<float> all{{.select = {.k = 2}}}; // fewer values than ranks
      for (int step = 0; step < 3; ++step) {
        std::vector<float> x{1, 2};
        all(net, std::span<float>(x));
        EXPECT_EQ(x,
                  (std::vector<float>{1.0F * static_cast<float>(net.size()), 2.0F * static_cast<float>(net.size())}));
      }
    });
  }
}

TEST(ok_topk, goes_on_from_a_saved_state_as_if_nothing_had_happened) {
  const spar::ok_topk_allreduce<> options{.select = {.k = 20, .period = 3}, .by = {.tau = 4}};
  job whole(4, options);
  job first(4, options);
  job second(4, options);
  for (std::uint64_t step = 0; step < 9; ++step) {
    vectors x = whole_numbers(4, 300, step);
    for (std::size_t r = 0; r < 4; ++r) { // each rank has a region of its own, and so a large quota for one block
      for (std::size_t i = 75 * r; i < 75 * (r + 1); ++i) x[r][i] *= 64;
    }
    whole.run(mode::sim, x);
    if (step == 5) {
      for (std::size_t r = 0; r < 4; ++r) second.reducers[r]->load(first.reducers[r]->save());
    }
    job& now = step < 5 ? first : second;
    now.run(mode::sim, x);
    ASSERT_EQ(now.reducers[0]->report().by.counted_first, whole.reducers[0]->report().by.counted_first);
    ASSERT_EQ(now.reducers[0]->report().by.counted_first, step % 4 == 0);
    for (std::size_t r = 0; r < 4; ++r) {
      ASSERT_EQ(now.costs[r].bytes_sent, whole.costs[r].bytes_sent);
      ASSERT_EQ(dense_of(now.results[r].sum), dense_of(whole.results[r].sum)) << "step " << step;
      ASSERT_EQ(now.residual(r), whole.residual(r));
    }
  }
}

TEST(ok_topk, a_job_of_another_size_takes_over) {
  job before(4, {.select = {.k = 10}});
  for (std::uint64_t step = 0; step < 3; ++step) before.run(mode::sim, whole_numbers(4, 200, step));
  vectors kept;
  for (std::size_t r = 0; r < 4; ++r) kept.push_back(before.residual(r));

  job after(3, {.select = {.k = 10}});
  for (std::size_t r = 0; r < 4; ++r) after.reducers[r % 3]->take_over(before.reducers[r]->save());
  const vectors x = whole_numbers(3, 200, 7);
  after.run(mode::sim, x);
  vectors brought = kept;
  brought.insert(brought.end(), x.begin(), x.end());
  vectors now{dense_of(after.results[0].sum)};
  for (std::size_t r = 0; r < 3; ++r) now.push_back(after.residual(r));
  EXPECT_EQ(total(now), total(brought));

  // Boundaries for another number of ranks are replaced.
  job larger(5, {.select = {.k = 10}});
  for (std::size_t r = 0; r < 5; ++r) larger.reducers[r]->load(before.reducers[r % 4]->save());
  larger.run(mode::sim, whole_numbers(5, 200, 8));
  EXPECT_EQ(larger.reducers[0]->current_state().by.boundaries.size(), 6U);
}

template <class F>
std::string sentence_of(F f) {
  try {
    f();
  } catch (const spar::error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ok_topk, refuses_bad_options_before_anything_is_sent) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    std::vector<float> x{1, 2, 3};
    const auto refusal = [&](const spar::ok_topk_allreduce<>& options) {
      spar::ok_topk<float> reduce{options};
      return sentence_of([&] { reduce(net, std::span<float>(x)); });
    };
    EXPECT_NE(refusal({.select = {.k = 4}}).find("k is 4"), std::string::npos);
    EXPECT_NE(refusal({.select = {.density = 1.5}}).find("1.5"), std::string::npos);
    EXPECT_NE(refusal({.select = {.density = -0.1}}).find("-0.1"), std::string::npos);
    EXPECT_NE(refusal({.select = {.k = 1}, .by = {.tau = 0}}).find("0 calls; expected at least 1"), std::string::npos);
    EXPECT_NE(refusal({.select = {.k = 1, .period = 0}}).find("0 calls; expected at least 1"), std::string::npos);
    EXPECT_NE(refusal({.select = {.k = 1, .threads = 0}}).find("threads is 0"), std::string::npos);
    EXPECT_NE(refusal({.select = {.k = 1, .epsilon = 1}}).find("epsilon is 1;"), std::string::npos);
    EXPECT_EQ(net.statistics().messages_sent, 0U);
  });
}

TEST(ok_topk, ranks_with_different_options_get_an_error) {
  for (const int other : {0, 1, 2, 3}) {
    spar::thread_group group{3};
    EXPECT_THROW(group.run([&](spar::threads& net) {
      spar::ok_topk<float> reduce{{.select = {.k = net.rank() == 1 && other == 0 ? 3U : 2U}}};
      if (net.rank() == 1 && other == 1) load_state(reduce, {.calls = 1}); // on some ranks only
      if (net.rank() == 1 && other == 2) load_state(reduce, {.counts = {.received = {1, 1, 2}}});
      if (net.rank() == 1 && other == 3) load_state(reduce, {.counts = {.quotas_hold = 0}});
      std::vector<float> x{1, 2, 3, 4, 5};
      reduce(net, std::span<float>(x));
    }),
                 spar::mismatch);
  }
}

/// A call that fails at any of its messages leaves the state unchanged.
struct failing {
  reducer* reduce;
  std::vector<float> x;
  std::vector<std::byte>* before;
  bool* failed;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_checksums(true);
    for (int call = 0; call < 3; ++call) {
      *before = reduce->save();
      try {
        auto pending = reduce->start_reduce(net, std::span<const float>(x));
        (void)co_await std::move(pending);
      } catch (const spar::error&) {
        *failed = true;
        co_return;
      }
    }
  }
};

/// Fails one call after the other: calls that search, and, with `tight` quotas, calls that repeat the split phase.
void fail_in_the_middle(bool tight) {
  int calls_failed = 0;
  for (std::uint64_t message = 0; message < 60; ++message) {
    constexpr spar::rank_t ranks = 4;
    const vectors x = whole_numbers(ranks, tight ? 400 : 200, message);
    spar::simulator engine(ranks);
    std::vector<std::unique_ptr<reducer>> reducers;
    std::vector<failing> programs;
    std::vector<std::vector<std::byte>> before(ranks);
    std::array<bool, ranks> failed{};
    std::deque<spar::faulty<spar::sim>> nets;
    const spar::ok_topk_allreduce<> options{.select = {.k = 20, .period = 1}, .by = {.tau = tight ? 64U : 1U}};
    for (spar::rank_t r = 0; r < ranks; ++r) {
      const auto at = static_cast<std::size_t>(r);
      reducers.push_back(std::make_unique<reducer>(options));
      if (tight) load_state(*reducers.back(), with_quotas(4, sizes(4, r == 1 ? 0 : 20)));
      programs.push_back({reducers.back().get(), x[at], &before[at], &failed[at]});
      std::vector<spar::fault> plan;
      if (r == 1) plan.push_back({.what = spar::fault::kind::corrupt_payload, .message = message, .bit = 5});
      nets.emplace_back(engine.rank(r), plan);
    }
    engine.run([&](spar::sim& net) {
      const auto at = static_cast<std::size_t>(net.rank());
      return programs[at](nets[at]);
    });
    for (std::size_t r = 0; r < ranks; ++r) {
      if (!failed[r]) continue;
      ++calls_failed;
      ASSERT_EQ(reducers[r]->save(), before[r]) << "message " << message << ", rank " << r;
    }
  }
  EXPECT_GT(calls_failed, 100);
}

TEST(ok_topk, a_call_that_fails_in_the_middle_changes_nothing) {
  fail_in_the_middle(false);
  fail_in_the_middle(true);
}

TEST(ok_topk, reducers_of_layers_move_and_have_names) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    std::vector<reducer> layers;
    for (int l = 0; l < 5; ++l) layers.emplace_back(spar::ok_topk_allreduce<>{.select = {.k = 2, .epsilon = 0}});
    std::vector<std::string> names{"a", "b", "c", "d", "e"};
    vectors x(5, std::vector<float>{1, 2, 3, 4});
    std::vector<spar::pending<spar::threads, void>> calls;
    for (std::size_t i = 0; i < 5; ++i) { // in a different order on each rank
      const std::size_t l = (i * 2 + static_cast<std::size_t>(net.rank())) % 5;
      calls.push_back(layers[l].start(net, spar::named{names[l]}, std::span<float>(x[l])));
      EXPECT_THROW((void)layers[l].start(net, spar::named{"again"}, std::span<float>(x[l])), spar::invalid_argument);
      EXPECT_THROW(reducer(std::move(layers[l])), spar::invalid_argument);
    }
    for (auto& call : calls) call.wait();
    for (const auto& layer : x) EXPECT_EQ(layer, (std::vector<float>{0, 0, 9, 12}));
    const reducer moved(std::move(layers[0]));
    EXPECT_EQ(moved.residual()[1], 2);
  });
}

TEST(ok_topk, layers_are_reduced_at_the_same_time) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    constexpr std::size_t layers = 20;
    std::vector<std::unique_ptr<reducer>> reducers;
    for (std::size_t l = 0; l < layers; ++l) {
      reducers.push_back(
          std::make_unique<reducer>(spar::ok_topk_allreduce<>{.select = {.density = 0.1, .epsilon = 0}}));
    }
    for (std::uint64_t step = 0; step < 3; ++step) {
      vectors x;
      std::vector<spar::pending<spar::threads, void>> calls;
      for (std::size_t l = 0; l < layers; ++l) {
        x.push_back(whole_numbers(net.size(), 30 * l + 10, step + l)[static_cast<std::size_t>(net.rank())]);
      }
      for (std::size_t l = 0; l < layers; ++l) calls.push_back(reducers[l]->start(net, std::span<float>(x[l])));
      for (auto& call : calls) call.wait();
      for (std::size_t l = 0; l < layers; ++l) ASSERT_LE(nonzeros(x[l]), 3 * l + 1);
    }
  });
}

} // namespace
} // namespace spar_test
