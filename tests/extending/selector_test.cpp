// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user-defined selector, as in docs/guide/composing.md, in several collectives.
#include <spar/spar.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// Selects the k entries that follow those of the last call, and continues at the start after the end of the vector.
struct in_turn {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "in_turn";
  static constexpr bool ranks_values = false; // it selects by position

  std::uint64_t k = 0;

  struct state {
    std::uint64_t next = 0;

    void shared_state(auto&& f) { // state that is equal on all ranks
      f(next);
    }
    void own_state(auto&&) {} // state that differs between ranks: none
  };

  void validate(std::uint64_t n) const {
    if (k > n) spar::raise<spar::invalid_argument>({"in_turn selects ", k, " entries of ", n});
  }
  void options(auto&& f) const { f("k", k); }
  spar::selector::topk_bounds bounds(std::uint64_t) const { return {.least = k, .k = k, .most = k}; }

  template <class Index, class T, class Prepare>
  spar::ready<spar::sparse_stream<T, Index>> operator()(const spar::host_work& work, std::span<T> x, state& now,
                                                        const Prepare& prepare) const {
    prepare(0, x.size()); // computes the values
    auto selected = spar::sparse_stream<T, Index>::sparse(work.memory(), x.size(), k);
    std::size_t count = 0;
    const auto take = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        if (x[i] == T{}) continue; // zeros are not sent
        selected.indices()[count] = static_cast<Index>(i);
        selected.values()[count++] = x[i];
        x[i] = T{}; // what is left in x is the residual
      }
    };
    const std::uint64_t n = x.size(), begin = now.next, end = begin + k;
    if (end > n) take(0, end - n); // the part at the start of the vector first: indices must ascend
    take(begin, std::min(end, n));
    now.next = n == 0 ? 0 : end % n;
    selected.shrink(count);
    return spar::ready(std::move(selected));
  }
};

static_assert(spar::selects<in_turn, float, std::uint32_t> && spar::selects<in_turn, std::int32_t, std::uint64_t>);
static_assert(spar::selector_with_bounds<in_turn>);

constexpr std::size_t n = 100;
constexpr std::uint64_t k = 30;
constexpr int steps = 8;

/// Positive whole numbers, so that every sum is exact and no entry of a sum is zero.
std::vector<float> input(spar::rank_t rank, int step) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(1 + (i + 7 * static_cast<std::size_t>(rank)) % 11) + static_cast<float>(step);
  return x;
}

/// The sum of the ranks' values at the indices of a step; removes these values from what the ranks have left.
class plain_sum {
 public:
  explicit plain_sum(spar::rank_t ranks) : left_(static_cast<std::size_t>(ranks), std::vector<float>(n)) {}
  std::vector<float> next(int step, bool keep) {
    std::vector<float> sum(n);
    for (std::size_t r = 0; r < left_.size(); ++r) {
      const auto x = input(static_cast<spar::rank_t>(r), step);
      for (std::size_t i = 0; i < n; ++i) left_[r][i] = (keep ? left_[r][i] : 0) + x[i];
      for (std::uint64_t e = 0; e < k; ++e) {
        const std::size_t i = (k * static_cast<std::size_t>(step) + e) % n;
        sum[i] += left_[r][i];
        left_[r][i] = 0;
      }
    }
    return sum;
  }
  const std::vector<float>& left(spar::rank_t rank) const { return left_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::vector<float>> left_; // by rank
};

template <class Program>
void on_all_ranks(const Program& program) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
    spar::thread_group group(ranks);
    group.run([&](spar::threads& net) { program(net); });
  }
}

TEST(OwnSelector, APlainCallBeginsWithAFreshState) {
  on_all_ranks([](spar::threads& net) {
    for (int call = 0; call < 2; ++call) {
      auto x = input(net.rank(), 0);
      spar::allreduce(net, x, in_turn{.k = k}); // with the default parts in the other slots
      EXPECT_EQ(x, plain_sum(net.size()).next(0, false));
    }
  });
}

template <class Schedule>
class OwnSelectorIn : public testing::Test {};
using schedules = testing::Types<spar::cheapest, spar::gather_and_merge, spar::tree_of_topk, spar::balanced_owners>;
TYPED_TEST_SUITE(OwnSelectorIn, schedules);

TYPED_TEST(OwnSelectorIn, ErrorFeedbackKeepsTheStateAndWhatIsNotSelected) {
  on_all_ranks([](spar::threads& net) {
    const auto algorithm = spar::compose(in_turn{.k = k}, TypeParam{});
    auto reduce = spar::with_error_feedback<float>(algorithm);
    plain_sum plain(net.size());
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      reduce(net, std::span(x));
      EXPECT_EQ(x, plain.next(step, true));
      EXPECT_TRUE(std::ranges::equal(reduce.residual(), plain.left(net.rank())));
      EXPECT_EQ(reduce.report().selected, k);
    }
    auto restarted = spar::with_error_feedback<float>(algorithm);
    restarted.load(reduce.save());
    EXPECT_EQ(restarted.current_state().select.next, k * steps % n);
    auto x = input(net.rank(), steps);
    restarted(net, std::span(x));
    EXPECT_EQ(x, plain.next(steps, true));
  });
}

TYPED_TEST(OwnSelectorIn, APartialAllreduceKeepsTheState) {
  on_all_ranks([](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, n, spar::everyone{}, spar::compose(in_turn{.k = k}, TypeParam{}));
    plain_sum plain(net.size());
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      reduce(std::span(x));
      EXPECT_EQ(x, plain.next(step, false));
    }
    std::vector<float> rest(n);
    reduce.drain(std::span(rest));
    EXPECT_EQ(rest, std::vector<float>(n));
  });
}

TEST(OwnSelector, OptionsAreCheckedBeforeAnythingIsSent) {
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(n);
    EXPECT_THROW(spar::allreduce(net, x, in_turn{.k = n + 1}), spar::invalid_argument);
    spar::allreduce(net, x, in_turn{.k = n}); // the ranks are still in step
  });
}

TEST(OwnSelector, RanksWithOtherOptionsEndInMismatch) {
  spar::thread_group group(2);
  const auto run = [&] {
    group.run([](spar::threads& net) {
      std::vector<float> x(n, 1.0F);
      spar::allreduce(net, x, in_turn{.k = net.rank() == 0 ? k : k + 1});
    });
  };
  EXPECT_THROW(run(), spar::mismatch);
}

} // namespace
