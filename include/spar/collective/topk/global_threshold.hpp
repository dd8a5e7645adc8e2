// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The search for the threshold of a sum whose blocks have different owners: a magnitude that about k entries reach
// (Ok-Topk, section 3.1.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/selector/amount.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/workspace/workspace.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace spar::inline v0_1::detail {

/// The number of entries with a magnitude above a threshold, and the number of entries with a magnitude equal to the
/// threshold.
struct threshold_counts {
  std::uint64_t above = 0;
  std::uint64_t at = 0;

  /// The number of entries that a call keeps. If at most `bounds.most` entries reach the threshold, the call keeps all
  /// of these entries. Otherwise, the call keeps all entries above the threshold and, if these are fewer than
  /// `bounds.k`, entries at the threshold up to `bounds.k` entries in all.
  [[nodiscard]] std::uint64_t kept(const selector::topk_bounds& bounds) const noexcept {
    return above + at <= bounds.most ? above + at : std::max(above, std::min(bounds.k, above + at));
  }
};

/// Counts the `values` above and at `threshold`.
template <transport Net, element T>
answer<Net, threshold_counts> count_from(channel<Net> net, std::span<const T> values, kernel::magnitude<T> threshold) {
  const auto next = static_cast<kernel::magnitude<T>>(threshold + 1); // 0 after the greatest number
  const kernel::magnitude<T> probes[] = {threshold, next};
  return after(net, net.work().count_reached(values, std::span(probes).first(next == 0 ? 1 : 2)),
               [](const kernel::reached_counts& reached) { return threshold_counts{reached[2], reached[1]}; });
}

/// Searches for the k-th largest magnitude of all ranks' values, or, with a tolerance, for one near it. In each round,
/// every rank counts how many of its values reach each of 31 probes (magnitudes), and an allreduce sums the counts.
template <element T>
class threshold_search {
  using key = kernel::magnitude<T>;
  static constexpr std::size_t probes = kernel::most_probes;

 public:
  /// The search starts at `threshold`, the threshold of the last call; `known` counts the values of all ranks above and
  /// at `threshold`.
  threshold_search(key threshold, const threshold_counts& known, const selector::topk_bounds& bounds)
      : bounds_(bounds), best_(threshold) {
    if (known.above >= bounds.k && bounds.k > 0) {
      low_ = static_cast<key>(threshold + 1);
      upwards_ = true;
    } else if (known.above + known.at >= bounds.k) {
      done_ = true; // `threshold` is the k-th largest magnitude
    } else {
      top_ = static_cast<key>(threshold - 1);
    }
    if (!done_) look();
  }

  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] key threshold() const noexcept { return best_; }
  /// The least threshold with which the search may end.
  [[nodiscard]] key lowest() const noexcept { return done_ ? best_ : low_; }

  /// Returns this rank's counters: for each probe, the number of values whose magnitude is at least the probe. The
  /// caller sums the counters over all ranks in place, and then calls `narrow`.
  template <transport Net>
  answer<Net, std::span<std::uint64_t>> count(channel<Net> net, std::span<const T> values) {
    for (std::size_t i = 0; i < probes; ++i) probes_[i] = probe(i);
    return after(net, net.work().count_reached(values, std::span<const key>(probes_)),
                 [this](const kernel::reached_counts& reached) { return add_up(reached); });
  }
  /// Narrows the range of the search. Before this call, the caller must replace each counter from `count` with the sum
  /// of that counter over all ranks.
  void narrow() {
    const auto distance = [&](std::uint64_t count) {
      return count > bounds_.k ? count - bounds_.k : bounds_.k - count;
    };
    std::size_t nearest = 0;
    for (std::size_t i = 1; i < probes; ++i) {
      if (distance(counts_[i]) <= distance(counts_[nearest])) nearest = i;
    }
    best_ = probes_[nearest];
    done_ = distance(counts_[nearest]) <= (bounds_.most - bounds_.k) / 2;
    if (done_) return;
    std::size_t passed = 0; // the number of probes that at least k values reach
    while (passed < probes && counts_[passed] >= bounds_.k) ++passed;
    if (passed > 0) low_ = probes_[passed - 1];
    if (passed < probes) top_ = static_cast<key>(probes_[passed] - 1);
    if (top_ < low_)
      raise<corrupt_message>({"the received counts of entries are inconsistent: with k = ", bounds_.k,
                              ", the k-th largest magnitude would be at least ", low_, " and at most ", top_});
    galloping_ = false;
    look();
  }

 private:
  /// Stores the counters. reached[j] is the number of values that reach exactly j of the probes.
  std::span<std::uint64_t> add_up(const kernel::reached_counts& reached) {
    std::uint64_t from = 0;
    for (std::size_t i = probes; i > 0; --i) counts_[i - 1] = from += reached[i];
    return counts_;
  }
  void look() {
    best_ = low_;
    done_ = low_ >= top_;
  }

  /// The i-th probe; probes ascend, from above `low_` to `top_`. In the first round, the distances of the probes from
  /// the last threshold grow exponentially, because the threshold usually changes little from call to call.
  [[nodiscard]] key probe(std::size_t i) const noexcept {
    const key width = static_cast<key>(top_ - low_);
    if (galloping_) {
      const std::size_t step = upwards_ ? i : probes - 1 - i;
      const std::size_t bits = step * (std::numeric_limits<key>::digits - 1) / (probes - 1);
      const key distance = std::min<key>(width, static_cast<key>(key{1} << bits));
      return static_cast<key>(upwards_ ? low_ + distance : top_ - (distance - 1));
    }
    const key nth = static_cast<key>(i + 1);
    constexpr key parts = probes;
    return static_cast<key>(low_ + width / parts * nth + (width % parts * nth + parts - 1) / parts);
  }

  selector::topk_bounds bounds_;
  key best_;
  key low_ = 1;                             // at least k values reach this magnitude, unless fewer than k are nonzero
  key top_ = kernel::greatest_magnitude<T>; // fewer than k values exceed this magnitude
  bool upwards_ = false;
  bool galloping_ = true;
  bool done_ = false;
  std::array<key, probes> probes_{};
  std::array<std::uint64_t, probes> counts_{};
};

} // namespace spar::inline v0_1::detail
