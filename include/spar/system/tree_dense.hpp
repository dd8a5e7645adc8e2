// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dense allreduce over a tree that takes the cheapest of ring, Rabenseifner's algorithm, BlueConnect and
// FlexReduce.
#pragma once

#include <spar/collective/rabenseifner.hpp>
#include <spar/model/tree_cost.hpp>
#include <spar/system/flexreduce.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

enum class tree_choice { ring, rabenseifner, blueconnect, flexreduce };

/// The cheapest for `bytes` by the model (FlexReduce, section IV). On a symmetric tree FlexReduce is BlueConnect; on
/// another one BlueConnect is the ring.
inline tree_choice choose_on_tree(const tree& topology, double bytes) {
  const double by_ring = seconds_ring(topology, bytes);
  const double by_halving = seconds_rabenseifner(topology, bytes);
  const double by_levels = seconds_flexreduce(topology, bytes);
  if (by_ring <= by_halving && by_ring <= by_levels) return tree_choice::ring;
  if (by_halving < by_levels) return tree_choice::rabenseifner;
  return topology.is_symmetric() ? tree_choice::blueconnect : tree_choice::flexreduce;
}

/// What all ranks do in allreduces of n values over a tree; made once, the same on all ranks.
class tree_dense_plan {
 public:
  tree_dense_plan(const tree& topology, std::uint64_t n, std::size_t value_bytes)
      : choice_(choose_on_tree(topology, static_cast<double>(n) * static_cast<double>(value_bytes))),
        plan_(choice_ == tree_choice::ring ? ring_plan(topology, n) : flex_plan(topology, n)) {}

  [[nodiscard]] tree_choice choice() const noexcept { return choice_; }
  [[nodiscard]] const flex_plan& plan() const noexcept { return plan_; }

 private:
  tree_choice choice_;
  flex_plan plan_;
};

/// The plan is borrowed until the call has ended; errors as of `flexreduce`.
struct tree_dense {
  static constexpr std::string_view name = "tree_dense";

  explicit tree_dense(const tree_dense_plan& made) noexcept : plan(&made) {}
  explicit tree_dense(tree_dense_plan&&) = delete; // it is borrowed

  template <element T, class Op>
  void validate(std::span<T> x, const Op& op) const {
    flexreduce{plan->plan()}.validate(x, op);
  }
  void validate_ranks(rank_t ranks) const { flexreduce{plan->plan()}.validate_ranks(ranks); }
  [[nodiscard]] std::uint64_t agreed() const noexcept {
    return plan->plan().digest() + (plan->choice() == tree_choice::rabenseifner ? 1 : 0);
  }

  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    const rabenseifner halving;
    const flexreduce by_levels{plan->plan()};
    const auto start = [&] {
      return plan->choice() == tree_choice::rabenseifner ? halving(net, x, op) : by_levels(net, x, op);
    };
    auto running = start();
    co_await std::move(running);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

  const tree_dense_plan* plan;
};

} // namespace spar
