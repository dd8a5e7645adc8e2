// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user-defined topology, as in docs/guide/composing.md, below all schedules that number the ranks by their topology.
#include <spar/sim.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// The ranks in an order that the user gives, in which neighbours are close in the network.
class in_given_order {
 public:
  static constexpr spar::slot fills = spar::slot::topology;
  static constexpr std::string_view name = "in_given_order";

  explicit in_given_order(std::vector<spar::rank_t> ranks) : places_(std::make_shared<places>()) {
    places_->numbers.resize(ranks.size(), -1);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto r = static_cast<std::size_t>(ranks[i]);
      if (r >= ranks.size() || places_->numbers[r] != -1) {
        spar::raise<spar::invalid_argument>({"rank ", ranks[i], " cannot stand at place ", i, " of ", ranks.size()});
      }
      places_->numbers[r] = static_cast<spar::rank_t>(i);
    }
    places_->ranks = std::move(ranks);
  }

  void validate(std::uint64_t, spar::rank_t ranks) const {
    if (places_->ranks.size() == static_cast<std::size_t>(ranks)) return;
    spar::raise<spar::invalid_argument>({"an order of ", places_->ranks.size(), " ranks is used with ", ranks});
  }
  void options(auto&& f) const {
    for (const spar::rank_t r : places_->ranks) f("rank", static_cast<std::uint64_t>(r));
  }
  [[nodiscard]] spar::rank_order order() const { return {places_->ranks.data(), places_->numbers.data()}; }
  [[nodiscard]] spar::uniform_ownership owners(std::uint64_t n, spar::rank_t ranks) const { return {n, ranks}; }

 private:
  struct places {
    std::vector<spar::rank_t> ranks;   // the rank at each place
    std::vector<spar::rank_t> numbers; // the place of each rank
  };
  std::shared_ptr<places> places_; // copies of a topology share the memory to which `order` refers
};

static_assert(spar::part_for<in_given_order, spar::slot::topology>);
static_assert(spar::topology_with_owners<in_given_order> && spar::straight_topology<in_given_order>);

constexpr std::size_t n = 240;

std::vector<float> input(spar::rank_t rank, int step = 0) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t random =
        (i + 1) * 2654435761U + static_cast<std::size_t>(rank) * 40503U + static_cast<std::size_t>(step);
    x[i] = static_cast<float>(random % 1001) - 500;
  }
  return x;
}
std::vector<float> plain_sum(spar::rank_t ranks, int step = 0) {
  std::vector<float> sum(n);
  for (spar::rank_t r = 0; r < ranks; ++r) {
    const auto x = input(r, step);
    for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
  }
  return sum;
}

/// The ranks in descending order, except for the first two.
std::vector<spar::rank_t> some_order(spar::rank_t ranks) {
  std::vector<spar::rank_t> order;
  for (spar::rank_t r = ranks; r > 0; --r) order.push_back(r - 1);
  if (ranks > 2) std::swap(order[0], order[1]);
  return order;
}

template <class Program>
void on_all_ranks(const Program& program) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
    const in_given_order over(some_order(ranks));
    spar::thread_group group(ranks);
    group.run([&](spar::threads& net) { program(net, over); });
  }
}

template <class Schedule>
class OwnTopologyBelow : public testing::Test {};
using schedules = testing::Types<spar::cheapest, spar::recursive_doubling, spar::ring, spar::rabenseifner,
                                 spar::split_allgather<>, spar::gather_and_merge, spar::quantile_owners, spar::chains>;
TYPED_TEST_SUITE(OwnTopologyBelow, schedules);

TYPED_TEST(OwnTopologyBelow, ValuesAndStreams) {
  on_all_ranks([](spar::threads& net, const in_given_order& over) {
    const auto reduce = spar::compose(over, TypeParam{});
    auto x = input(net.rank());
    spar::allreduce(net, x, reduce);
    EXPECT_EQ(x, plain_sum(net.size()));
    auto y = input(net.rank());
    const auto mine = spar::select(spar::selector::nonzeros{}, std::span(y), net.memory());
    const auto sum = spar::allreduce(net, mine, reduce);
    sum.to_dense(y, spar::sum{});
    EXPECT_EQ(y, plain_sum(net.size()));
  });
}

