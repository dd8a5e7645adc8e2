// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_perf detects wrong results, and measures user-defined algorithms.
#include "../../examples/own_policies/policies.hpp"
#include "../../tools/spar_perf/measure_ranks.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Computes the right result and then applies `Defect{}(rank, stream)`.
template <class Defect>
struct defective : spar::algorithm_defaults {
  static constexpr std::string_view name = "defective";

  template <spar::transport Net, spar::element T, spar::index_type Index, spar::reduction<T> Op>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                       Op op) const& {
    const spar::recursive_doubling right;
    auto sum = co_await right(net, mine, op);
    Defect{}(net.rank(), sum);
    co_return sum;
  }
};

struct none {
  template <class Stream>
  void operator()(spar::rank_t, Stream&) const {}
};
struct loses_an_entry {
  template <class Stream>
  void operator()(spar::rank_t, Stream& sum) const {
    sum.shrink(sum.count() - 1);
  }
};
struct changes_a_value {
  template <class Stream>
  void operator()(spar::rank_t rank, Stream& sum) const {
    if (rank == 1) sum.values()[0] += 0.25F;
  }
};
struct moves_an_entry {
  template <class Stream>
  void operator()(spar::rank_t, Stream& sum) const {
    --sum.indices()[sum.count() / 2];
  }
};

spar::perf::row measured(const auto& add, double density = 0.01, const std::string& name = "own", bool phases = false) {
  spar::perf::options o;
  o.phases = phases;
  o.count = 10000;
  o.iterations = 2;
  o.warmup = 1;
  o.check = true;
  o.systems = {name};
  const spar::perf::workload w = spar::perf::workload_of(o, density, 3);
  spar::perf::registry<float, std::uint32_t> all(o, density, spar::tree::flat(3));
  add(all);
  const auto systems = spar::perf::choose(all, o);
  const auto sums = spar::perf::sums_to_check<float>(w, o);
  std::vector<spar::perf::record> records;
  const spar::perf::root_links links(spar::tree::flat(3));
  spar::thread_group group(3);
  group.run([&](spar::threads& inner) {
    spar::perf::measured_net net(inner, links);
    auto its = spar::perf::measure(net, o, w, systems, &*sums);
    if (net.rank() == 0) records = std::move(its);
  });
  return spar::perf::rows_of(systems, std::move(records), w, density, sums, o).at(0);
}

TEST(Measure, AnAlgorithmOfOnesOwn) {
  const auto row = measured([](auto& systems) { systems.add("own", defective<none>{}); });
  EXPECT_TRUE(row.correct());
  EXPECT_EQ(row.measured.seconds.size(), 2U);
  EXPECT_EQ(row.work.k, 100U);
  EXPECT_GE(row.measured.nnz_out, 100U);
  EXPECT_EQ(row.measured.largest.messages_sent, 2U);
}

TEST(Measure, PoliciesOfOnesOwn) {
  const auto add = [](auto& systems) {
    systems.add("star", own::star{});
    using spar::storage::coo, spar::storage::then;
    systems.add_streams("truncated", spar::compose(then<coo, own::truncated>{}, spar::dsar_split{}), 1.0 / 128);
    systems.add("there_and_back", own::there_and_back{});
    systems.add("at_least", own::at_least{.threshold = 1});
  };
  for (const char* name : {"star", "truncated", "there_and_back", "at_least"}) {
    for (const double density : {0.01, 1.0}) {
      const auto row = measured(add, density, name);
      EXPECT_TRUE(row.correct()) << name << " errs by " << row.measured.max_error;
      EXPECT_GT(row.measured.largest.messages_sent, 0U);
    }
  }
}

/// A selector that takes 20 ms.
struct slow_selector {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "slow_selector";

  void validate(std::uint64_t) const {}
  void options(auto&&) const {}
  template <class Index, class Work, class Prepare>
  auto operator()(Work& work, std::span<float> x, spar::no_state& now, const Prepare& prepare) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return spar::selector::exact_topk{.k = 100}.operator()<Index>(work, x, now, prepare);
  }
};

TEST(Measure, ASelectionCountsInOnePhase) {
  for (const char* const name : {"coded", "plain"}) {
    const auto row = measured(
        [](auto& systems) {
          systems.add_feedback("coded",
                               spar::compose(slow_selector{}, spar::storage::as_half{}, spar::split_allgather{}));
          systems.add_feedback("plain", spar::compose(slow_selector{}, spar::split_allgather{}));
        },
        0.01, name, true);
    const spar::perf::phases& phases = row.measured.phases.value();
    EXPECT_GE(phases.select, 0.02) << name;
    EXPECT_LT(phases.encode + phases.merge, 0.015) << name;
  }
}

TEST(Measure, ALostEntryIsWrong) {
  const auto row = measured([](auto& systems) { systems.add("own", defective<loses_an_entry>{}); });
  EXPECT_FALSE(row.correct());
  EXPECT_GE(row.measured.max_error, 1);
  EXPECT_TRUE(row.measured.same_bits);
}

