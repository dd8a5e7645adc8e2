// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plan of FlexReduce: an uneven reduce-scatter and an allgather over a tree (FlexReduce_plan in FlexReduce, section
// III-B, figure 3).
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

namespace spar::inline v0_1 {

/// What each rank does in an allreduce of n values over a tree. A plan depends only on the tree and n, so the plans of
/// all ranks are equal. A plan is built once, serves any number of allreduces, and can be copied.
///
/// A *call* reduces one subrange of the n values along a chain of ranks, with one rank from each child of a branch. The
/// last rank of a chain is its root, which owns the subrange after the call. A chain whose root belongs to child c of
/// the branch begins at child c + 1, visits the children in a circle and ends at child c. All chains of a branch
/// together form a ring reduce-scatter (FlexReduce, equation 2).
///
/// The chains differ from a ring in two cases:
/// - If the link of one child has at most a quarter of the bandwidth of any other child's link, each chain visits the
///   children in ascending order of bandwidth, with child c last.
/// - If the root holds no values of the subrange before the call, another rank of child c holds these values and comes
///   just before the root in the chain.
class flex_plan {
 public:
  /// A reduce or broadcast of a subrange along one chain.
  struct call {
    index_range range;      ///< the subrange of the values
    std::size_t first = 0;  ///< the chain is the part [first, last) of the array of all chains
    std::size_t last = 0;   ///< the end of the chain in the array of all chains
    bool root_holds = true; ///< whether the root adds its own values of the range
    friend bool operator==(const call&, const call&) = default;
  };
  /// The place of a rank in the chain of a call.
  struct part {
    std::size_t call = 0;  ///< index among the calls of all levels
    std::size_t place = 0; ///< position in the chain, from 0
    friend bool operator==(const part&, const part&) = default;
  };
  /// The number of calls on one level that have the same root: its mean and its maximum over all ranks and levels.
  struct call_counts {
    double mean = 0;      ///< the mean number of calls
    std::size_t most = 0; ///< the largest number of calls
  };

  /// The plan of FlexReduce (section III-B) for n values over the tree `topology`.
  flex_plan(const tree& topology, std::uint64_t n) : flex_plan(topology, n, false) {}

  /// The hierarchical plan for n values over the tree `topology`: each branch except the root reduces all values to its
  /// first rank, its master, and only masters take part in the calls of the level above (Jia et al. 2018; FlexReduce,
  /// section II-A).
  static flex_plan hierarchical(const tree& topology, std::uint64_t n) { return {topology, n, true}; }

  /// The subrange and the chain of ranks of a call, as the functions `calls` and `chain` of a plan return them.
  struct call_spec {
    index_range range;         ///< the subrange of the values
    std::vector<rank_t> chain; ///< the ranks of the chain; the last one is the root
  };
  /// Builds a plan for n values and `ranks` ranks. `levels` contains the calls of each level, in the order in which the
  /// levels of the reduce-scatter run. Within a level, the calls of each rank must be in ascending order of their
  /// ranges, and the ranges of the calls with the same root must be adjacent. Throws `invalid_argument` if `ranks` is
  /// below 1, if a call is malformed or violates these rules, or if a value of any rank is not reduced to exactly one
  /// owner. The message names the call, the rank or the value at fault.
  static flex_plan of_calls(std::uint64_t n, rank_t ranks, const std::vector<std::vector<call_spec>>& levels) {
    if (ranks < 1) raise<invalid_argument>({"a plan is for ", ranks, " ranks; expected at least 1"});
    flex_plan plan(n, ranks);
    for (const auto& level : levels) {
      for (const call_spec& c : level) plan.add_given(c);
      plan.take_over_ranges(plan.close_level());
    }
    plan.check_owners();
    plan.digest_ = plan.hash();
    return plan;
  }

