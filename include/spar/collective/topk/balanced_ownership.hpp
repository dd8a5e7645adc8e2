// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Divides the indices into blocks with about equally many entries: the bounds of the blocks are quantiles of the
// indices of all ranks' entries. In Ok-Topk (section 3.1.1), each rank instead computes quantiles of its own entries,
// and the ranks average these quantiles, which gives uneven blocks if the ranks' entries are distributed differently.
#pragma once

#include <spar/collective/basic/bruck_allreduce.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

namespace detail {

/// Searches for all quantiles, the bounds between blocks, at the same time. For each quantile, the search knows two
/// indices between which the quantile lies. In each round, every rank counts its entries below each of 7 probes
/// (indices) between these two indices. An allreduce sums the counts, so all ranks narrow the search in the same way.
template <index_type Index, class Ownership>
class quantile_search {
  static constexpr std::uint64_t probes = 7;

  struct position {
    std::uint64_t index;
    std::uint64_t below; // number of all ranks' entries with indices below `index`
  };
  struct quantile {
    std::uint64_t target; // number of all ranks' entries that should be below the quantile
    position low;         // at most `target` entries are below this position
    position high;        // at least `target` entries are below this position
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
  /// `target` gives the wanted sizes of the blocks relative to each other. totals[b] is the number of all ranks'
  /// entries in the current block b, [bounds[b], bounds[b + 1]).
  quantile_search(Ownership target, std::span<const std::uint64_t> bounds, std::span<const std::uint64_t> totals,
                  pool& memory)
      : target_(target), quantiles_(memory, totals.size()), probes_(memory, probes * (totals.size() - 1)),
        counts_(memory, probes * (totals.size() - 1)) {
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

  /// Returns whether the search may end: either no bound can be refined further, or no block exceeds its limit. To
  /// compare blocks with their limits, this function places each bound at `low` or `high`, whichever is nearer to the
  /// target. A block that should get t entries has the limit t + max(t / 32, number of blocks), but at most `most`. The
  /// value `most` is for a block of average size and is scaled for each block.
  [[nodiscard]] bool may_end(std::uint64_t most) const {
    const std::uint64_t mean = target_.n / (quantiles_.size() + 1);
    std::uint64_t below = 0;
    bool found = true, fits = true;
    for (std::size_t q = 0; q <= quantiles_.size(); ++q) {
      const std::uint64_t next = q < quantiles_.size() ? quantiles_[q].nearest().below : target_.n;
      const std::uint64_t wanted = target_.of_mean(mean, static_cast<rank_t>(q));
      const std::uint64_t slack = std::max<std::uint64_t>(wanted / 32, quantiles_.size() + 1);
      fits = fits && next - below <= std::min(target_.of_mean(most, static_cast<rank_t>(q)), wanted + slack);
      found = found && (q == quantiles_.size() || quantiles_[q].found());
      below = next;
    }
    return found || fits;
  }

  /// Returns, for each probe, the number of this rank's entries below the probe. The caller sums these counts over all
  /// ranks in place, and then calls `narrow`.
  template <transport Net>
  answer<Net, std::span<std::uint64_t>> count(channel<Net> net, std::span<const Index> mine) {
    std::size_t p = 0;
    for (const quantile& q : quantiles_) {
      for (std::uint64_t i = 0; i < probes; ++i) probes_.data()[p++] = q.probe(i);
    }
    return after(net, net.work().count_below(mine, std::as_const(probes_).span(), counts_.span()),
                 [this] { return counts_.span(); });
  }
  /// Narrows the range of each quantile. Before this call, the caller must replace each count from `count` with the sum
  /// of that count over all ranks.
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
      raise<corrupt_message>({"the bounds of the ", bounds.size() - 1,
                              " blocks do not ascend, because the received counts of entries are inconsistent"});
    }
  }

 private:
  Ownership target_; // how many of all ranks' entries each block should get
  fixed_vector<quantile> quantiles_;
  buffer<std::uint64_t> probes_;
  buffer<std::uint64_t> counts_;
};

/// Whether `bounds` divide [0, n) into blocks.
inline bool divides(std::span<const std::uint64_t> bounds, std::uint64_t n) {
  return bounds.front() == 0 && bounds.back() == n && spar::detail::ascends(bounds);
}

} // namespace detail

/// Adjusts the `bounds` of the `target.count()` blocks of [0, n) so that the number of entries in each block is about
/// the number that `target` prescribes. With `uniform_ownership{n, P}` as the target, P blocks get about equally many
/// entries. `mine` holds the ascending indices of this rank's entries; all other arguments are equal on all ranks. The
/// bounds change only if `anew` is true, if a block contains more than `most` of all ranks' entries, or if the bounds
/// are invalid, for example all 0 before the first call. If `target` has blocks of different sizes, `most` is for a
/// block of average size and is scaled for each block.
///
/// With b blocks, every call runs an allreduce of b counters. Each refinement runs an allreduce of 7 (b - 1) counters,
/// and shrinks the search range of each bound to an eighth. In each allreduce, a rank sends 2 ceil(log2 P) messages.
/// Together, these messages have fewer than 4 b words of 4 bytes in the first allreduce, and fewer than 28 b words in
/// each refinement. Returns the number of refinements. Throws `corrupt_message` if the counts that arrive are
/// inconsistent.
template <transport Net, index_type Index, class Ownership>
task<std::uint64_t> balance_ownership(channel<Net> net, std::span<const Index> mine, Ownership target,
                                      std::span<std::uint64_t> bounds, bool anew, std::uint64_t most) {
  const rank_t blocks = target.count();
  if (!detail::divides(bounds, target.n)) {
    for (rank_t b = 0; b <= blocks; ++b) bounds[static_cast<std::size_t>(b)] = target.begin(b);
    anew = true;
  }
  const auto counters = net.on_host().template with_element<std::uint64_t>();
  const bruck_allreduce allreduce;
  buffer<std::uint64_t> totals(net.memory(), bounds.size() - 1);
  co_await net.work().count_below(mine, std::span<const std::uint64_t>(bounds).subspan(1), totals.span());
  for (std::size_t b = totals.size() - 1; b > 0; --b) totals.data()[b] -= totals.data()[b - 1]; // bounds[0] is 0
  co_await allreduce(counters, totals.span());
  bool too_many = false;
  for (rank_t b = 0; b < blocks; ++b) {
    too_many = too_many || totals.data()[static_cast<std::size_t>(b)] > target.of_mean(most, b);
  }
  std::uint64_t refinements = 0;
  if (!anew && !too_many) co_return refinements;

  detail::quantile_search<Index, Ownership> quantiles(target, bounds, totals.span(), net.memory());
  for (; !quantiles.may_end(most); ++refinements) {
    const std::span<std::uint64_t> counts = co_await quantiles.count(net, mine);
    co_await allreduce(counters, counts);
    quantiles.narrow();
  }
  quantiles.write(bounds);
  co_return refinements;
}

} // namespace spar::inline v0_1