TEST(Measure, AChangedValueOnOneRankIsWrong) {
  const auto row = measured([](auto& systems) { systems.add("own", defective<changes_a_value>{}); });
  EXPECT_FALSE(row.correct());
  EXPECT_EQ(row.measured.max_error, 0.25);
  EXPECT_DOUBLE_EQ(row.measured.mean_error, 0.25 / 10000); // of 10000 values, one is wrong
  EXPECT_DOUBLE_EQ(row.measured.rms_error, 0.25 / 100);
  EXPECT_FALSE(row.measured.same_bits);
}

TEST(Measure, AMovedEntryIsWrong) {
  const auto row = measured([](auto& systems) { systems.add("own", defective<moves_an_entry>{}); });
  EXPECT_FALSE(row.correct());
}

TEST(Measure, ALossyAlgorithmMayErrUpToItsBound) {
  const auto within = measured([](auto& systems) { systems.add("own", defective<none>{}, 0.5); });
  EXPECT_TRUE(within.correct());
  EXPECT_GT(within.measured.error_bound, 0);
  const auto beyond = measured([](auto& systems) { systems.add("own", defective<loses_an_entry>{}, 0.01); });
  EXPECT_FALSE(beyond.correct());
}

TEST(Measure, BothFormsBelowAndAtDensityOne) {
  const auto add = [](auto& systems) { systems.add("own", spar::ring{}); };
  const auto sparse = measured(add, 0.01);
  const auto dense = measured(add, 1);
  EXPECT_TRUE(sparse.correct());
  EXPECT_TRUE(dense.correct());
  EXPECT_EQ(dense.work.k, 10000U);
  // Four messages of a third of n values each per rank, without indices.
  EXPECT_EQ(dense.measured.total.bytes_sent, 2U * 3 * 4 * 10000 * 4 / 3); // in two calls
}

/// Loses the value that it selects at one index, instead of keeping it.
struct forgets {
  static constexpr std::string_view name = "forgets";
  spar::topka_allreduce inner{.select = {.k = 100}};
  bool on = true;

  using state = spar::no_state;
  using report = spar::no_state;

  void options(auto&& f) const { f("inner", inner), f("on", on); }
  template <class T>
  void validate_parts(std::uint64_t n, spar::rank_t ranks) const {
    inner.validate_parts<T>(n, ranks);
  }
  template <class Index, class Net, class T, class Op, class Prepare>
  spar::task<spar::selected_sum<T, Index>> reduce(spar::channel<Net> net, state*, report*, std::span<T> x, Op op,
                                                  Prepare prepare) const& {
    prepare(0, x.size());
    if (on && net.rank() == 1) x[std::size_t{17}] = 0;
    spar::topka_allreduce::state now;
    spar::topka_allreduce::report last;
    const spar::selector::nothing_to_prepare done;
    auto running = inner.reduce<Index>(net, &now, &last, x, op, done);
    co_return co_await std::move(running);
  }
};

spar::perf::row measured_over_steps(const auto& add) {
  spar::perf::options o;
  o.count = 10000;
  o.iterations = 3;
  o.check = o.dense_input = true;
  o.pattern = spar::perf::pattern_kind::drift;
  o.systems = {"own"};
  const spar::perf::workload w = spar::perf::workload_of(o, 0.01, 3);
  spar::perf::registry<float, std::uint32_t> all(o, 0.01, spar::tree::flat(3));
  add(all);
  const auto systems = spar::perf::choose(all, o);
  std::vector<spar::perf::record> records;
  const spar::perf::root_links links(spar::tree::flat(3));
  spar::thread_group group(3);
  group.run([&](spar::threads& inner) {
    spar::perf::measured_net net(inner, links);
    auto its = spar::perf::measure(net, o, w, systems, nullptr);
    if (net.rank() == 0) records = std::move(its);
  });
  return spar::perf::rows_of(systems, std::move(records), w, 0.01, std::nullopt, o).at(0);
}

TEST(Measure, WhatIsSelectedAndWhatIsKeptAreAllThatWasBrought) {
  const auto right = measured_over_steps([](auto& systems) { systems.add_feedback("own", forgets{.on = false}); });
  EXPECT_TRUE(right.correct()) << right.measured.max_error;
  EXPECT_GT(right.measured.error_bound, 0);
  EXPECT_LT(right.measured.error_bound, 0.01);
  const auto lost = measured_over_steps([](auto& systems) { systems.add_feedback("own", forgets{}); });
  EXPECT_FALSE(lost.correct());
  const auto changed = measured_over_steps([](auto& systems) { systems.add("own", defective<changes_a_value>{}); });
  EXPECT_FALSE(changed.correct());
  EXPECT_FALSE(changed.measured.same_bits);
}

TEST(Measure, NamesThatAreNotThere) {
  EXPECT_THROW(measured([](auto& systems) { systems.add("other", spar::ring{}); }), spar::perf::usage_error);
}

} // namespace
