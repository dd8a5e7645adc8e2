// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plans and the choices of algorithms that all ranks derive from a tree and keep for later calls (`tree_plans`),
// and the topology of a single plan (`on_plan`).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/model/tree_cost.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree.hpp>
#include <spar/topology/tree_cells.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Returns a plan for n values that makes FlexReduce the ring through the ranks of the tree `topology` from left to
/// right.
inline flex_plan ring_plan(const tree& topology, std::uint64_t n) {
  tree_node ring;
  for (const rank_t r : topology.leaves()) ring.children.push_back({.rank = r});
  return flex_plan(tree(ring), n);
}

/// Returns a plan for n values that makes FlexReduce the same as BlueConnect (Cho et al. 2019) over the tree
/// `topology`. On an asymmetric tree, BlueConnect is the ring.
inline flex_plan blueconnect_plan(const tree& topology, std::uint64_t n) {
  return topology.is_symmetric() ? flex_plan(topology, n) : ring_plan(topology, n);
}

/// The algorithms for dense vectors from which `choose_on_tree` chooses.
enum class tree_choice { ring, rabenseifner, blueconnect, flexreduce, two_shot };

/// The cheapest allreduce of a dense vector of `bytes` bytes on the tree `topology`, by the model (FlexReduce, section
/// IV). On a symmetric tree the result is never `flexreduce`, because FlexReduce is BlueConnect there. On an asymmetric
/// tree the result is never `blueconnect`, because BlueConnect is the ring there.
inline tree_choice choose_on_tree(const tree& topology, double bytes) {
  const double by_ring = seconds_ring(topology, bytes);
  const double by_halving = seconds_rabenseifner(topology, bytes);
  const double by_levels = seconds_flexreduce(topology, bytes);
  if (by_ring <= by_halving && by_ring <= by_levels) return tree_choice::ring;
  if (by_halving < by_levels) return tree_choice::rabenseifner;
  return topology.is_symmetric() ? tree_choice::blueconnect : tree_choice::flexreduce;
}
/// The cheapest compressed allreduce over `topology` of a dense vector of `bytes` bytes, or `encoded` bytes if a codec
/// encodes them:
/// the ring, FlexReduce, which is BlueConnect on a symmetric tree, or `two_shot`.
inline tree_choice choose_on_tree(const tree& topology, double bytes, double encoded) {
  const double by_ring = seconds_ring(topology, encoded), by_levels = seconds_flexreduce(topology, encoded);
  // The model knows only the links. The factor 0.98 prefers the algorithm that encodes nothing inside hosts.
  const bool inside = topology.hosts().size() <= static_cast<std::size_t>(topology.ranks());
  const double in_two = (inside ? 0.98 : 1) * seconds_two_shot(topology, bytes, encoded);
  if (in_two < std::min(by_ring, by_levels)) return tree_choice::two_shot;
  if (by_ring <= by_levels) return tree_choice::ring;
  return topology.is_symmetric() ? tree_choice::blueconnect : tree_choice::flexreduce;
}

