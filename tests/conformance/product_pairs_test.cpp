// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions inside error feedback and inside partial allreduces: with and without error feedback and each
// participation, each part of every slot occurs in some case.
#include "product/product.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

constexpr std::size_t n = product_dimension;
constexpr int steps = 4;

/// The results on each rank: the sum of all results, and the residual.
struct totals {
  std::vector<std::vector<float>> results; // by step; compared bit for bit
  std::vector<double> sum = std::vector<double>(n);
  std::vector<float> residual = std::vector<float>(n);

  void add(std::span<const float> x) {
    results.emplace_back(x.begin(), x.end());
    for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<double>(x[i]);
  }
};

/// Calls with error feedback, alternately in place and out of place.
template <class Composition>
struct feedback_program {
  Composition reduce;
  std::vector<totals>* all;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    totals& its = (*all)[static_cast<std::size_t>(net.rank())];
    spar::error_feedback<float, Composition> reducer(reduce);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> x = product_input(net.rank(), step);
      if (step % 2 == 0) {
        auto call = reducer.start(net, std::span<float>(x));
        co_await std::move(call);
      } else {
        auto call = reducer.start_reduce(net, std::span<const float>(x));
        const product_sum result = co_await std::move(call);
        result.sum.to_dense(x, spar::sum{});
      }
      its.add(x);
    }
    its.residual.assign(reducer.residual().begin(), reducer.residual().end());
  }
};

/// Rounds of a partial allreduce in which ranks call at different times, with error feedback inside or without.
template <class Composition, class Who, bool Feedback>
struct partial_program {
  Composition reduce;
  Who who;
  std::vector<totals>* all;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    totals& its = (*all)[static_cast<std::size_t>(net.rank())];
    const auto within = [&] {
      if constexpr (Feedback)
        return spar::error_feedback<float, Composition>(reduce);
      else
        return reduce;
    };
    auto rounds = spar::partial_allreduce<float>(net, n, who, within());
    std::vector<float> x;
    for (int step = 0; step < steps; ++step) {
      co_await net.sleep(1e-3 * ((net.rank() + step) % net.size()));
      x = product_input(net.rank(), step);
      auto call = rounds.start(std::span<float>(x));
      co_await std::move(call);
      its.add(x);
    }
    auto last = rounds.start_drain(std::span<float>(x));
    co_await std::move(last);
    its.add(x);
    if constexpr (Feedback)
      its.residual.assign(rounds.algorithm().residual().begin(), rounds.algorithm().residual().end());
  }
};

/// All ranks have the same bits, and if `conserves`, nothing is lost.
template <class Program>
void check(const std::string& name, spar::rank_t ranks, Program program, bool conserves) {
  SCOPED_TRACE(testing::Message() << name << ", P = " << ranks);
  std::vector<totals> all(static_cast<std::size_t>(ranks));
  program.all = &all;
  ASSERT_NO_THROW(run_sim(ranks, program, random_order(5)));
  std::vector<double> balance(n);
  double scale = 1;
  for (spar::rank_t r = 0; r < ranks; ++r) {
    ASSERT_EQ(all[static_cast<std::size_t>(r)].results, all[0].results);
    for (int step = 0; step < steps; ++step) {
      const auto x = product_input(r, step);
      scale += largest_of(x);
      for (std::size_t i = 0; i < n; ++i) balance[i] += static_cast<double>(x[i]);
    }
    for (std::size_t i = 0; i < n; ++i) balance[i] -= static_cast<double>(all[static_cast<std::size_t>(r)].residual[i]);
  }
  double anything = 0;
  for (std::size_t i = 0; i < n; ++i) {
    anything += std::abs(all[0].sum[i]);
    if (conserves) {
      ASSERT_NEAR(all[0].sum[i], balance[i], 2e-5 * scale) << "index " << i;
    }
  }
  EXPECT_GT(anything, 0);
}

