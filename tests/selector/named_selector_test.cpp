// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// named_selector: a selector from its text does what the selector of that name does, also in error feedback.
#include "support/ranks.hpp"

#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/selector/named_selector.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::selector::bucket_topk, spar::selector::exact_topk, spar::selector::gaussian, spar::selector::named_selector,
    spar::selector::threshold_reuse;

std::string refusal(const char* text) {
  try {
    const named_selector made(text);
    return "accepted";
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
}

TEST(selector_named_selector, has_every_option_of_the_selector) {
  const auto same = [](const char* text, const auto& expected) {
    EXPECT_EQ(spar::digest_of(named_selector(text)), spar::digest_of(named_selector(expected))) << text;
    EXPECT_EQ(named_selector(text).bounds(5000).k, expected.bounds(5000).k) << text;
  };
  same("exact_topk:0.01", exact_topk{.density = 0.01});
  same("exact_topk:1%", exact_topk{.density = 0.01});
  same("exact_topk:k=30", exact_topk{.k = 30});
  same("threshold_reuse:0.02:period=7:epsilon=0.25", threshold_reuse{.density = 0.02, .period = 7, .epsilon = 0.25});
  same("threshold_reuse:epsilon=0:k=9:threads=3", threshold_reuse{.k = 9, .epsilon = 0});
  same("gaussian:density=0.5", gaussian{.density = 0.5});
  same("bucket_topk:k=3:bucket=64", bucket_topk{.k = 3, .bucket = 64});
  EXPECT_EQ(named_selector("threshold_reuse:0.1:period=7").period, 7U);
  EXPECT_EQ(named_selector("exact_topk:0.1").period, 1U);
}

TEST(selector_named_selector, has_a_text_that_makes_it_again) {
  for (const char* text :
       {"exact_topk", "exact_topk:density=0.01", "exact_topk:k=0", "threshold_reuse:k=9:period=2:epsilon=0.3:threads=4",
        "gaussian:density=0.1", "bucket_topk:k=3", "bucket_topk:k=3:bucket=64"})
    EXPECT_EQ(named_selector(text).text(), text);
}

TEST(selector_named_selector, names_the_position_and_the_choices) {
  EXPECT_EQ(refusal("gausian:0.1"),
            "unknown selector 'gausian:0.1' at character 1 of 'gausian:0.1'; expected gaussian, "
            "exact_topk, threshold_reuse, bucket_topk");
  EXPECT_EQ(refusal("threshold_reuse:0.01:perod=3"),
            "unknown option 'perod=3' of threshold_reuse at character 22 of 'threshold_reuse:0.01:perod=3'; expected "
            "period, k, density, epsilon, threads");
  EXPECT_EQ(refusal("threshold_reuse:0.01:period=0"),
            "'0' at character 29 of 'threshold_reuse:0.01:period=0'; expected a whole number of at least 1");
  EXPECT_EQ(refusal("exact_topk:2"), "'2' at character 12 of 'exact_topk:2'; expected a share above 0 and at most 1, "
                                     "such as 0.01 or 1%, or k=NUMBER");
  EXPECT_EQ(refusal("exact_topk:0.1:k=3"),
            "a second number of entries at character 12 of 'exact_topk:0.1:k=3'; expected one: a share or k=NUMBER");
  EXPECT_EQ(refusal("exact_topk:k=3:k=4"), "a second k at character 16 of 'exact_topk:k=3:k=4'; expected each option "
                                           "once");
  for (const char* text : {"", ":", "exact_topk:", "exact_topk:k=", "exact_topk:k=-1", "exact_topk:k=1e3", "everything",
                           "exact_topk:0.1:", "exact_topk:nan", "exact_topk:0", "exact_topk:period=3",
                           "exact_topk:0.1:threads=0", "threshold_reuse:0.1:epsilon=1", "gaussian:0.1:0.1",
                           "exact_topk:k=18446744073709551616", "bucket_topk:0.1", " exact_topk:0.1"})
    EXPECT_NE(refusal(text).find(" of '" + std::string(text) + "'; expected "), std::string::npos) << refusal(text);
}

TEST(selector_named_selector, gets_a_number_of_entries_where_the_text_has_none) {
  named_selector without("threshold_reuse:period=3"), with("exact_topk:0.5");
  EXPECT_THROW(without.validate(100), spar::invalid_argument);
  without.set_k_unless_given(7);
  with.set_k_unless_given(7);
  EXPECT_EQ(without.bounds(100).k, 7U);
  EXPECT_EQ(with.bounds(100).k, 50U);
}

// --- error feedback ---

constexpr std::size_t dimension = 2000;
constexpr spar::rank_t ranks = 4;

std::vector<float> drifting(spar::rank_t rank, int step) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> x(dimension);
  for (float& value : x) value = std::exp(3 * normal(random));
  std::mt19937_64 now(static_cast<std::uint64_t>(100 * rank + step));
  for (float& value : x) value *= 1 + normal(now) / 8;
  return x;
}