/// A tree, with the plans and the choices of algorithms that ranks derive from the tree. Every rank creates one object,
/// from the same tree, and passes the object to `on_tree`, which borrows it. The first call that needs the plan for a
/// dimension, or the choice for a number of bytes, computes it and keeps it for the lifetime of this object. Ranks that
/// are threads of one process may share one object.
class tree_plans {
 public:
  /// Derives the cells, the numbers of the ranks and the digest from `topology`.
  explicit tree_plans(tree topology)
      : tree_(std::move(topology)), cells_(tree_), numbers_(static_cast<std::size_t>(tree_.ranks())) {
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      numbers_[static_cast<std::size_t>(tree_.leaves()[i])] = static_cast<rank_t>(i);
    }
    digest_ = hash();
    hosts_ = tree_.hosts();
  }
  tree_plans(const tree_plans&) = delete;

  /// The tree of the network.
  [[nodiscard]] const tree& topology() const noexcept { return tree_; }
  /// A hash of the tree's shape and of the bandwidths and latencies of its links. All ranks need trees with the same
  /// hash, because plans and choices depend on shape and links.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  /// `tree::hosts` of the tree.
  [[nodiscard]] std::span<const rank_t> hosts() const noexcept { return hosts_; }
  /// FlexReduce's plan for cells, ranges of indices whose bounds each call chooses. The plan is therefore valid for
  /// every n.
  [[nodiscard]] const tree_cells& cells() const noexcept { return cells_; }
  /// The order of the ranks from left to right in the tree.
  [[nodiscard]] rank_order order() const noexcept { return {tree_.leaves().data(), numbers_.data()}; }

  /// FlexReduce's plan for n values.
  [[nodiscard]] const flex_plan& plan(std::uint64_t n) const {
    return kept(levels_, n, [&] { return flex_plan(tree_, n); });
  }
  /// The plan of the ring through the ranks from left to right, for n values.
  [[nodiscard]] const flex_plan& ring(std::uint64_t n) const {
    return kept(rings_, n, [&] { return ring_plan(tree_, n); });
  }
  /// The cheapest allreduce of a dense vector of `bytes` bytes, as choose_on_tree returns it.
  [[nodiscard]] tree_choice choice(std::uint64_t bytes) const {
    return kept(choices_, bytes, [&] { return choose_on_tree(tree_, static_cast<double>(bytes)); });
  }
  /// The cheapest compressed allreduce of a dense vector of `bytes` bytes, of which a codec makes `encoded` bytes.
  [[nodiscard]] tree_choice choice(std::uint64_t bytes, std::uint64_t encoded) const {
    return kept(compressed_choices_, std::pair(bytes, encoded),
                [&] { return choose_on_tree(tree_, static_cast<double>(bytes), static_cast<double>(encoded)); });
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

  template <class Value, class Key = std::uint64_t>
  using made = std::list<std::pair<Key, Value>>; // a list, because callers keep references to its values

  template <class Value, class Key, class Make>
  const Value& kept(made<Value, Key>& all, Key key, const Make& make) const {
    const std::lock_guard lock(mutex_);
    for (const auto& one : all) {
      if (one.first == key) return one.second;
    }
    return all.emplace_back(key, make()).second;
  }

  tree tree_;
  tree_cells cells_;
  std::vector<rank_t> numbers_; // for each rank, its position from left to right
  std::uint64_t digest_ = 0;
  std::vector<rank_t> hosts_;
  mutable std::mutex mutex_;
  mutable made<flex_plan> levels_;
  mutable made<flex_plan> rings_;
  mutable made<tree_choice> choices_;
  mutable made<tree_choice, std::pair<std::uint64_t, std::uint64_t>> compressed_choices_;
};

/// The topology of a plan for vectors of one length n, such as a plan from flex_plan::of_calls or from a file. The plan
/// must outlive the last call. A call throws `invalid_argument`, before it sends anything, if the plan is for another
/// dimension or number of ranks, and `mismatch` if ranks have different plans.
class on_plan {
 public:
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "plan";

  /// Refers to `plan`, which must outlive the last call.
  explicit on_plan(const flex_plan& plan) noexcept : plan_(&plan) {}
  explicit on_plan(flex_plan&&) = delete; // a temporary would be destroyed before the calls

  void validate(std::uint64_t n, rank_t ranks) const { plan_->check_shape(n, ranks); }
  void options(auto&& f) const { f("digest", plan_->digest()); }
  /// Each rank keeps its own number.
  [[nodiscard]] static constexpr rank_order order() noexcept { return {}; }
  /// The plan, which is valid for one length only; `validate` checks the length.
  [[nodiscard]] const flex_plan& plan(std::uint64_t) const noexcept { return *plan_; }

 private:
  const flex_plan* plan_;
};

/// A topology whose `plan(n)` returns a plan for n values; `chains` runs along the chains of this plan.
template <class Topology>
concept planned_topology = requires(const Topology& over, std::uint64_t n) {
  { over.plan(n) } -> std::same_as<const flex_plan&>;
};

} // namespace spar::inline v0_1
