// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ownership of index ranges with about equally many entries: quantiles of the positions of all ranks' entries (Ok-Topk,
// section 3.1.1, which averages each rank's own quantiles; those fail where ranks differ).
#pragma once

#include <spar/collective/basic/bruck_allreduce.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar {

namespace detail {

/// The search for the quantiles between all blocks at once. Every rank counts its entries below 7 probes between the
/// nearest two positions known for each quantile; from the sums of these counts all ranks draw the same conclusions.
template <index_type Index, class Ownership>
class quantile_search {
  static constexpr std::uint64_t probes = 7;

  struct position {
    std::uint64_t index;
    std::uint64_t below; // entries of all ranks with smaller indices
  };
  struct quantile {
    std::uint64_t target; // entries that should be below
    position low;         // at most the target
    position high;        // at least the target
    [[nodiscard]] bool found() const {
      return high.index - low.index <= 1 || low.below == target || high.below == target;
    }
    [[nodiscard]] position nearest() const { return target - low.below <= high.below - target ? low : high; }
    [[nodiscard]] std::uint64_t probe(std::uint64_t i) const {
      const std::uint64_t width = high.index - low.index;
      return low.index + width / (probes + 1) * (i + 1) + width % (probes + 1) * (i + 1) / (probes + 1);
    }
  };

 public:
  /// `due`: what the blocks should be to each other; `totals`: entries of all ranks in each of the blocks with these
  /// bounds.
  quantile_search(Ownership due, std::span<const std::uint64_t> bounds, std::span<const std::uint64_t> totals,
                  pool& memory)
      : due_(due), quantiles_(memory, totals.size()), counts_(memory, probes * (totals.size() - 1)) {
    due_.n = 0;
    for (const std::uint64_t total : totals) due_.n += total;
    std::size_t block = 0;
    position begin{bounds[0], 0};
    for (std::size_t q = 1; q < totals.size(); ++q) {
      const std::uint64_t target = due_.begin(static_cast<rank_t>(q));
      for (; begin.below + totals[block] < target; ++block) begin = {bounds[block + 1], begin.below + totals[block]};
      quantiles_.emplace_back(quantile{target, begin, {bounds[block + 1], begin.below + totals[block]}});
    }
  }

  /// The blocks that the nearest positions would make miss what is due by about 3 % or P entries at most, or have no
  /// more than `most` in the mean; or nothing is left to refine.
  [[nodiscard]] bool good(std::uint64_t most) const {
    const std::uint64_t mean = due_.n / (quantiles_.size() + 1);
    std::uint64_t below = 0;
    bool found = true, fits = true;
    for (std::size_t q = 0; q <= quantiles_.size(); ++q) {
      const std::uint64_t next = q < quantiles_.size() ? quantiles_[q].nearest().below : due_.n;
      const std::uint64_t its = due_.of_mean(mean, static_cast<rank_t>(q));
      const std::uint64_t slack = std::max<std::uint64_t>(its / 32, quantiles_.size() + 1);
      fits = fits && next - below <= std::min(due_.of_mean(most, static_cast<rank_t>(q)), its + slack);
      found = found && (q == quantiles_.size() || quantiles_[q].found());
      below = next;
    }
    return found || fits;
  }

  /// This rank's share of the counters.
  std::span<std::uint64_t> count(std::span<const Index> mine) {
    std::size_t c = 0;
    for (const quantile& q : quantiles_) {
      for (std::uint64_t i = 0; i < probes; ++i) counts_.data()[c++] = entries_below(mine, q.probe(i));
    }
    return counts_.span();
  }
  /// The counters hold the sums over all ranks.
  void narrow() {
    const std::uint64_t* count = counts_.data();
    for (quantile& q : quantiles_) {
      const quantile before = q;
      std::uint64_t i = 0;
      for (; i < probes && count[i] <= q.target; ++i) q.low = {before.probe(i), count[i]};
      if (i < probes) q.high = {before.probe(i), count[i]};
      count += probes;
    }
  }
  void write(std::span<std::uint64_t> bounds) const {
    for (std::size_t q = 0; q < quantiles_.size(); ++q) bounds[q + 1] = quantiles_[q].nearest().index;
    if (!spar::detail::ascends(bounds)) {
      raise<corrupt_message>({"counts of entries that arrived contradict each other"});
    }
  }

  static std::uint64_t entries_below(std::span<const Index> sorted, std::uint64_t index) {
    return static_cast<std::uint64_t>(std::lower_bound(sorted.begin(), sorted.end(), index) - sorted.begin());
  }

 private:
  Ownership due_; // of all ranks' entries
  fixed_vector<quantile> quantiles_;
  buffer<std::uint64_t> counts_;
};

} // namespace detail

/// Moves `bounds` (of `due.count()` blocks of [0, n), the same on every rank) where `anew` says so or a block would get
/// more than `most` entries, so that they get about as many as `due` says: for P blocks of owners `uniform_ownership{n,
/// P}`, all alike; where blocks are to differ, `most` is for the mean one. `mine`: the ascending indices of this rank's
/// entries. Bounds that are none of [0, n), like zeros, are replaced.
///
/// For b blocks an allreduce of b counters, and one of 7 (b - 1) for each refinement, which leaves an eighth of the
/// distance in which a bound is looked for: 2 ceil(log2 P) messages a rank each time, of less than 4 b and 28 b words
/// (of 4 bytes) in all. Returns the number of refinements.
template <transport Net, index_type Index, class Ownership>
task<std::uint64_t> balance_ownership(channel<Net> net, std::span<const Index> mine, Ownership due,
                                      std::span<std::uint64_t> bounds, bool anew, std::uint64_t most) {
  const rank_t blocks = due.count();
  if (bounds.front() != 0 || bounds.back() != due.n || !spar::detail::ascends(bounds)) {
    for (rank_t b = 0; b <= blocks; ++b) bounds[static_cast<std::size_t>(b)] = due.begin(b);
    anew = true;
  }
  const auto counters = net.template with_element<std::uint64_t>();
  const bruck_allreduce allreduce;
  buffer<std::uint64_t> totals(net.memory(), bounds.size() - 1);
  using search = detail::quantile_search<Index, Ownership>;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    totals.data()[b] = search::entries_below(mine, bounds[b + 1]) - search::entries_below(mine, bounds[b]);
  }
  co_await allreduce(counters, totals.span());
  bool too_many = false;
  for (rank_t b = 0; b < blocks; ++b) {
    too_many = too_many || totals.data()[static_cast<std::size_t>(b)] > due.of_mean(most, b);
  }
  std::uint64_t refinements = 0;
  if (!anew && !too_many) co_return refinements;

  search quantiles(due, bounds, totals.span(), net.memory());
  for (; !quantiles.good(most); ++refinements) {
    co_await allreduce(counters, quantiles.count(mine));
    quantiles.narrow();
  }
  quantiles.write(bounds);
  co_return refinements;
}

} // namespace spar
