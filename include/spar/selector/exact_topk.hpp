// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Top-k by magnitude, exactly (SparCML, section 2.2 and algorithm 1).
#pragma once

#include <spar/selector/selector.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace spar::selector {

/// Selects the `k` entries of largest magnitude, or all nonzeros where there are fewer; of equal magnitudes those with
/// the lowest indices. NaN ranks above infinity. Sorted by index; deterministic.
struct exact_topk {
  static constexpr std::string_view name = "exact_topk";

  std::uint64_t k = 0;

  template <index_type Index = std::uint32_t, element T>
  stream<T, Index> operator()(std::span<T> x, pool& memory) const {
    buffer<magnitude<T>> keys(memory, x.size());
    std::transform(x.begin(), x.end(), keys.data(), magnitude_of<T>);
    const std::uint64_t wanted = std::min<std::uint64_t>(k, x.size());
    magnitude<T> threshold = 0; // entries above it are selected, and of those at it the first `ties`
    std::uint64_t above = 0;
    if (wanted > 0) {
      auto* const kth = keys.data() + (wanted - 1);
      std::nth_element(keys.data(), kth, keys.data() + x.size(), [](auto a, auto b) { return a > b; });
      threshold = *kth;
      above = static_cast<std::uint64_t>(std::count_if(keys.data(), kth, [=](auto m) { return m > threshold; }));
    }
    std::uint64_t ties = threshold > 0 ? wanted - above : 0;
    auto selected = stream<T, Index>::sparse(memory, x.size(), above + ties);
    std::size_t kept = 0;
    for (std::size_t i = 0; kept < selected.count(); ++i) {
      const auto m = magnitude_of<T>(x[i]);
      if (m < threshold || m == 0 || (m == threshold && ties == 0)) continue;
      if (m == threshold) --ties;
      selected.indices()[kept] = static_cast<Index>(i);
      selected.values()[kept] = x[i];
      x[i] = T{};
      ++kept;
    }
    return selected;
  }

 private:
  template <class T>
  using magnitude = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

  /// Ordered as |x|; the bits of a floating-point number without its sign are, with NaN on top.
  template <class T>
  static magnitude<T> magnitude_of(T x) noexcept {
    using M = magnitude<T>;
    if constexpr (is_floating<T>) {
      return static_cast<M>(static_cast<M>(std::bit_cast<M>(x) << 1) >> 1);
    } else {
      const auto bits = static_cast<M>(x);
      return x < T{} ? static_cast<M>(0 - bits) : bits;
    }
  }
};

} // namespace spar::selector