  /// Throws `invalid_argument` unless this plan is for `n` values and `ranks` ranks.
  void check_shape(std::uint64_t n, rank_t ranks) const {
    if (ranks != ranks_)
      raise<invalid_argument>({"a plan is for ", ranks_, " ranks, but the number of ranks is ", ranks});
    if (n != n_) raise<invalid_argument>({"a plan is for ", n_, " values, but the dimension is ", n});
  }
  /// The number n of values for which the plan is.
  [[nodiscard]] std::uint64_t dimension() const noexcept { return n_; }
  /// The number of ranks for which the plan is.
  [[nodiscard]] rank_t ranks() const noexcept { return ranks_; }
  /// The number of levels.
  [[nodiscard]] std::size_t levels() const noexcept { return levels_.size(); }
  /// The calls of a level, all of which run at the same time. Level 0 is the first level of the reduce-scatter.
  [[nodiscard]] std::span<const call> calls(std::size_t level) const noexcept {
    const std::size_t begin = level == 0 ? 0 : levels_[level - 1].last_call;
    return std::span(calls_).subspan(begin, levels_[level].last_call - begin);
  }
  /// The call to which the place `p` belongs.
  [[nodiscard]] const call& operator[](const part& p) const noexcept { return calls_[p.call]; }
  /// The ranks of the chain of the call `c`; the last one is the root.
  [[nodiscard]] std::span<const rank_t> chain(const call& c) const noexcept {
    return std::span(chains_).subspan(c.first, c.last - c.first);
  }
  /// Whether `p` is the last place of its chain, which is the place of the root.
  [[nodiscard]] bool is_root(const part& p) const noexcept {
    return p.place + 1 == calls_[p.call].last - calls_[p.call].first;
  }
  /// Whether the rank at place `p` of a chain adds its own values to the sum. All ranks do, except a root that holds no
  /// values of the call's range.
  [[nodiscard]] bool adds(const part& p) const noexcept { return !is_root(p) || calls_[p.call].root_holds; }
  /// Number of ranks in the longest chain of a level. With m ranks in its longest chain, a level takes m - 1 rounds.
  [[nodiscard]] std::size_t longest_chain(std::size_t level) const noexcept { return levels_[level].longest; }
  /// The calls of a level in which `rank` takes part, in the order of `calls(level)`.
  [[nodiscard]] std::span<const part> parts(std::size_t level, rank_t rank) const noexcept {
    const std::size_t i = level * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
    return std::span(parts_).subspan(part_bounds_[i], part_bounds_[i + 1] - part_bounds_[i]);
  }
  /// The range of values that `rank` owns after the last level, that is, after the reduce-scatter.
  [[nodiscard]] index_range operator[](rank_t rank) const noexcept { return held_[static_cast<std::size_t>(rank)]; }
  /// A hash of the plan: equal plans have the same hash, and different plans almost never do.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  /// For each rank and level, counts the calls whose root is this rank; returns the mean and the maximum of the counts.
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

  /// The plan as human-readable text, one call per line: its level, its subrange and its chain of ranks.
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
    std::size_t longest = 0; // number of ranks in the longest chain
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

