// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plan of an uneven reduce-scatter and all-gather over a tree: FlexReduce_plan (FlexReduce, section III-B, figure
// 3).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace spar {

/// What every rank does in an allreduce of n values over a tree. Made once and used for many calls, and the same on all
/// ranks, as it depends on the tree and on n alone. A plain value.
///
/// A *call* reduces one subrange along a chain of ranks, one from each child of a branch, to the rank that owns it from
/// then on: the chain's last one, its root. A node's chains begin with the child after the root's and go round, so that
/// together they are the ring reduce-scatter of equation 2. A root that holds nothing of the subrange itself gets it
/// from the holder in its own child, which stands before it.
class flex_plan {
 public:
  struct call {
    index_range range;
    std::size_t first = 0; ///< its chain is chains[first, last)
    std::size_t last = 0;
    bool root_holds = true; ///< whether the root adds anything
    friend bool operator==(const call&, const call&) = default;
  };
  /// A rank's place in the chain of a call.
  struct part {
    std::size_t call = 0; ///< of calls()
    std::size_t place = 0;
    friend bool operator==(const part&, const part&) = default;
  };

  flex_plan(const tree& topology, std::uint64_t n) : n_(n), ranks_(topology.ranks()) {
    held_.assign(static_cast<std::size_t>(ranks_), {0, n});
    for (std::size_t level = 0; level < topology.levels(); ++level) {
      const std::size_t before = calls_.size();
      std::vector<index_range> next = held_;
      for (const std::size_t branch : topology.branches(level)) assign_ranges(topology, branch, next);
      held_ = std::move(next);
      close_level(before);
    }
    digest_ = hash_of(topology);
  }

  /// Throws `invalid_argument` for another number of values or ranks than the plan's.
  void check(std::uint64_t n, rank_t ranks) const {
    if (ranks != ranks_) raise<invalid_argument>({"a plan for ", ranks_, " ranks is used on ", ranks});
    if (n != n_) raise<invalid_argument>({"a plan for ", n_, " values is used for ", n});
  }
  [[nodiscard]] std::uint64_t dimension() const noexcept { return n_; }
  [[nodiscard]] rank_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::size_t levels() const noexcept { return levels_.size(); }
  /// The calls of a level, which run at the same time.
  [[nodiscard]] std::span<const call> calls(std::size_t level) const noexcept {
    const std::size_t begin = level == 0 ? 0 : levels_[level - 1].last_call;
    return std::span(calls_).subspan(begin, levels_[level].last_call - begin);
  }
  [[nodiscard]] const call& operator[](const part& p) const noexcept { return calls_[p.call]; }
  [[nodiscard]] std::span<const rank_t> chain(const call& c) const noexcept {
    return std::span(chains_).subspan(c.first, c.last - c.first);
  }
  /// Whether a rank is the root of the call, and whether it adds something to what it receives.
  [[nodiscard]] bool is_root(const part& p) const noexcept {
    return p.place + 1 == calls_[p.call].last - calls_[p.call].first;
  }
  [[nodiscard]] bool adds(const part& p) const noexcept { return !is_root(p) || calls_[p.call].root_holds; }
  /// The longest chain of a level: its messages go out in one round less.
  [[nodiscard]] std::size_t longest_chain(std::size_t level) const noexcept { return levels_[level].longest; }
  /// In which calls of a level a rank takes part, in the calls' order.
  [[nodiscard]] std::span<const part> parts(std::size_t level, rank_t rank) const noexcept {
    const std::size_t i = level * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
    return std::span(parts_).subspan(part_bounds_[i], part_bounds_[i + 1] - part_bounds_[i]);
  }
  /// What each rank owns in the end.
  [[nodiscard]] index_range operator[](rank_t rank) const noexcept { return held_[static_cast<std::size_t>(rank)]; }
  /// The same for equal trees and dimensions, and hardly ever for others.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

  friend bool operator==(const flex_plan&, const flex_plan&) = default;

  /// A call a line: its level, its subrange, and its chain.
  [[nodiscard]] std::string picture() const {
    std::string text;
    for (std::size_t level = 0; level < levels(); ++level) {
      for (const call& c : calls(level)) {
        text += sentence("level ", level, ": [", c.range.begin, ", ", c.range.end, ")");
        for (const rank_t r : chain(c)) text += sentence(r == chain(c).front() ? " " : " -> ", r);
        text += '\n';
      }
    }
    return text;
  }

 private:
  struct bounds {
    std::size_t last_call = 0;
    std::size_t longest = 0; // chain
    friend bool operator==(const bounds&, const bounds&) = default;
  };

