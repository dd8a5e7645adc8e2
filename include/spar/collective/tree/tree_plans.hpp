// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plans and choices that all ranks derive from a tree, made once; and the topology of a single plan.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/model/tree_cost.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/topology/tree.hpp>
#include <spar/topology/tree_cells.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// The plan with which FlexReduce is the ring through the ranks of a tree from left to right.
inline flex_plan ring_plan(const tree& topology, std::uint64_t n) {
  tree_node ring;
  for (const rank_t r : topology.leaves()) ring.children.push_back({.rank = r});
  return flex_plan(tree(ring), n);
}

/// The plan with which FlexReduce is BlueConnect (Cho et al. 2019), which on an asymmetric tree is the ring.
inline flex_plan blueconnect_plan(const tree& topology, std::uint64_t n) {
  return topology.is_symmetric() ? flex_plan(topology, n) : ring_plan(topology, n);
}

enum class tree_choice { ring, rabenseifner, blueconnect, flexreduce };

/// The cheapest algorithm for a vector of `bytes` bytes, by the model (FlexReduce, section IV). On a symmetric tree
/// FlexReduce is BlueConnect; on an asymmetric tree BlueConnect is the ring.
inline tree_choice choose_on_tree(const tree& topology, double bytes) {
  const double by_ring = seconds_ring(topology, bytes);
  const double by_halving = seconds_rabenseifner(topology, bytes);
  const double by_levels = seconds_flexreduce(topology, bytes);
  if (by_ring <= by_halving && by_ring <= by_levels) return tree_choice::ring;
  if (by_halving < by_levels) return tree_choice::rabenseifner;
  return topology.is_symmetric() ? tree_choice::blueconnect : tree_choice::flexreduce;
}

/// A tree with the plans and choices that ranks derive from it: create it once, equal on all ranks, for `on_tree`,
/// which borrows it. What depends on n is made by the first call with this n and kept as long as this object lives.
/// Ranks that are threads may share one object.
class tree_plans {
 public:
  explicit tree_plans(tree topology)
      : tree_(std::move(topology)), cells_(tree_), numbers_(static_cast<std::size_t>(tree_.ranks())) {
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      numbers_[static_cast<std::size_t>(tree_.leaves()[i])] = static_cast<rank_t>(i);
    }
    digest_ = hash();
  }
  tree_plans(const tree_plans&) = delete;

  [[nodiscard]] const tree& topology() const noexcept { return tree_; }
  /// The digest of the tree with its links: plans depend on the tree's shape, choices also on its links.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  /// FlexReduce's plan in cells, which fit any n.
  [[nodiscard]] const tree_cells& cells() const noexcept { return cells_; }
  /// The ranks from left to right.
  [[nodiscard]] rank_order order() const noexcept { return {tree_.leaves().data(), numbers_.data()}; }

  /// FlexReduce's plan for n values.
  [[nodiscard]] const flex_plan& plan(std::uint64_t n) const {
    return kept(levels_, n, [&] { return flex_plan(tree_, n); });
  }
  /// The plan of the ring from left to right, for n values.
  [[nodiscard]] const flex_plan& ring(std::uint64_t n) const {
    return kept(rings_, n, [&] { return ring_plan(tree_, n); });
  }
  /// The cheapest algorithm for a dense vector of `bytes` bytes.
  [[nodiscard]] tree_choice choice(std::uint64_t bytes) const {
    return kept(choices_, bytes, [&] { return choose_on_tree(tree_, static_cast<double>(bytes)); });
  }

 private:
  [[nodiscard]] std::uint64_t hash() const noexcept {
    std::uint64_t hash = static_cast<std::uint64_t>(tree_.ranks());
    const auto add = [&](std::uint64_t word) { hash = detail::splitmix(hash ^ word); };
    for (const tree::node& node : tree_.nodes()) {
      add(node.parent);
      add(std::bit_cast<std::uint64_t>(node.up.bandwidth));
      add(std::bit_cast<std::uint64_t>(node.up.latency));
    }
    for (const rank_t r : tree_.leaves()) add(static_cast<std::uint64_t>(r));
    return hash;
  }

  template <class Value>
  using made = std::list<std::pair<std::uint64_t, Value>>; // a list, so that values keep their addresses

  template <class Value, class Make>
  const Value& kept(made<Value>& all, std::uint64_t key, const Make& make) const {
    const std::lock_guard lock(mutex_);
    for (const auto& one : all) {
      if (one.first == key) return one.second;
    }
    return all.emplace_back(key, make()).second;
  }

  tree tree_;
  tree_cells cells_;
  std::vector<rank_t> numbers_; // the position of each rank, from left to right
  std::uint64_t digest_ = 0;
  mutable std::mutex mutex_;
  mutable made<flex_plan> levels_;
  mutable made<flex_plan> rings_;
  mutable made<tree_choice> choices_;
};

/// The topology of a plan for one n, such as a plan of flex_plan::of_calls or from a file. The plan must outlive the
/// last call. Throws `invalid_argument`, before anything is sent, if the plan is for another dimension or number of
/// ranks; ranks with different plans end in `mismatch`.
class on_plan {
 public:
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "plan";

  explicit on_plan(const flex_plan& plan) noexcept : plan_(&plan) {}
  explicit on_plan(flex_plan&&) = delete; // a temporary would not outlive the calls

  void validate(std::uint64_t n, rank_t ranks) const { plan_->check(n, ranks); }
  template <class F>
  void options(F&& f) const {
    f("digest", plan_->digest());
  }
  [[nodiscard]] static constexpr rank_order order() noexcept { return {}; }
  [[nodiscard]] const flex_plan& plan(std::uint64_t) const noexcept { return *plan_; }

 private:
  const flex_plan* plan_;
};

/// A topology with a plan for n values, which `chains` needs.
template <class Topology>
concept planned_topology = requires(const Topology& over, std::uint64_t n) {
  { over.plan(n) } -> std::same_as<const flex_plan&>;
};

} // namespace spar
