// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts the values that reach magnitudes, and keeps the entries that reach one (Ok-Topk, section 3.1.3).
#pragma once

#include <spar/storage/kernel/magnitude.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::kernel {

/// The greatest number of magnitudes (probes) that one count takes.
inline constexpr std::size_t most_probes = 31;
/// Element j > 0 is the number of values that reach exactly j probes. Element 0 has it only for `most_probes` probes.
using reached_counts = std::array<std::uint64_t, most_probes + 1>;

/// Counts the values that reach the ascending `probes`, of which there are 1, 2 or `most_probes`.
template <ranked T>
reached_counts count_reached(std::span<const T> values, std::span<const magnitude<T>> probes) noexcept {
  reached_counts reached{};
  if (probes.size() < most_probes) {
    const magnitude<T> low = probes.front(), high = probes.back();
    std::uint64_t least = 0, all = 0;
    for (const T value : values) {
      least += magnitude_of(value) >= low ? 1U : 0U;
      all += magnitude_of(value) >= high ? 1U : 0U;
    }
    reached[1] = least - all;
    reached[probes.size()] += all;
    return reached;
  }
  for (const T value : values) {
    const magnitude<T> m = magnitude_of(value);
    std::size_t below = 0; // binary search without branches, because branches on random values are unpredictable
    for (std::size_t step = (most_probes + 1) / 2; step > 0; step /= 2)
      below += probes[below + step - 1] <= m ? step : 0;
    ++reached[below];
  }
  return reached;
}

/// Keeps only the entries above `threshold` and the first `ties` entries at `threshold`, in their old order. Returns
/// the number of entries kept. Without branches, because the processor could not predict which entries are kept.
template <ranked T, class Index>
std::size_t keep_from(Index* indices, std::span<T> values, magnitude<T> threshold, std::uint64_t ties) noexcept {
  std::size_t kept = 0;
  for (std::size_t e = 0; e < values.size(); ++e) {
    const auto m = magnitude_of(values[e]);
    const bool tie = m == threshold && ties > 0;
    ties -= static_cast<std::uint64_t>(tie);
    indices[kept] = indices[e];
    values[kept] = values[e];
    kept += static_cast<std::size_t>(m > threshold || tie);
  }
  return kept;
}

} // namespace spar::inline v0_1::kernel