  /// Divides [0, n) among the leaves of a branch: each gets its portion of what it holds, in the order of what they
  /// hold, so that it keeps as much as can be (figure 3b).
  void assign_ranges(const tree& topology, std::size_t branch, std::vector<index_range>& next) {
    const tree::node& self = topology.nodes()[branch];
    const std::uint64_t degree = self.children.size();
    std::vector<std::vector<rank_t>> holders; // of each child, in the order of what they hold, which is [0, n)
    std::vector<std::size_t> child_of(static_cast<std::size_t>(ranks_));
    for (const std::size_t c : self.children) {
      const auto leaves = topology.leaves_of(topology.nodes()[c]);
      for (const rank_t r : leaves) child_of[static_cast<std::size_t>(r)] = holders.size();
      auto& sorted = holders.emplace_back(leaves.begin(), leaves.end());
      std::erase_if(sorted, [&](rank_t r) { return held(r).size() == 0; });
      std::sort(sorted.begin(), sorted.end(), [&](rank_t a, rank_t b) { return held(a).begin < held(b).begin; });
    }

    const auto leaves = topology.leaves_of(self);
    std::vector<rank_t> sorted(leaves.begin(), leaves.end());
    std::sort(sorted.begin(), sorted.end(), [&](rank_t a, rank_t b) {
      return std::tuple(held(a).end, held(a).begin, a) < std::tuple(held(b).end, held(b).begin, b);
    });

    std::vector<std::size_t> at(holders.size()); // the holder of `progress` in each child
    std::uint64_t progress = 0, lengths = 0, rest = 0;
    for (const rank_t owner : sorted) {
      // floor(lengths / degree), where the lengths may be beyond 64 bits together.
      lengths += held(owner).size() / degree;
      rest += held(owner).size() % degree;
      const std::uint64_t end = lengths + rest / degree;
      next[static_cast<std::size_t>(owner)] = {progress, end};
      while (progress < end) {
        std::uint64_t until = end;
        for (std::size_t c = 0; c < holders.size(); ++c) {
          while (held(holders[c][at[c]]).end <= progress) ++at[c];
          until = std::min(until, held(holders[c][at[c]]).end);
        }
        add_call({progress, until}, owner, child_of[static_cast<std::size_t>(owner)], holders, at);
        progress = until;
      }
    }
  }

  void add_call(index_range range, rank_t owner, std::size_t child, const std::vector<std::vector<rank_t>>& holders,
                const std::vector<std::size_t>& at) {
    call added{.range = range, .first = chains_.size()};
    for (std::size_t c = child + 1; c < holders.size(); ++c) chains_.push_back(holders[c][at[c]]);
    for (std::size_t c = 0; c <= child; ++c) chains_.push_back(holders[c][at[c]]);
    added.root_holds = chains_.back() == owner;
    if (!added.root_holds) chains_.push_back(owner);
    added.last = chains_.size();
    calls_.push_back(added);
  }

  /// Notes the calls since `before` as a level, and who takes part in which.
  void close_level(std::size_t before) {
    std::size_t longest = 0;
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::vector<std::size_t> count(ranks);
    for (std::size_t i = before; i < calls_.size(); ++i) {
      const auto members = chain(calls_[i]);
      longest = std::max(longest, members.size());
      for (const rank_t r : members) ++count[static_cast<std::size_t>(r)];
    }
    levels_.push_back({calls_.size(), longest});
    if (part_bounds_.empty()) part_bounds_.push_back(0);
    std::vector<std::size_t> to(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      to[r] = part_bounds_.back();
      part_bounds_.push_back(to[r] + count[r]);
    }
    parts_.resize(part_bounds_.back());
    for (std::size_t i = before; i < calls_.size(); ++i) {
      const auto members = chain(calls_[i]);
      for (std::size_t place = 0; place < members.size(); ++place) {
        parts_[to[static_cast<std::size_t>(members[place])]++] = {i, place};
      }
    }
  }

  [[nodiscard]] index_range held(rank_t rank) const noexcept { return held_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] std::uint64_t hash_of(const tree& topology) const noexcept {
    std::uint64_t hash = 14695981039346656037U;
    const auto add = [&](std::uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    };
    add(n_);
    for (const tree::node& node : topology.nodes()) {
      add(node.parent);
      add(node.children.size());
    }
    for (const rank_t r : topology.leaves()) add(static_cast<std::uint64_t>(r));
    return hash;
  }

  std::uint64_t n_;
  rank_t ranks_;
  std::vector<index_range> held_; // by each rank, so far
  std::vector<call> calls_;
  std::vector<rank_t> chains_;
  std::vector<bounds> levels_;
  std::vector<part> parts_;
  std::vector<std::size_t> part_bounds_; // of each rank at each level
  std::uint64_t digest_ = 0;
};

} // namespace spar
