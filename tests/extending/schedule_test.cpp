// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user-defined schedule, as in docs/guide/composing.md, with any selector, storage and topology.
#include <spar/sim.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// All ranks send to rank 0, which adds up and sends the sum back.
struct star {
  static constexpr spar::slot fills = spar::slot::schedule;
  static constexpr std::string_view name = "star";

  /// Composes with everything. To reject a combination, return `spar::because<"why not">`.
  template <class Selector, class Storage, class Topology>
  static spar::nothing_against accepts();
  void validate(std::uint64_t) const {}
  void options(auto&&) const {} // no options

  /// If `residual` is not empty, adds to it what the storage loses when this rank encodes.
  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::index_range all{0, mine.dimension()};
    const std::uint64_t limit = spar::storage::delta<T, Index>(store, mine.dimension());
    spar::relayed<Storage, T, Index> result; // encoded once, so that all ranks decode the same bytes
    spar::sparse_stream<T, Index> sum;
    if (net.rank() != 0) {
      spar::outgoing<Storage, T, Index> out;
      co_await net.send(0, co_await out(net, store, mine, all, spar::step_of(0, net.rank())));
      co_await out.keep_error(net, store, mine, all, residual);
      spar::incoming<Storage, T, Index> in(net.memory());
      co_await net.receive(0, in);
      co_await result.take(net, store, in, all);
    } else {
      spar::stream_view<T, Index> have = mine;
      for (spar::rank_t r = 1; r < net.size(); ++r) {
        spar::incoming<Storage, T, Index> in(net.memory());
        co_await net.receive(r, in);
        const auto theirs = co_await in.view(net, store, all);
        sum = spar::merge(have, theirs, all, limit, op, net.memory());
        net.compute(theirs.count()); // number of merged entries, for the simulator's clock
        have = std::as_const(sum).view();
      }
      co_await result.encode(net, store, have, all, residual);
      for (spar::rank_t r = 1; r < net.size(); ++r) co_await net.send(r, result.message());
    }
    co_return std::move(result).result(net);
  }
};

/// Like `star`, but keeps only the sums at even indices: a schedule that chooses the entries of the result.
struct even_star : star {
  static constexpr std::string_view name = "even_star";
  struct report {
    std::uint64_t most = 0; ///< how many entries a rank may select
  };

  template <spar::transport Net, class Topology, class Storage, class T, class Index, class Op>
  spar::task<spar::selected_sum<T, Index>>
  reduce(spar::channel<Net> net, spar::selected_call<Topology, Storage, T, spar::no_state, report> call,
         spar::sparse_stream<T, Index> mine, Op op) const& {
    const star all;
    call.report.most = call.bounds.most;
    spar::sparse_stream<T, Index> sum = co_await all(net, mine.view(), op, call.store, call.residual);
    std::size_t kept = 0;
    for (std::size_t e = 0; e < sum.count(); ++e) {
      if (sum.indices()[e] % 2 != 0) continue;
      sum.indices()[kept] = sum.indices()[e];
      sum.values()[kept++] = sum.values()[e];
    }
    sum.shrink(kept);
    net.work().put_back_unlisted(mine, std::as_const(sum).indices(), call.residual);
    co_return spar::selected_sum<T, Index>(std::move(sum), std::move(mine));
  }
};

constexpr std::size_t n = 200;
constexpr int steps = 5;

/// Whole numbers, a quarter of them zero.
std::vector<float> input(spar::rank_t rank, int step = 0) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t random =
        (i + 1) * 2654435761U + static_cast<std::size_t>(rank) * 40503U + static_cast<std::size_t>(step);
    if (random % 4 != 0) x[i] = static_cast<float>(random % 1001) - 500;
  }
  return x;
}
template <class Op = spar::sum>
std::vector<float> plain(spar::rank_t ranks, int step = 0, Op op = {}) {
  std::vector<float> all = input(0, step);
  for (spar::rank_t r = 1; r < ranks; ++r) {
    const auto x = input(r, step);
    for (std::size_t i = 0; i < n; ++i) all[i] = op(all[i], x[i]);
  }
  return all;
}

template <class Program>
void on_all_ranks(const Program& program) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
    spar::thread_group group(ranks);
    group.run([&](spar::threads& net) { program(net); });
  }
}

TEST(OwnSchedule, DenseValues) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank());
    spar::allreduce(net, x, star{});
    EXPECT_EQ(x, plain(net.size()));
    auto y = input(net.rank());
    spar::allreduce(net, y, star{}, spar::maximum{});
    EXPECT_EQ(y, plain(net.size(), 0, spar::maximum{}));
  });
}

TEST(OwnSchedule, Streams) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank());
    const auto mine = spar::select(spar::selector::nonzeros{}, std::span(x), net.memory());
    const auto sum = spar::allreduce(net, mine, star{});
    std::vector<float> all(n);
    sum.to_dense(all, spar::sum{});
    EXPECT_EQ(all, plain(net.size()));
  });
}

