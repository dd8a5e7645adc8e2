// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedules on trees with values in device memory, against the same on the host: equal bits of sums, residuals and
// states, and equal messages. Kernels are run by fibres, in the streams of a double of the CUDA runtime.
#include "feedback_suite.hpp"

#include <spar/storage/coded.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/tree.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace feedback_test {
namespace {

class trees_on_device : public feedback {};

/// A tree of `levels` levels over `count` ranks, with branches of different sizes: at each branch above the lowest, a
/// third of the ranks, and the others. Its leaves have descending ranks, of which `last` is the first.
spar::tree_node uneven(spar::rank_t last, spar::rank_t count, int levels) {
  spar::tree_node node;
  if (levels > 1 && count > 1) {
    const spar::rank_t third = std::max(1, count / 3);
    node.children.push_back(uneven(last, third, levels - 1));
    node.children.push_back(uneven(last - third, count - third, levels - 1));
  } else {
    for (spar::rank_t r = 0; r < count; ++r) node.children.push_back({.rank = last - r});
  }
  return node;
}

/// What a rank gets, sends and receives: the results of its calls, and its messages and bytes to and from each rank.
struct outcome {
  result values;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sent, received;
  friend bool operator==(const outcome&, const outcome&) = default;
};
/// Runs `calls(gpu, counted)`, where `gpu` is an `on_device` over `counted`.
template <class Calls>
outcome counting_messages(spar::threads& net, Calls calls) {
  spar::counting counted(net);
  spar::on_device gpu(counted); // also for calls on the host, because random rounding depends on the number of a call
  counted.reset();
  outcome all{calls(gpu, counted), {}, {}};
  for (spar::rank_t peer = 0; peer < net.size(); ++peer) {
    all.sent.emplace_back(counted.sent(peer).messages, counted.sent(peer).bytes);
    all.received.emplace_back(counted.received(peer).messages, counted.received(peer).bytes);
  }
  return all;
}

/// Calls of a composition with a residual on the host, and on a device, whether ranks read each other's memory or
/// messages travel through the host.
template <class T, class Index = std::uint32_t, class Composition, class Op = spar::sum>
void compare_on_device(spar::rank_t ranks, std::size_t n, const Composition& parts, Op op = {}) {
  SCOPED_TRACE(testing::Message() << Composition::name << ", " << ranks << " ranks, " << n << " values");
  cuda_double::let_peers_reach_each_other(true);
  const auto expected = on_ranks(ranks, [&](spar::threads& net) {
    return counting_messages(net, [&](auto&, auto& counted) { return on_the_host<T, Index>(counted, n, parts, op); });
  });
  static bool lends = false; // changes from call to call
  for (int times = spar_test::runs_all_cases() ? 2 : 1; times > 0; --times) {
    lends = !lends;
    cuda_double::let_peers_reach_each_other(lends);
    const auto got = on_ranks(ranks, [&](spar::threads& net) {
      if (!lends) cuda_double::set_device(net.rank());
      return counting_messages(net, [&](auto& gpu, auto&) {
        EXPECT_EQ(gpu.lends(), lends || ranks == 1);
        return on_a_device<T, Index>(gpu, net.rank(), n, parts, op);
      });
    });
    EXPECT_TRUE(got == expected) << (lends ? "lent" : "through the host");
  }
  cuda_double::let_peers_reach_each_other(true);
}

/// Calls `test(plans)` for trees of one to three levels over `ranks` ranks.
template <class Test>
void on_trees(spar::rank_t ranks, Test test) {
  for (const int levels : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << levels << " levels");
    cuda_double::reset(static_cast<std::uint64_t>(ranks + levels));
    on_host::machine::seed = static_cast<std::uint64_t>(ranks + levels);
    const spar::tree_plans plans(spar::tree(uneven(ranks - 1, ranks, levels)));
    test(plans);
  }
}

constexpr std::array<spar::rank_t, 8> all_ranks{1, 2, 3, 4, 5, 6, 7, 8};

