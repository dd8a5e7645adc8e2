// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedules that keep only the largest sums, called without a composition: what they return, keep and put back follows
// from the call that they get.
#include "support/ranks.hpp"

#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using values = std::vector<float>;
constexpr std::uint32_t n = 60;
constexpr std::uint64_t k = 4;

/// A rank's entries: at every third index, and never the same value twice.
values entries_of(std::size_t rank) {
  values x(n);
  for (std::uint32_t i = static_cast<std::uint32_t>(rank) % 3; i < n; i += 3)
    x[i] = static_cast<float>(1 + (7 * i + 11 * rank) % n);
  return x;
}

/// One rank's part of a call of `Schedule` on entries that no selector has selected.
template <class Schedule>
struct schedule_alone : spar::algorithm_defaults {
  static constexpr std::string_view name = Schedule::name;
  using state = spar::state_of<Schedule>;
  using report = spar::report_of<Schedule>;
  state* now;
  report* did;
  values* residual;

  schedule_alone(state* keeps, report* tells, values* gets) : now(keeps), did(tells), residual(gets) {}

  template <class Net, class Op>
  spar::task<spar::sparse_stream<float>> operator()(spar::channel<Net> net, spar::stream_view<float> mine,
                                                    Op op) const& {
    const spar::selected_call<spar::flat, spar::storage::coo, float, state, report> call{.over = {},
                                                                                         .store = {},
                                                                                         .bounds = {k, k, k},
                                                                                         .period = 2,
                                                                                         .state = *now,
                                                                                         .report = *did,
                                                                                         .residual =
                                                                                             std::span(*residual)};
    const Schedule schedule;
    auto running = schedule.reduce(net, call, spar::sparse_stream<float>::copy(net.memory(), mine), op);
    spar::selected_sum<float> result = co_await std::move(running);
    co_return std::move(result.sum);
  }
};

template <class Schedule>
struct rank {
  spar::state_of<Schedule> state{};
  spar::report_of<Schedule> report{};
  values residual = values(n);
  values sum = values(n);
};

template <class Schedule>
struct call_of {
  std::vector<rank<Schedule>>* all;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    rank<Schedule>& own = (*all)[static_cast<std::size_t>(net.rank())];
    const values x = entries_of(static_cast<std::size_t>(net.rank()));
    std::vector<std::uint32_t> indices;
    values entries;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (x[i] != 0) indices.push_back(i), entries.push_back(x[i]);
    }
    std::fill(own.residual.begin(), own.residual.end(), 0.0F);
    const auto mine = spar::sparse_view(n, indices, entries);
    const schedule_alone<Schedule> algorithm(&own.state, &own.report, &own.residual);
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(n, algorithm);
    auto pending = spar::start_collective(net, agreed, algorithm, mine, spar::sum{});
    const spar::sparse_stream<float> sum = co_await std::move(pending);
    sum.to_dense(std::span(own.sum), spar::sum{});
  }
};

values total_of(spar::rank_t ranks) {
  values total(n);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    std::transform(total.begin(), total.end(), entries_of(r).begin(), total.begin(), std::plus<>());
  return total;
}

/// Runs `calls` calls with the same entries, and expects that the results and the residuals of all ranks add up to
/// them.
template <class Schedule>
std::vector<rank<Schedule>> run_calls(spar::rank_t ranks, int calls) {
  std::vector<rank<Schedule>> all(static_cast<std::size_t>(ranks));
  for (int call = 0; call < calls; ++call) {
    run(mode::sim, ranks, call_of<Schedule>{&all});
    values found = all[0].sum;
    for (const auto& own : all) {
      EXPECT_EQ(own.sum, all[0].sum);
      std::transform(found.begin(), found.end(), own.residual.begin(), found.begin(), std::plus<>());
    }
    EXPECT_EQ(found, total_of(ranks)) << "P = " << ranks << ", call " << call;
  }
  return all;
}

template <class Schedule>
void expect_largest_sums() {
  for (const spar::rank_t ranks : {1, 2, 3, 7, 18}) {
    const auto all = run_calls<Schedule>(ranks, 3);
    values total = total_of(ranks), kept = all[0].sum;
    std::sort(total.begin(), total.end(), std::greater<>());
    std::sort(kept.begin(), kept.end(), std::greater<>());
    std::fill(total.begin() + k, total.end(), 0.0F);
    EXPECT_EQ(kept, total) << "P = " << ranks;
    for (const auto& own : all) EXPECT_EQ(own.state.calls, 3U);
  }
}

TEST(keeping_schedules, balanced_owners_keeps_the_largest_sums) { expect_largest_sums<spar::balanced_owners>(); }
TEST(keeping_schedules, pruned_owners_keeps_the_largest_sums) { expect_largest_sums<spar::pruned_owners>(); }
TEST(keeping_schedules, cheapest_owners_keeps_the_largest_sums) { expect_largest_sums<spar::cheapest_owners>(); }
TEST(keeping_schedules, a_tree_of_top_k_loses_nothing) {
  for (const spar::rank_t ranks : {1, 2, 3, 7, 18}) run_calls<spar::tree_of_topk>(ranks, 1);
}

} // namespace
} // namespace spar_test
