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
#include <numeric>
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
/// together they are the ring reduce-scatter of equation 2; where one has a much slower link than the others, children
/// with slower ones come first in every chain that they do not end. A root that holds nothing of the subrange itself
/// gets it from the holder in its own child, which stands before it.
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
  /// Calls of a rank, as their root, on a level.
  struct call_counts {
    double mean = 0;
    std::size_t most = 0;
  };

  flex_plan(const tree& topology, std::uint64_t n) : flex_plan(topology, n, false) {}

  /// The plan with which each branch but the root reduces everything to its first rank, its master: masters alone do
  /// the allreduce above (Jia et al. 2018; FlexReduce, section II-A).
  static flex_plan hierarchical(const tree& topology, std::uint64_t n) { return {topology, n, true}; }

  /// The subrange and the chain of a call, as `calls` and `chain` of a plan give them.
  struct given_call {
    index_range range;
    std::vector<rank_t> chain;
  };
  /// The plan with these calls, by level. Throws `invalid_argument`, which names the call, where they do not reduce
  /// every rank's values to exactly one owner each.
  static flex_plan of_calls(std::uint64_t n, rank_t ranks, const std::vector<std::vector<given_call>>& levels) {
    if (ranks < 1) raise<invalid_argument>({"a plan is for ", ranks, " ranks"});
    flex_plan plan(n, ranks);
    for (const auto& level : levels) {
      for (const given_call& c : level) plan.add_given(c);
      plan.take_over_ranges(plan.close_level());
    }
    plan.check_owners();
    plan.digest_ = plan.hash();
    return plan;
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
  /// The same for equal plans, and hardly ever for others.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  [[nodiscard]] call_counts counts() const {
    call_counts all;
    std::vector<std::size_t> of_rank(static_cast<std::size_t>(ranks_));
    for (std::size_t level = 0; level < levels(); ++level) {
      of_rank.assign(of_rank.size(), 0);
      for (const call& c : calls(level)) {
        all.most = std::max(all.most, ++of_rank[static_cast<std::size_t>(chain(c).back())]);
      }
    }
    if (levels() > 0) all.mean = static_cast<double>(calls_.size()) / static_cast<double>(levels() * of_rank.size());
    return all;
  }

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

  flex_plan(std::uint64_t n, rank_t ranks) : n_(n), ranks_(ranks), held_(static_cast<std::size_t>(ranks), {0, n}) {}

  flex_plan(const tree& topology, std::uint64_t n, bool to_masters) : flex_plan(n, topology.ranks()) {
    for (std::size_t level = 0; level < topology.levels(); ++level) {
      std::vector<index_range> next = held_;
      for (const std::size_t branch : topology.branches(level)) {
        assign_ranges(topology, branch, to_masters && branch != 0, next);
      }
      held_ = std::move(next);
      close_level();
    }
    digest_ = hash();
  }

  /// Divides [0, n) among the leaves of a branch: each gets its portion of what it holds, in the order of what they
  /// hold, so that it keeps as much as can be (figure 3b).
  void assign_ranges(const tree& topology, std::size_t branch, bool to_master, std::vector<index_range>& next) {
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
    const std::vector<std::size_t> by_speed = slow_first(topology, self);

    const auto leaves = topology.leaves_of(self);
    std::vector<rank_t> sorted(leaves.begin(), leaves.end());
    std::sort(sorted.begin(), sorted.end(), [&](rank_t a, rank_t b) {
      return std::tuple(held(a).end, held(a).begin, a) < std::tuple(held(b).end, held(b).begin, b);
    });
    const auto master = std::find_if(leaves.begin(), leaves.end(), [&](rank_t r) { return held(r).size() > 0; });

    std::vector<std::size_t> at(holders.size()); // the holder of `progress` in each child
    std::uint64_t progress = 0, lengths = 0, rest = 0;
    for (const rank_t owner : sorted) {
      // floor(lengths / degree), where the lengths may be beyond 64 bits together.
      lengths += held(owner).size() / degree;
      rest += held(owner).size() % degree;
      const bool is_master = master != leaves.end() && owner == *master;
      const std::uint64_t end = !to_master ? lengths + rest / degree : is_master ? n_ : progress;
      next[static_cast<std::size_t>(owner)] = progress < end ? index_range{progress, end} : index_range{0, 0};
      while (progress < end) {
        std::uint64_t until = end;
        for (std::size_t c = 0; c < holders.size(); ++c) {
          while (held(holders[c][at[c]]).end <= progress) ++at[c];
          until = std::min(until, held(holders[c][at[c]]).end);
        }
        add_call({progress, until}, owner, child_of[static_cast<std::size_t>(owner)], holders, at, by_speed);
        progress = until;
      }
    }
  }

  /// The children of a branch, those with slower links first, where one link has at most a quarter of the bandwidth of
  /// any other; else nothing. Chains that all begin with the same child are a pipeline behind it, and the others' links
  /// carry up to d/(d-1) of the ring's values in each half: no loss only where all wait for the slow link anyhow.
  static std::vector<std::size_t> slow_first(const tree& topology, const tree::node& branch) {
    const auto bandwidth = [&](std::size_t c) { return topology.nodes()[branch.children[c]].up.bandwidth; };
    std::vector<std::size_t> order(branch.children.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return bandwidth(a) < bandwidth(b); });
    if (order.size() < 2 || 4 * bandwidth(order[0]) > bandwidth(order[1])) order.clear();
    return order;
  }

  void add_call(index_range range, rank_t owner, std::size_t child, const std::vector<std::vector<rank_t>>& holders,
                const std::vector<std::size_t>& at, const std::vector<std::size_t>& by_speed) {
    call added{.range = range, .first = chains_.size()};
    const auto add = [&](std::size_t c) { chains_.push_back(holders[c][at[c]]); };
    if (by_speed.empty()) {
      for (std::size_t c = child + 1; c < holders.size(); ++c) add(c);
      for (std::size_t c = 0; c < child; ++c) add(c);
    } else {
      for (const std::size_t c : by_speed) {
        if (c != child) add(c);
      }
    }
    add(child);
    added.root_holds = chains_.back() == owner;
    if (!added.root_holds) chains_.push_back(owner);
    added.last = chains_.size();
    calls_.push_back(added);
  }

  void add_given(const given_call& given) {
    const auto what = [&] { return sentence("call ", calls_.size(), " of a plan"); };
    const auto& [range, chain] = given;
    if (range.begin >= range.end || range.end > n_) {
      raise<invalid_argument>({what(), " is for [", range.begin, ", ", range.end, ") of ", n_, " values"});
    }
    if (chain.empty()) raise<invalid_argument>({what(), " has no ranks"});
    std::vector<rank_t> sorted(chain);
    std::sort(sorted.begin(), sorted.end());
    if (sorted.front() < 0 || sorted.back() >= ranks_) {
      raise<invalid_argument>(
          {what(), " has rank ", sorted.front() < 0 ? sorted.front() : sorted.back(), " of ", ranks_});
    }
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) raise<invalid_argument>({what(), " has rank ", *twice, " twice"});
    const index_range root = held(chain.back());
    const bool root_holds = root.begin <= range.begin && range.end <= root.end;
    if (!root_holds && chain.size() == 1) {
      raise<invalid_argument>({what(), " is of rank ", chain.back(), " alone, which does not have these values"});
    }
    if (!root_holds && std::max(root.begin, range.begin) < std::min(root.end, range.end)) {
      raise<invalid_argument>(
          {what(), " has the root ", chain.back(), ", which has some of these values and not others"});
    }
    calls_.push_back({range, chains_.size(), chains_.size() + chain.size(), root_holds});
    chains_.insert(chains_.end(), chain.begin(), chain.end());
  }

  /// What ranks hold after the calls of a level since `first`; those in none of them keep what they have.
  void take_over_ranges(std::size_t first) {
    for (rank_t r = 0; r < ranks_; ++r) {
      const auto mine = parts(levels() - 1, r);
      if (mine.empty()) continue;
      index_range owned{0, 0};
      std::uint64_t given = held(r).begin;
      for (const part& p : mine) {
        const index_range range = (*this)[p].range;
        const auto what = [&] { return sentence("call ", p.call, " (", p.call - first, " of its level) of a plan"); };
        if (adds(p)) {
          if (range.begin != given) {
            raise<invalid_argument>({what(), " begins at ", range.begin, ", where rank ", r, " has values from ", given,
                                     " on that are in no call, or in two"});
          }
          given = range.end;
        }
        if (!is_root(p)) continue;
        if (owned.size() > 0 && owned.end != range.begin) {
          raise<invalid_argument>(
              {what(), " leaves a gap in what rank ", r, " owns: ", owned.end, " to ", range.begin});
        }
        owned = {owned.size() > 0 ? owned.begin : range.begin, range.end};
      }
      if (given != held(r).end) {
        raise<invalid_argument>({"level ", levels() - 1, " of a plan leaves values of rank ", r, " from ", given,
                                 " on in no call, or in two"});
      }
      held_[static_cast<std::size_t>(r)] = owned;
    }
  }

  void check_owners() const {
    std::vector<index_range> owned(held_);
    std::sort(owned.begin(), owned.end(), [](const index_range& a, const index_range& b) {
      return std::tuple(a.begin, a.end) < std::tuple(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (const index_range& range : owned) {
      if (range.size() == 0) continue;
      if (range.begin != covered) {
        raise<invalid_argument>({"the owners of a plan do not have each of ", n_, " values once, from ", covered});
      }
      covered = range.end;
    }
    if (covered != n_) raise<invalid_argument>({"the owners of a plan have ", covered, " of ", n_, " values"});
  }

  /// Notes the calls since the last level as one, and who takes part in which; returns the first.
  std::size_t close_level() {
    const std::size_t before = levels_.empty() ? 0 : levels_.back().last_call;
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
    return before;
  }

  [[nodiscard]] index_range held(rank_t rank) const noexcept { return held_[static_cast<std::size_t>(rank)]; }

  /// Of all that ranks do.
  [[nodiscard]] std::uint64_t hash() const noexcept {
    std::uint64_t hash = 14695981039346656037U;
    const auto add = [&](std::uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    };
    add(n_);
    add(static_cast<std::uint64_t>(ranks_));
    for (const bounds& level : levels_) add(level.last_call);
    for (const call& c : calls_) add(c.range.begin), add(c.range.end), add(c.last);
    for (const rank_t r : chains_) add(static_cast<std::uint64_t>(r));
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
