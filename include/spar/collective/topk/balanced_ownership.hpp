// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ownership of index ranges with about equally many entries, by the quantiles of the positions of all ranks' entries.
// (Ok-Topk, section 3.1.1, averages each rank's own quantiles instead, which fails if ranks differ.)
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

/// Searches for the quantiles between all blocks at once. Every rank counts its entries below 7 probes between the two
/// nearest known positions of each quantile; from the sums of these counts all ranks draw the same conclusions.
template <index_type Index, class Ownership>
class quantile_search {
  static constexpr std::uint64_t probes = 7;

  struct position {
    std::uint64_t index;
    std::uint64_t below; // number of entries of all ranks with smaller indices
  };
  struct quantile {
    std::uint64_t target; // number of entries that should be below the quantile
    position low;         // has at most `target` entries below
    position high;        // has at least `target` entries below
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
  /// `target` gives the sizes of the blocks relative to each other, `totals` the number of entries of all ranks in each
  /// of the blocks with these bounds.
  quantile_search(Ownership target, std::span<const std::uint64_t> bounds, std::span<const std::uint64_t> totals,
                  pool& memory)
      : target_(target), quantiles_(memory, totals.size()), counts_(memory, probes * (totals.size() - 1)) {
    target_.n = 0;
    for (const std::uint64_t total : totals) target_.n += total;
    std::size_t block = 0;
    position begin{bounds[0], 0};
    for (std::size_t q = 1; q < totals.size(); ++q) {
      const std::uint64_t goal = target_.begin(static_cast<rank_t>(q));
      for (; begin.below + totals[block] < goal; ++block) begin = {bounds[block + 1], begin.below + totals[block]};
      quantiles_.emplace_back(quantile{goal, begin, {bounds[block + 1], begin.below + totals[block]}});
    }
  }

  /// Whether the search may end: by the nearest known positions, no block would have more than `most` entries (a number
  /// for the average block) or exceed its target by more than about 3 % or P entries; or nothing is left to refine.
  [[nodiscard]] bool good(std::uint64_t most) const {
    const std::uint64_t mean = target_.n / (quantiles_.size() + 1);
    std::uint64_t below = 0;
    bool found = true, fits = true;
    for (std::size_t q = 0; q <= quantiles_.size(); ++q) {
      const std::uint64_t next = q < quantiles_.size() ? quantiles_[q].nearest().below : target_.n;
      const std::uint64_t its = target_.of_mean(mean, static_cast<rank_t>(q));
      const std::uint64_t slack = std::max<std::uint64_t>(its / 32, quantiles_.size() + 1);
      fits = fits && next - below <= std::min(target_.of_mean(most, static_cast<rank_t>(q)), its + slack);
      found = found && (q == quantiles_.size() || quantiles_[q].found());
      below = next;
    }
    return found || fits;
  }

  /// This rank's counts, which are then summed over all ranks.
  std::span<std::uint64_t> count(std::span<const Index> mine) {
    std::size_t c = 0;
    for (const quantile& q : quantiles_) {
      for (std::uint64_t i = 0; i < probes; ++i) counts_.data()[c++] = entries_below(mine, q.probe(i));
    }
    return counts_.span();
  }
  /// Narrows the search, once the counters hold the sums over all ranks.
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
      raise<corrupt_message>({"the counts of entries that arrived are inconsistent"});
    }
  }

  static std::uint64_t entries_below(std::span<const Index> sorted, std::uint64_t index) {
    return static_cast<std::uint64_t>(std::lower_bound(sorted.begin(), sorted.end(), index) - sorted.begin());
  }

 private:
  Ownership target_; // the sizes of the blocks, in entries of all ranks
  fixed_vector<quantile> quantiles_;
  buffer<std::uint64_t> counts_;
};

} // namespace detail

/// `bounds` are the bounds of `target.count()` blocks of [0, n), equal on every rank. Moves the bounds if `anew` is set
/// or a block would get more than `most` entries, so that the blocks get about as many entries as `target` says: all
/// equally many for P blocks of owners `uniform_ownership{n, P}`. If blocks should differ, `most` is for the average
/// block. `mine` holds the ascending indices of this rank's entries. Invalid bounds, such as zeros, are replaced.
///
/// For b blocks this takes an allreduce of b counters, and for each refinement one of 7 (b - 1) counters, which leaves
/// an eighth of the distance in which a bound is searched. Each allreduce takes 2 ceil(log2 P) messages per rank, of
/// less than 4 b (the first one) or 28 b (a refinement) words of 4 bytes in all. Returns the number of refinements.
template <transport Net, index_type Index, class Ownership>
task<std::uint64_t> balance_ownership(channel<Net> net, std::span<const Index> mine, Ownership target,
                                      std::span<std::uint64_t> bounds, bool anew, std::uint64_t most) {
  const rank_t blocks = target.count();
  if (bounds.front() != 0 || bounds.back() != target.n || !spar::detail::ascends(bounds)) {
    for (rank_t b = 0; b <= blocks; ++b) bounds[static_cast<std::size_t>(b)] = target.begin(b);
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
    too_many = too_many || totals.data()[static_cast<std::size_t>(b)] > target.of_mean(most, b);
  }
  std::uint64_t refinements = 0;
  if (!anew && !too_many) co_return refinements;

  search quantiles(target, bounds, totals.span(), net.memory());
  for (; !quantiles.good(most); ++refinements) {
    co_await allreduce(counters, quantiles.count(mine));
    quantiles.narrow();
  }
  quantiles.write(bounds);
  co_return refinements;
}

} // namespace spar