  /// Divides [0, n) among the leaves of a branch and stores the new range of each leaf in `next`. The size of a leaf's
  /// new range is the size of its range in `held_` divided by the number of children, up to rounding. The leaves get
  /// new ranges in the order of their ranges in `held_`, so that each leaf keeps as many of its values as possible
  /// (figure 3b). With `to_master`, the first leaf that holds values gets the whole of [0, n).
  void assign_ranges(const tree& topology, std::size_t branch, bool to_master, std::vector<index_range>& next) {
    const tree::node& self = topology.nodes()[branch];
    const std::uint64_t degree = self.children.size();
    std::vector<std::vector<rank_t>> holders; // per child, its ranks by ascending range; the ranges cover [0, n)
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

    std::vector<std::size_t> at(holders.size()); // per child c, index in holders[c] of the holder of value `progress`
    std::uint64_t progress = 0, lengths = 0, rest = 0;
    for (const rank_t owner : sorted) {
      // Computes `end` as floor(sum of the sizes / degree) from quotients and remainders: the sum may exceed 64 bits.
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

  /// The children of a branch, in ascending order of the bandwidth of their links, if the slowest link has at most a
  /// quarter of the bandwidth of any other; otherwise an empty vector. If all chains of a branch with d children begin
  /// with the slowest child, the chains form a pipeline instead of a ring. In each half of the allreduce, every link
  /// except the slowest transfers up to d/(d-1) times as many values in the pipeline as in the ring. The additional
  /// values cost no time only if all ranks wait for the slowest link anyway.
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

  void add_given(const call_spec& given) {
    const auto what = [&] { return sentence("call ", calls_.size(), " of a plan"); };
    const auto& [range, chain] = given;
    if (range.begin >= range.end || range.end > n_) {
      raise<invalid_argument>(
          {what(), " has the range [", range.begin, ", ", range.end, "); expected a non-empty part of [0, ", n_, ")"});
    }
    if (chain.empty()) raise<invalid_argument>({what(), " has no ranks in its chain; expected at least 1"});
    std::vector<rank_t> sorted(chain);
    std::sort(sorted.begin(), sorted.end());
    if (sorted.front() < 0 || sorted.back() >= ranks_) {
      raise<invalid_argument>({what(), " has rank ", sorted.front() < 0 ? sorted.front() : sorted.back(),
                               " in its chain; expected ranks from 0 to ", ranks_ - 1});
    }
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end())
      raise<invalid_argument>({what(), " has rank ", *twice, " twice in its chain; expected each rank at most once"});
    const index_range root = held(chain.back());
    const bool root_holds = root.begin <= range.begin && range.end <= root.end;
    if (!root_holds && chain.size() == 1) {
      raise<invalid_argument>({what(), " has the range [", range.begin, ", ", range.end, ") and only rank ",
                               chain.back(), " in its chain, but rank ", chain.back(), " holds the values [",
                               root.begin, ", ", root.end, "); expected a rank that holds all values of the range"});
    }
    if (!root_holds && std::max(root.begin, range.begin) < std::min(root.end, range.end)) {
      raise<invalid_argument>({what(), " has the range [", range.begin, ", ", range.end, "), but its root, rank ",
                               chain.back(), ", holds the values [", root.begin, ", ", root.end,
                               "); expected all values of the range or none"});
    }
    calls_.push_back({range, chains_.size(), chains_.size() + chain.size(), root_holds});
    chains_.insert(chains_.end(), chain.begin(), chain.end());
  }

  /// Sets `held_` to the ranges that ranks hold after the level that was added last, whose calls begin at index
  /// `first`. A rank in no call of the level keeps its range. For each other rank, throws `invalid_argument` unless
  /// each value that the rank holds is in exactly one of the rank's calls on the level, and the rank becomes the owner
  /// of at most one contiguous range.
  void take_over_ranges(std::size_t first) {
    for (rank_t r = 0; r < ranks_; ++r) {
      const auto mine = parts(levels() - 1, r);
      if (mine.empty()) continue;
      index_range owned{0, 0};
      std::uint64_t given = held(r).begin;
      for (const part& p : mine) {
        const index_range range = (*this)[p].range;
        const auto what = [&] {
          return sentence("call ", p.call, " of a plan (call ", p.call - first, " of its level)");
        };
        if (adds(p)) {
          if (range.begin != given) {
            raise<invalid_argument>({what(), " begins at value ", range.begin, ", but rank ", r,
                                     " needs a call that begins at value ", given,
                                     "; each value must be in exactly one of the rank's calls on the level"});
          }
          given = range.end;
        }
        if (!is_root(p)) continue;
        if (owned.size() > 0 && owned.end != range.begin) {
          raise<invalid_argument>({what(), " begins at value ", range.begin,
                                   ", but the previous call whose root is rank ", r, " ends at value ", owned.end,
                                   "; the ranges of a root's calls on a level must be adjacent"});
        }
        owned = {owned.size() > 0 ? owned.begin : range.begin, range.end};
      }
      if (given != held(r).end) {
        raise<invalid_argument>({"on level ", levels() - 1, " of a plan, the calls of rank ", r, " end at ", given,
                                 ", but the values that the rank holds end at ", held(r).end,
                                 "; each value must be in exactly one of the rank's calls on the level"});
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
        raise<invalid_argument>(
            {"each of the ", n_,
             " values of a plan must have exactly one owner, but owned ranges overlap or leave a gap at value ",
             covered});
      }
      covered = range.end;
    }
    if (covered != n_)
      raise<invalid_argument>({"the ranks of a plan own only the first ", covered, " of ", n_,
                               " values; expected an owner for each value"});
  }

  /// Makes a new level of all calls that were added since the previous level ended, and records in which of these calls
  /// each rank takes part. Returns the index of the first call of the new level.
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

  /// A hash of n, the number of ranks, and all levels, calls and chains.
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
  std::vector<index_range> held_; // the range that each rank holds after the levels built so far
  std::vector<call> calls_;
  std::vector<rank_t> chains_;
  std::vector<bounds> levels_;
  std::vector<part> parts_;
  std::vector<std::size_t> part_bounds_; // where the parts of each rank on each level begin in `parts_`
  std::uint64_t digest_ = 0;
};

} // namespace spar::inline v0_1