TEST_F(trees_on_device, give_each_rank_its_portion_of_the_indices) {
  for (const spar::rank_t ranks : all_ranks) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      const exact_topk select{.k = 40};
      compare_on_device<float>(ranks, 500, spar::compose(select, over, spar::chains{}));
      if (ranks != 3 && ranks != 8) return;
      compare_on_device<double, std::uint64_t>(ranks, 300, spar::compose(select, over, spar::chains{}),
                                               spar::average{});
      compare_on_device<float>(ranks, 300, spar::compose(exact_topk{.density = 0.9}, over, spar::chains{})); // dense
      compare_on_device<float>(ranks, 300, spar::compose(exact_topk{.k = 0}, over, spar::chains{}));         // nothing
      compare_on_device<float>(ranks, 0, spar::compose(exact_topk{.density = 1}, over, spar::chains{}));
      compare_on_device<float>(ranks, 5, spar::compose(exact_topk{.density = 1}, over, spar::chains{}));
    });
  }
}

TEST_F(trees_on_device, give_each_rank_its_portion_of_the_entries) {
  for (const spar::rank_t ranks : all_ranks) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      const threshold_reuse reuse{.k = 30, .period = 4};
      compare_on_device<float>(ranks, 600, spar::compose(reuse, over, spar::balanced_owners{.tau = 2}),
                               spar::average{});
      if (ranks != 3 && ranks != 8) return;
      compare_on_device<float>(ranks, 300, spar::compose(exact_topk{.k = 20}, over, spar::quantile_owners{}));
      compare_on_device<float>(ranks, 300, spar::compose(exact_topk{.density = 0.9}, over, spar::quantile_owners{}));
    });
  }
}

/// Owners encode each of their cells once, and other ranks forward the bytes.
TEST_F(trees_on_device, forward_encoded_cells) {
  using spar::storage::as_bfloat16, spar::storage::coded, spar::storage::coo, spar::storage::qsgd, spar::storage::then;
  for (const spar::rank_t ranks : {1, 2, 5, 8}) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      const exact_topk few{.k = 30}, many{.density = 0.6};
      compare_on_device<float>(ranks, 400, spar::compose(few, coded<>{.fast = true}, over, spar::chains{}));
      compare_on_device<float>(ranks, 400, spar::compose(many, then<coo, as_bfloat16>{}, over, spar::chains{}));
      if (ranks != 2 && ranks != 8) return;
      compare_on_device<float>(ranks, 400, spar::compose(few, then<coo, qsgd<4>>{}, over, spar::quantile_owners{}));
      compare_on_device<float>(ranks, 400, spar::compose(many, then<coo, qsgd<4>>{}, over, spar::quantile_owners{}));
      compare_on_device<float>(
          ranks, 400, spar::compose(threshold_reuse{.k = 30}, coded<>{.fast = true}, over, spar::balanced_owners{}));
    });
  }
}

/// Also the residuals have the bits of the host, which contain what the encodings of partial sums lose.
TEST_F(trees_on_device, round_entries_and_keep_the_errors) {
  using spar::storage::coded, spar::storage::qsgd, spar::storage::then;
  constexpr coded<7> rounded{.fast = true};
  for (const spar::rank_t ranks : all_ranks) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      const exact_topk few{.k = 30};
      compare_on_device<float>(
          ranks, 400, spar::compose(threshold_reuse{.k = 30}, rounded, over, spar::balanced_owners{}), spar::average{});
      if (ranks != 3 && (ranks != 8 || spar_test::is_shortened)) return;
      compare_on_device<float>(ranks, 400, spar::compose(few, rounded, over, spar::chains{}));
      compare_on_device<float, std::uint64_t>(ranks, 300,
                                              spar::compose(few, rounded, over, spar::balanced_owners{.tau = 2}));
      compare_on_device<double>(ranks, 300, spar::compose(few, rounded, over, spar::balanced_owners{}));
      compare_on_device<float>(ranks, 400, spar::compose(few, rounded, over, spar::quantile_owners{}));
      compare_on_device<float>(ranks, 400, spar::compose(few, rounded, over, spar::cheapest{}));
      compare_on_device<float>(ranks, 400, spar::compose(few, rounded, over, spar::tree_of_topk{}));
      compare_on_device<float>(
          ranks, 400,
          spar::compose(exact_topk{.density = 0.6}, then<coded<7>, qsgd<4>>{rounded, {}}, over, spar::chains{}));
    });
  }
}