struct outcome {
  std::vector<float> sums, residual;
  std::uint64_t messages = 0, bytes = 0;
  std::vector<std::byte> saved;
  bool operator==(const outcome&) const = default;
};

/// Steps of a reducer that begins with the states in `from`, if there are any.
template <class Composition>
struct steps {
  Composition by;
  int first, last;
  const std::vector<outcome>* from;
  std::vector<outcome>* to;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    spar::error_feedback<float, Composition> reduce(by);
    if (from != nullptr) reduce.load((*from)[r].saved);
    outcome& its = (*to)[r];
    for (int step = first; step < last; ++step) {
      std::vector<float> x = drifting(net.rank(), step);
      auto pending = reduce.start(net, std::span<float>(x));
      co_await std::move(pending);
      its.sums.insert(its.sums.end(), x.begin(), x.end());
      its.messages += pending.statistics().messages_sent;
      its.bytes += pending.statistics().bytes_sent;
    }
    its.residual.assign(reduce.residual().begin(), reduce.residual().end());
    its.saved = reduce.save();
  }
};

template <class Composition>
std::vector<outcome> run_steps(const Composition& by, int first, int last, const std::vector<outcome>* from) {
  std::vector<outcome> results(ranks);
  run_sim(ranks, steps<Composition>{by, first, last, from, &results});
  return results;
}

/// The same sums, residuals, messages and bytes, also after a state was saved.
template <class Selector, class... Rest>
void expect_same(const char* text, const Selector& select, const Rest&... rest) {
  const auto concrete = spar::compose(select, rest...);
  const auto named = spar::compose(named_selector(text), rest...);
  auto expected = run_steps(concrete, 0, 5, nullptr), got = run_steps(named, 0, 5, nullptr);
  const auto expected_later = run_steps(concrete, 5, 8, &expected);
  auto later = run_steps(named, 5, 8, &got);
  for (const auto* both : {&got, &later}) {
    const auto& of_concrete = both == &got ? expected : expected_later;
    for (std::size_t r = 0; r < both->size(); ++r) {
      const outcome &a = (*both)[r], &b = of_concrete[r];
      EXPECT_EQ(a.sums, b.sums) << text << " rank " << r;
      EXPECT_EQ(a.residual, b.residual) << text << " rank " << r;
      EXPECT_EQ(a.messages, b.messages) << text << " rank " << r;
      EXPECT_EQ(a.bytes, b.bytes) << text << " rank " << r;
      if constexpr (std::same_as<Selector, threshold_reuse>) {
        EXPECT_EQ(a.saved, b.saved) << text << " rank " << r;
      }
      spar::error_feedback<float, std::remove_const_t<decltype(named)>> over(named);
      over.take_over(b.saved);
      EXPECT_EQ((std::vector<float>(over.residual().begin(), over.residual().end())), b.residual);
    }
  }
}

TEST(selector_named_selector, has_the_bits_and_messages_of_the_selector_in_error_feedback) {
  const threshold_reuse reuse{.k = 60, .period = 3};
  const char* const text = "threshold_reuse:k=60:period=3";
  expect_same(text, reuse, spar::balanced_owners{.tau = 2});
  expect_same(text, reuse, spar::pruned_owners{.tau = 2}, spar::storage::coded{});
  expect_same(text, reuse, spar::cheapest_owners{.tau = 2}, spar::storage::coded{});
  expect_same("exact_topk:k=60", exact_topk{.k = 60}, spar::tree_of_topk{});
  expect_same("gaussian:0.03", gaussian{.density = 0.03}, spar::balanced_owners{});
  expect_same("bucket_topk:k=3:bucket=100", bucket_topk{.k = 3, .bucket = 100}, spar::cheapest{});
}

TEST(selector_named_selector, refuses_the_state_of_another_selector) {
  const auto reducer = [](const char* text) { return spar::compose(named_selector(text), spar::balanced_owners{}); };
  using feedback = spar::error_feedback<float, decltype(reducer(""))>;
  const feedback saved(reducer("threshold_reuse:0.1"));
  feedback other(reducer("exact_topk:0.1")), same(reducer("threshold_reuse:0.2"));
  EXPECT_THROW(other.load(saved.save()), spar::invalid_argument);
  EXPECT_NO_THROW(same.load(saved.save()));
}

} // namespace
} // namespace spar_test
