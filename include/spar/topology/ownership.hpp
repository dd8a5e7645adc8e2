// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rank owns which index range (SparCML, section 5.3.2: the uniform split of the dimension; Ok-Topk, section
// 3.1.1: a balanced one).
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/core/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar {

/// [0, n) in `blocks` contiguous blocks whose sizes differ by at most one, the larger ones first.
struct uniform_ownership {
  std::uint64_t n = 0;
  rank_t blocks = 1;

  [[nodiscard, gnu::noinline]] constexpr std::uint64_t begin(rank_t block) const noexcept {
    const auto p = static_cast<std::uint64_t>(blocks);
    const auto b = static_cast<std::uint64_t>(block);
    return b * (n / p) + std::min(b, n % p);
  }
  [[nodiscard]] constexpr index_range operator[](rank_t block) const noexcept {
    return {begin(block), begin(block + 1)};
  }
  /// The union of the blocks from `first` to before `last`.
  [[nodiscard]] constexpr index_range range(rank_t first, rank_t last) const noexcept {
    return {begin(first), begin(last)};
  }
};

/// Contiguous blocks with the given bounds: block b is [bounds[b], bounds[b + 1]).
struct bounded_ownership {
  std::span<const std::uint64_t> bounds;

  [[nodiscard]] constexpr index_range operator[](rank_t block) const noexcept {
    const auto b = static_cast<std::size_t>(block);
    return {bounds[b], bounds[b + 1]};
  }
};

} // namespace spar
