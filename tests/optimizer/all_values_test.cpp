// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback for compositions that send all values with a block codec: the results and the residuals add up to all
// contributions.
#include "support/ranks.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using vectors = std::vector<std::vector<float>>;

template <class Reducer>
struct program {
  const std::vector<vectors>* calls; // by rank
  std::vector<std::unique_ptr<Reducer>>* reducers;
  std::vector<vectors>* sums;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    for (std::size_t c = 0; c < calls->size(); ++c) {
      (*sums)[c][r] = (*calls)[c][r];
      auto call = (*reducers)[r]->start(net, std::span((*sums)[c][r]));
      co_await std::move(call);
    }
  }
};

using qsgd = spar::storage::qsgd<8>;

struct bad_options {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(10);
    for (const auto& ring :
         {spar::compose(qsgd{}, spar::ring{.piece = 0}), spar::compose(qsgd{.bucket = 0}, spar::ring{})}) {
      auto reduce = spar::with_error_feedback<float>(ring);
      EXPECT_THROW((void)reduce.start(net, std::span(x)), spar::invalid_argument);
    }
    EXPECT_FALSE(net.dead());
    co_return;
  }
};

/// A call with values that the algorithm rejects.
template <class Algorithm>
struct refused {
  Algorithm algorithm;
  std::size_t values;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(values);
    auto reduce = spar::with_error_feedback<float>(algorithm);
    EXPECT_THROW((void)reduce.start(net, std::span(x)), spar::invalid_argument);
    EXPECT_FALSE(net.dead());
    co_return;
  }
};

constexpr std::size_t n = 700;

/// `make(ranks)` returns the algorithm.
template <class Make>
void expect_all_kept(Make make) {
  using reducer = spar::error_feedback<float, decltype(make(spar::rank_t{}))>;
  constexpr std::size_t calls = 20;
  for (const spar::rank_t ranks : {1, 2, 3, 5, 8}) {
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      const auto p = static_cast<std::size_t>(ranks);
      std::mt19937_64 random(p);
      std::normal_distribution<float> normal;
      std::vector<vectors> brought(calls, vectors(p, std::vector<float>(n)));
      for (auto& call : brought)
        for (auto& x : call)
          for (float& v : x) v = normal(random);
      std::vector<std::unique_ptr<reducer>> reducers;
      for (std::size_t r = 0; r < p; ++r) reducers.push_back(std::make_unique<reducer>(make(ranks)));
      std::vector<vectors> sums(calls, vectors(p));
      run(where, ranks, program<reducer>{&brought, &reducers, &sums});
      double lost_by_one = 0;
      for (std::size_t i = 0; i < n; ++i) {
        double due = 0, got = 0, one_call = 0;
        for (std::size_t c = 0; c < calls; ++c) {
          for (const auto& x : brought[c]) due += static_cast<double>(x[i]);
          got += static_cast<double>(sums[c][0][i]);
          for (const auto& sum : sums[c]) ASSERT_EQ(sum[i], sums[c][0][i]) << "the ranks' results differ";
        }
        for (const auto& x : brought[0]) one_call += static_cast<double>(x[i]);
        lost_by_one = std::max(lost_by_one, std::abs(one_call - static_cast<double>(sums[0][0][i])));
        for (const auto& its : reducers) got += static_cast<double>(its->residual()[i]);
        ASSERT_NEAR(got, due, static_cast<double>(ranks) * static_cast<double>(calls) * 1e-5)
            << where << ", P = " << ranks << ", index " << i;
      }
      EXPECT_TRUE(ranks == 1 || lost_by_one > 0.01) << "compression lost nothing, so the test checks nothing";
    }
  }
}

TEST(all_values, ring_and_recursive_doubling_lose_nothing_for_ever) {
  expect_all_kept([](spar::rank_t) { return spar::compose(qsgd{}, spar::ring{.piece = 64}); });
  expect_all_kept([](spar::rank_t) { return spar::compose(qsgd{}, spar::recursive_doubling{.piece = 64}); });
}

TEST(all_values, flexreduce_loses_nothing_for_ever) {
  std::map<spar::rank_t, spar::flex_plan> plans;
  for (const spar::rank_t ranks : {1, 2, 3, 5, 8}) {
    std::vector<spar::rank_t> host_of; // two ranks on the first host, three on each further one
    for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back((r + 1) / 3);
    plans.emplace(ranks, spar::flex_plan(spar::tree_of_hosts(host_of), n));
  }
  expect_all_kept([&](spar::rank_t ranks) { return spar::flexreduce(plans.at(ranks), qsgd{}); });
}

/// Sums values by a schedule with this index type; returns the bytes that rank 0 sends.
template <class Schedule, class Index>
std::uint64_t bytes_with_indices() {
  std::uint64_t bytes = 0;
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    auto reduce = spar::with_error_feedback<float, Index>(spar::compose(Schedule{}));
    std::vector<float> x(100);
    for (std::size_t i = 0; i < x.size(); i += 1 + static_cast<std::size_t>(net.rank())) x[i] = 1.0F;
    reduce(net, std::span(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], 1.0F + static_cast<float>(i % 2 == 0) + static_cast<float>(i % 3 == 0)) << i;
    }
    if (net.rank() == 0) bytes = net.statistics().bytes_sent;
  });
  return bytes;
}

/// A schedule that takes only streams gets indices of the error feedback's type, so that there may be more than 2^32
/// values.
TEST(all_values, as_a_stream_have_the_indices_of_the_error_feedback) {
  EXPECT_GT((bytes_with_indices<spar::gather_and_merge, std::uint64_t>()),
            (bytes_with_indices<spar::gather_and_merge, std::uint32_t>()));
  EXPECT_EQ((bytes_with_indices<spar::ring, std::uint64_t>()), (bytes_with_indices<spar::ring, std::uint32_t>()));
}

TEST(all_values, another_dimension_than_the_plans_is_reported_before_anything_is_sent) {
  const spar::flex_plan plan(spar::tree_of_hosts(std::vector<spar::rank_t>{0, 0, 1}), n);
  using flexreduce = decltype(spar::flexreduce(plan, qsgd{}));
  run_threads(3, refused<flexreduce>{spar::flexreduce(plan, qsgd{}), n - 1});
  run_threads(3, refused<flexreduce>{spar::flexreduce(plan, qsgd{.bucket = 0}), n});
}

TEST(all_values, bad_options_are_reported_before_anything_is_sent) { run_threads(2, bad_options{}); }

} // namespace
} // namespace spar_test