/// Runs the composition with each participation, with error feedback and without.
template <class Composition>
void meet_all(const std::string& name, const Composition& reduce, spar::rank_t ranks) {
  constexpr bool exact =
      std::is_same_v<spar::storage::blocks_type<typename Composition::storage_type>, spar::storage::dense>;
  constexpr bool keeps_all = exact && !Composition::selects_entries;
  check(name + ", error feedback", ranks, feedback_program<Composition>{reduce, nullptr}, true);
  check(name + ", everyone", ranks, partial_program<Composition, spar::everyone, false>{reduce, {}, nullptr},
        keeps_all);
  check(name + ", solo, error feedback", ranks, partial_program<Composition, spar::solo, true>{reduce, {}, nullptr},
        true);
  check(name + ", quorum", ranks,
        partial_program<Composition, spar::quorum, false>{reduce, {.q = (ranks + 1) / 2}, nullptr}, keeps_all);
}

// Six cases, in which each model of every slot occurs at least once.

TEST(product_pairs, exact_topk_by_gather_and_merge) {
  meet_all("exact_topk, coo, flat, gather_and_merge",
           spar::compose(spar::selector::exact_topk{.density = 0.05}, spar::gather_and_merge{}), 5);
}

TEST(product_pairs, gaussian_quantised_over_a_tree) {
  const spar::tree_plans plans(product_tree(6));
  meet_all("gaussian, then<coo, qsgd>, tree, split_allgather",
           spar::compose(spar::selector::gaussian{.density = 0.05}, then<spar::storage::coo, spar::storage::qsgd<8>>{},
                         spar::on_tree(plans), spar::dsar_split{}),
           6);
  meet_all("gaussian, qsgd, tree, chains",
           spar::compose(spar::selector::gaussian{.density = 0.05}, spar::storage::qsgd<8>{}, spar::on_tree(plans),
                         spar::chains{}),
           6);
}

TEST(product_pairs, threshold_reuse_by_balanced_owners) {
  const spar::tree_plans plans(product_tree(4));
  meet_all(
      "threshold_reuse, coo, tree, balanced_owners",
      spar::compose(spar::selector::threshold_reuse{.density = 0.05}, spar::on_tree(plans), spar::balanced_owners{}),
      4);
}

#if SPAR_ALL_CASES
TEST(product_pairs, threshold_reuse_by_pruned_owners) {
  meet_all("threshold_reuse, coo, flat, pruned_owners",
           spar::compose(spar::selector::threshold_reuse{.density = 0.05}, spar::pruned_owners{}), 4);
}
#endif

TEST(product_pairs, bucket_topk_by_a_tree_of_topk) {
  meet_all("bucket_topk, coo, flat, tree_of_topk",
           spar::compose(spar::selector::bucket_topk{.k = 6, .bucket = 100}, spar::tree_of_topk{}), 5);
}

TEST(product_pairs, nonzeros_in_half_precision) {
  meet_all("nonzeros, half, flat, recursive_doubling",
           spar::compose(spar::selector::nonzeros{}, spar::storage::as_half{}, spar::recursive_doubling{}), 3);
  meet_all("nonzeros, coo, flat, quantile_owners", spar::compose(spar::selector::nonzeros{}, spar::quantile_owners{}),
           4);
}

TEST(product_pairs, zfp_of_the_largest) {
  meet_all("exact_topk, zfp, flat, ring",
           spar::compose(spar::selector::exact_topk{.density = 0.05}, spar::storage::zfp{.rate = 16}, spar::ring{}), 3);
}

TEST(product_pairs, everything) {
  meet_all("everything, bfloat16, flat, ring", spar::compose(spar::storage::as_bfloat16{}, spar::ring{}), 3);
  meet_all("everything, dense, flat, rabenseifner", spar::compose(spar::storage::dense{}, spar::rabenseifner{}), 4);
  meet_all("everything, coo, flat, cheapest", spar::sparcml{}, 5);
}

} // namespace
} // namespace spar_test