template <class Schedule>
class OwnTopologyWithResiduals : public testing::Test {};
using selecting = testing::Types<spar::split_allgather<>, spar::tree_of_topk, spar::balanced_owners, spar::chains>;
TYPED_TEST_SUITE(OwnTopologyWithResiduals, selecting);

TYPED_TEST(OwnTopologyWithResiduals, NothingIsLost) {
  on_all_ranks([](spar::threads& net, const in_given_order& over) {
    const auto algorithm = spar::compose(spar::selector::threshold_reuse{.density = 0.1}, over, TypeParam{});
    auto reduce = spar::with_error_feedback<float>(algorithm);
    std::vector<float> sums(n), brought(n);
    for (int step = 0; step < 6; ++step) {
      auto x = input(net.rank(), step);
      reduce(net, std::span(x));
      const auto all = plain_sum(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) sums[i] += x[i], brought[i] += all[i];
    }
    std::vector<float> left(reduce.residual().begin(), reduce.residual().end());
    spar::allreduce(net, left);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sums[i] + left[i], brought[i]) << i;
  });
}

TEST(OwnTopology, PartialAllreduce) {
  on_all_ranks([](spar::threads& net, const in_given_order& over) {
    auto reduce = spar::partial_allreduce<float>(net, n, spar::everyone{}, spar::compose(over, spar::ring{}));
    for (int step = 0; step < 3; ++step) {
      auto x = input(net.rank(), step);
      reduce(std::span(x));
      EXPECT_EQ(x, plain_sum(net.size(), step));
    }
    std::vector<float> rest(n);
    reduce.drain(std::span(rest));
    EXPECT_EQ(rest, std::vector<float>(n));
  });
}

struct ring_program {
  in_given_order over;
  spar::task<void> operator()(spar::sim& net) const& {
    std::vector<float> x(100'000, 1.0F);
    auto pending = spar::start_allreduce(net, x, spar::compose(over, spar::ring{}));
    co_await std::move(pending);
  }
};

/// Four hosts of two ranks: a ring that leaves its host at each step loads every link twice.
TEST(OwnTopology, ARingGoesInItsOrder) {
  const auto seconds = [](std::vector<spar::rank_t> order) {
    spar::simulator engine(8, {.ranks_per_host = 2});
    const ring_program program{in_given_order(std::move(order))};
    engine.run(program);
    return engine.time();
  };
  const double by_hosts = seconds({2, 3, 0, 1, 6, 7, 4, 5});
  const double across = seconds({0, 2, 4, 6, 1, 3, 5, 7});
  EXPECT_GT(across, 1.8 * by_hosts);
}

TEST(OwnTopology, IsCheckedBeforeAnythingIsSent) {
  EXPECT_THROW(in_given_order({0, 0}), spar::invalid_argument);
  EXPECT_THROW(in_given_order({0, 2}), spar::invalid_argument);
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(n);
    EXPECT_THROW(spar::allreduce(net, x, in_given_order({2, 0, 1})), spar::invalid_argument);
    spar::allreduce(net, x, in_given_order({1, 0})); // the ranks are still in step
  });
}

TEST(OwnTopology, RanksInOtherOrdersEndInMismatch) {
  spar::thread_group group(2);
  const auto run = [&] {
    group.run([](spar::threads& net) {
      std::vector<float> x(n);
      const std::vector<spar::rank_t> order =
          net.rank() == 0 ? std::vector<spar::rank_t>{0, 1} : std::vector<spar::rank_t>{1, 0};
      spar::allreduce(net, x, spar::compose(in_given_order(order), spar::recursive_doubling{}));
    });
  };
  EXPECT_THROW(run(), spar::mismatch);
}

} // namespace
