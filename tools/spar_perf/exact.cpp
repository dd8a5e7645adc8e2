// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exact sum of all ranks' contributions.
#include "exact.hpp"

#include <utility>

namespace spar::perf {

exact_sums::exact_sums(const workload& w) : n_(w.n) {
  if (w.k > w.n / 8 / static_cast<std::uint64_t>(w.ranks)) {
    sums_.resize(w.n);
    for (int r = 0; r < w.ranks; ++r) {
      for (const std::uint64_t i : positions(w, r)) sums_[i] += value_at(w, r, i);
    }
  } else {
    std::vector<std::pair<std::uint64_t, std::int32_t>> entries;
    entries.reserve(w.k * static_cast<std::uint64_t>(w.ranks));
    for (int r = 0; r < w.ranks; ++r) {
      for (const std::uint64_t i : positions(w, r)) entries.emplace_back(i, value_at(w, r, i));
    }
    std::sort(entries.begin(), entries.end());
    for (const auto& [index, value] : entries) {
      if (indices_.empty() || indices_.back() != index) {
        indices_.push_back(index);
        sums_.push_back(0);
      }
      sums_.back() += value;
    }
  }
  for (const std::int32_t s : sums_) largest_ = std::max(largest_, s);
}

void exact_sums::add_to(std::uint64_t first, std::span<double> out) const {
  if (indices_.empty()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += sums_[first + i];
    return;
  }
  auto at = static_cast<std::size_t>(std::lower_bound(indices_.begin(), indices_.end(), first) - indices_.begin());
  for (; at < indices_.size() && indices_[at] - first < out.size(); ++at) out[indices_[at] - first] += sums_[at];
}

} // namespace spar::perf