TEST(OwnSchedule, ASelector) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank());
    spar::allreduce(net, x, spar::compose(spar::selector::nonzeros{}, star{}));
    EXPECT_EQ(x, plain(net.size()));
  });
}

TEST(OwnSchedule, KeepsSomeSums) {
  on_all_ranks([](spar::threads& net) {
    const auto parts = spar::compose(spar::selector::exact_topk{.k = 20}, even_star{});
    auto reduce = spar::with_error_feedback<float>(parts);
    auto x = input(net.rank());
    reduce(net, std::span(x));
    EXPECT_EQ(reduce.report().by.most, 20U);
    for (std::size_t i = 1; i < n; i += 2) EXPECT_EQ(x[i], 0) << i;
    std::vector<float> all(reduce.residual().begin(), reduce.residual().end());
    spar::allreduce(net, all);
    for (std::size_t i = 0; i < n; ++i) all[i] += x[i];
    EXPECT_EQ(all, plain(net.size())); // what the ranks put back is in their residuals
  });
}

TEST(OwnSchedule, AStorageThatRounds) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank());
    spar::allreduce(net, x, spar::compose(spar::storage::as_bfloat16{}, star{}));
    const auto all = plain(net.size());
    for (std::size_t i = 0; i < n; ++i) { // each contribution and the sum are rounded
      EXPECT_LE(std::abs(x[i] - all[i]), 2 * 500.0F * static_cast<float>(net.size()) / 256) << i;
    }
    std::vector<float> first = x;
    spar::broadcast(net, first, 0);
    EXPECT_EQ(x, first); // all ranks must have the same bits
  });
}

/// The sums so far and the residuals of all ranks add up to all contributions.
template <class Algorithm>
void expect_nothing_lost(const Algorithm& algorithm) {
  on_all_ranks([&](spar::threads& net) {
    auto reduce = spar::with_error_feedback<float>(algorithm);
    std::vector<float> sums(n), brought(n);
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      reduce(net, std::span(x));
      const auto all = plain(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) sums[i] += x[i], brought[i] += all[i];
    }
    std::vector<float> left(reduce.residual().begin(), reduce.residual().end());
    spar::allreduce(net, left);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(sums[i] + left[i], brought[i], 0.01) << i;
  });
}
TEST(OwnSchedule, ErrorFeedback) {
  expect_nothing_lost(spar::compose(spar::selector::exact_topk{.density = 0.1}, star{}));
}
TEST(OwnSchedule, ErrorFeedbackOfAStorageThatRounds) {
  using spar::storage::coo, spar::storage::qsgd, spar::storage::then;
  expect_nothing_lost(spar::compose(qsgd<8>{}, star{}));
  expect_nothing_lost(spar::compose(spar::selector::exact_topk{.density = 0.4}, then<coo, qsgd<8>>{}, star{}));
}

TEST(OwnSchedule, PartialAllreduceOfValues) {
  on_all_ranks([](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, n, spar::everyone{}, star{});
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      reduce(std::span(x));
      EXPECT_EQ(x, plain(net.size(), step));
    }
    std::vector<float> rest(n);
    reduce.drain(std::span(rest));
    EXPECT_EQ(rest, std::vector<float>(n));
  });
}

/// Whichever ranks are late, the results of the rounds and of the drain add up to all contributions.
TEST(OwnSchedule, PartialAllreduceOfStreams) {
  on_all_ranks([](spar::threads& net) {
    auto reduce = spar::partial_allreduce<spar::sparse_stream<float>>(net, n, spar::solo{}, star{});
    std::vector<float> sums(n), brought(n);
    const auto add = [&](const auto& part) { part.sum.for_each([&](std::uint32_t i, float v) { sums[i] += v; }); };
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      const auto mine = spar::select(spar::selector::nonzeros{}, std::span(x), net.memory());
      add(reduce(mine.view()));
      const auto all = plain(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) brought[i] += all[i];
    }
    add(reduce.drain(spar::stream_view<float>::sparse(n, {}, {})));
    EXPECT_EQ(sums, brought);
  });
}

TEST(OwnSchedule, PartialAllreduceWithErrorFeedback) {
  on_all_ranks([](spar::threads& net) {
    const auto algorithm = spar::compose(spar::selector::exact_topk{.density = 0.1}, star{});
    auto reduce = spar::partial_allreduce<float>(net, n, spar::solo{}, spar::with_error_feedback<float>(algorithm));
    std::vector<float> sums(n), brought(n);
    for (int step = 0; step < steps; ++step) {
      auto x = input(net.rank(), step);
      reduce(std::span(x));
      const auto all = plain(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) sums[i] += x[i], brought[i] += all[i];
    }
    std::vector<float> rest(n);
    reduce.drain(std::span(rest));
    std::vector<float> left(reduce.algorithm().residual().begin(), reduce.algorithm().residual().end());
    spar::allreduce(net, left);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sums[i] + rest[i] + left[i], brought[i]) << i;
  });
}

} // namespace