TEST_F(trees_on_device, order_the_ranks_of_flat_schedules) {
  for (const spar::rank_t ranks : {1, 5, 8}) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      const exact_topk select{.k = 40};
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::recursive_doubling{}));
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::split_allgather{}));
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::gather_and_merge{}));
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::tree_of_topk{}));
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::ring{}));
      compare_on_device<float>(ranks, 400, spar::compose(select, over, spar::cheapest{}));
    });
  }
}

TEST_F(trees_on_device, reduce_dense_values_by_levels) {
  using spar::storage::as_bfloat16, spar::storage::qsgd;
  for (const spar::rank_t ranks : {1, 2, 5, 8}) {
    on_trees(ranks, [&](const spar::tree_plans& plans) {
      const spar::on_tree over(plans);
      compare_on_device<float>(ranks, 400, spar::tree_dense(plans));
      compare_on_device<float>(ranks, 400, spar::compose(as_bfloat16{}, over, spar::two_shot{}));
      compare_on_device<float>(ranks, 400, spar::compose(qsgd<8>{.bucket = 64}, over, spar::two_shot{}));
      compare_on_device<float>(ranks, 400, spar::compose(as_bfloat16{}, over, spar::cheapest{}));
      compare_on_device<float>(ranks, 400, spar::flexreduce(plans, qsgd<4>{}));
    });
  }
}

TEST_F(trees_on_device, run_plans_of_other_kinds) {
  constexpr std::size_t n = 400;
  for (const spar::rank_t ranks : {2, 5, 8}) {
    const spar::tree hosts(uneven(ranks - 1, ranks, 3));
    for (const spar::flex_plan& plan :
         {spar::flex_plan::hierarchical(hosts, n), spar::ring_plan(hosts, n), spar::blueconnect_plan(hosts, n)}) {
      cuda_double::reset(static_cast<std::uint64_t>(ranks));
      compare_on_device<float>(ranks, n, spar::compose(exact_topk{.k = 50}, spar::on_plan(plan), spar::chains{}));
    }
  }
}

/// Every third index of n from `rank` on, or every index if `dense`, with a value.
std::vector<std::uint32_t> indices_of(spar::rank_t rank, std::size_t n, bool dense) {
  std::vector<std::uint32_t> indices;
  for (auto i = dense ? 0 : static_cast<std::uint32_t>(rank); i < n; i += dense ? 1 : 3) indices.push_back(i);
  return indices;
}

TEST_F(trees_on_device, reduce_streams_of_the_program) {
  constexpr std::size_t n = 200;
  constexpr spar::rank_t ranks = 5;
  const spar::tree_plans plans(spar::tree(uneven(ranks - 1, ranks, 2)));
  cuda_double::reset(3);
  on_ranks(ranks, [&](spar::threads& net) {
    spar::on_device gpu(net);
    const stream work;
    for (const bool dense : {false, true}) {
      const auto indices = indices_of(net.rank(), n, dense);
      const auto values = gradient<float>(net.rank(), 0, indices.size());
      const device_array<std::uint32_t> at(indices);
      const device_array<float> x(values);
      const auto mine = spar::stream_view<float, std::uint32_t, spar::cuda>::sparse(n, {at.data(), indices.size()},
                                                                                    {x.data(), values.size()});
      const auto compare_with = [&](const auto& algorithm) {
        const auto expected = spar::allreduce(net, spar::sparse_view(n, indices, values), algorithm);
        const auto sum = spar::allreduce(gpu, mine, work, algorithm);
        EXPECT_EQ(sum.is_dense(), expected.is_dense());
        EXPECT_EQ(bits(std::span<const float>(cuda_double::values_at(sum.values().data(), sum.count(), work))),
                  bits(expected.values()));
        const auto got = cuda_double::values_at(sum.indices().data(), sum.indices().size(), work);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.indices().begin(), expected.indices().end()));
      };
      compare_with(spar::flexreduce(plans));
      compare_with(spar::tree_sparcml(plans));
      compare_with(spar::chains{});
    }
    return 0;
  });
}

TEST_F(trees_on_device, end_on_every_rank_if_cuda_fails_on_one) {
  const spar::tree_plans plans(spar::tree(uneven(2, 3, 2)));
  const auto parts = spar::compose(threshold_reuse{.k = 20, .period = 4}, spar::storage::coded<7>{.fast = true},
                                   spar::on_tree(plans), spar::balanced_owners{});
  EXPECT_GE(fail_each_cuda_call(3, 100, parts, on_the_device{}), 10U);
}

/// Rank 1 has its values on the host, and takes part in the same calls.
TEST_F(trees_on_device, let_ranks_without_a_gpu_take_part) {
  constexpr std::size_t n = 300;
  constexpr spar::rank_t ranks = 5;
  const spar::tree_plans plans(spar::tree(uneven(ranks - 1, ranks, 3)));
  const auto parts = spar::compose(threshold_reuse{.k = 30}, spar::on_tree(plans), spar::balanced_owners{});
  cuda_double::reset(4);
  const auto run = [&](bool on_devices) {
    return on_ranks(ranks, [&](spar::threads& all) {
      spar::faulty net(all, {}); // reads payloads, so that no memory is lent
      if (!on_devices || net.rank() == 1) return on_the_host<float, std::uint32_t>(net, n, parts, spar::sum{});
      spar::on_device gpu(net);
      return on_a_device<float, std::uint32_t>(gpu, net.rank(), n, parts, spar::sum{});
    });
  };
  EXPECT_TRUE(run(true) == run(false));
}

/// Damages the bit `bit` of each message that rank 0 receives in turn: rank 0 ends as on the host.
template <class Parts>
void damage_each_message(const Parts& parts, std::uint64_t bit) {
  constexpr std::size_t n = 200;
  constexpr spar::rank_t ranks = 4;
  const auto call = [&](std::uint64_t message, bool on_devices) {
    return on_ranks(ranks, [&](spar::threads& all) {
      std::vector<spar::fault> plan;
      if (all.rank() == 0) plan = {{.what = spar::fault::kind::corrupt_payload, .message = message, .bit = bit}};
      spar::faulty<spar::threads> net(all, plan);
      auto values = gradient<float>(net.rank(), 0, n);
      try {
        if (on_devices) {
          const device_array<float> x(values);
          spar::on_device gpu(net);
          spar::allreduce(gpu, spar::device_span(x.data(), n), parts);
          values = x.read(nullptr);
        } else {
          spar::allreduce(net, std::span(values), parts);
        }
      } catch (const spar::corrupt_message& error) {
        return std::pair(std::vector<std::uint64_t>(), std::string(error.what()));
      } catch (const spar::peer_failed&) {
      }
      return std::pair(bits(std::span<const float>(values)), std::string());
    })[0];
  };
  std::size_t refused = 0;
  for (std::uint64_t message = 0; message < 8; ++message) {
    const auto got = call(message, true);
    EXPECT_EQ(got, call(message, false)) << "message " << message;
    refused += got.second.empty() ? 0 : 1;
  }
  EXPECT_GE(refused, 2U);
}

/// The highest bit of the first index, or of the first byte of a code; of sums that stay sparse, and that turn dense.
TEST_F(trees_on_device, refuse_damaged_indices) {
  using spar::storage::coded;
  const spar::tree_plans plans(spar::tree(uneven(3, 4, 2)));
  const spar::on_tree over(plans);
  for (const double density : {0.1, 0.9}) {
    const exact_topk select{.density = density};
    damage_each_message(spar::compose(select, over, spar::chains{}), 31);
    damage_each_message(spar::compose(select, coded<>{.fast = true}, over, spar::chains{}), 7);
    damage_each_message(spar::compose(select, coded<7>{.fast = true}, over, spar::chains{}), 7);
  }
}

} // namespace
} // namespace feedback_test
