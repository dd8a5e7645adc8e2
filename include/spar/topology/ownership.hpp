// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the indices [0, n) are divided among owners: uniformly (SparCML, section 5.3.2), in given proportions, or at
// given bounds, such as those that balance the entries (Ok-Topk, section 3.1.1).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/message.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// An ownership: divides [0, n) into contiguous blocks, and `owner[block]` returns the indices of a block. Rejects the
/// rank of a root, which stands in the same place among the arguments of an algorithm.
template <class Ownership>
concept owns_blocks = requires(const Ownership& owner, rank_t block) {
  { owner[block] } -> std::same_as<index_range>;
};

/// Divides [0, n) into `blocks` contiguous blocks whose sizes differ by at most one; the larger blocks come first.
struct uniform_ownership {
  std::uint64_t n = 0; ///< the number of indices
  rank_t blocks = 1;   ///< the number of blocks, at least 1

  /// The number of blocks.
  [[nodiscard]] constexpr rank_t count() const noexcept { return blocks; }
  /// The first index of `block`.
  [[nodiscard]] constexpr std::uint64_t begin(rank_t block) const noexcept {
    const auto p = static_cast<std::uint64_t>(blocks);
    const auto b = static_cast<std::uint64_t>(block);
    return b * (n / p) + std::min(b, n % p);
  }
  /// The indices of `block`.
  [[nodiscard]] constexpr index_range operator[](rank_t block) const noexcept {
    return {begin(block), begin(block + 1)};
  }
  /// Expected number of entries of a block if the mean over all blocks is `mean`. All blocks have the same share, so
  /// the number equals `mean`.
  [[nodiscard]] constexpr std::uint64_t of_mean(std::uint64_t mean, rank_t) const noexcept { return mean; }
  /// The range of indices in the adjacent blocks [first, last).
  [[nodiscard]] constexpr index_range range(rank_t first, rank_t last) const noexcept {
    return {begin(first), begin(last)};
  }
};

/// The number of ranks of the smallest host, if hosts begin at the ranks `hosts`, of which the last is the number of
/// ranks.
[[nodiscard]] inline rank_t smallest_host(std::span<const rank_t> hosts) noexcept {
  rank_t least = hosts.back();
  for (std::size_t h = 0; h + 1 < hosts.size(); ++h) least = std::min(least, hosts[h + 1] - hosts[h]);
  return least;
}

/// Divides [0, n) into `blocks` contiguous blocks that begin at multiples of `grain`, or at n. The numbers of grains
/// differ by at most one; the larger blocks come first.
struct grained_ownership {
  std::uint64_t n = 0;     ///< the number of indices
  rank_t blocks = 1;       ///< the number of blocks, at least 1
  std::uint64_t grain = 1; ///< at least 1

  /// The number of grains.
  [[nodiscard]] constexpr std::uint64_t grains() const noexcept { return n / grain + (n % grain != 0 ? 1 : 0); }
  /// The first index of `block`.
  [[nodiscard]] constexpr std::uint64_t begin(rank_t block) const noexcept {
    return std::min(uniform_ownership{grains(), blocks}.begin(block) * grain, n);
  }
  /// The indices of `block`.
  [[nodiscard]] constexpr index_range operator[](rank_t block) const noexcept {
    return {begin(block), begin(block + 1)};
  }
  /// The range of indices in the adjacent blocks [first, last).
  [[nodiscard]] constexpr index_range range(rank_t first, rank_t last) const noexcept {
    return {begin(first), begin(last)};
  }
};

namespace detail {

/// The blocks of n values that `codec` encodes: uniform, in multiples of the codec's grain if the codec has one.
template <class Codec>
[[nodiscard]] constexpr auto blocks_for(const Codec& codec, std::uint64_t n, rank_t blocks) noexcept {
  if constexpr (requires { codec.grain(); })
    return grained_ownership{n, blocks, std::max<std::uint64_t>(codec.grain(), 1)};
  else
    return uniform_ownership{n, blocks};
}

} // namespace detail

/// Divides [0, n) into contiguous blocks in given proportions. With W = portions.back() <= 2^32, block b begins at
/// index floor(n * portions[b] / W).
struct portioned_ownership {
  std::uint64_t n = 0; ///< the number of indices
  std::span<const std::uint64_t>
      portions; ///< bounds of the blocks in units of n / W, ascending from 0; one more bound than blocks

  /// The number of blocks.
  [[nodiscard]] rank_t count() const noexcept { return static_cast<rank_t>(portions.size() - 1); }
  /// The first index of `block`.
  [[nodiscard]] std::uint64_t begin(rank_t block) const noexcept {
    const std::uint64_t all = portions.back(), first = portions[static_cast<std::size_t>(block)];
    return n / all * first + n % all * first / all;
  }
  /// Expected number of entries of `block` if the mean over all blocks is `mean`: in proportion to the block's share.
  [[nodiscard]] std::uint64_t of_mean(std::uint64_t mean, rank_t block) const noexcept {
    const auto b = static_cast<std::size_t>(block);
    const double share = static_cast<double>(portions[b + 1] - portions[b]) / static_cast<double>(portions.back());
    return static_cast<std::uint64_t>(std::min(static_cast<double>(mean) * count() * share, 0x1p63));
  }
};

/// Contiguous blocks with given bounds: block b is [bounds[b], bounds[b + 1]). Blocks may be empty. The bounds of
/// blocks with given lengths are the sums of these lengths.
struct bounded_ownership {
  static constexpr std::string_view name = "blocks";
  std::span<const std::uint64_t> bounds; ///< the bounds of the blocks, ascending; one more bound than blocks

  /// Refers to the bounds `given`, a span, vector or array of std::uint64_t. Rejects a temporary vector or array.
  template <class Bounds>
    requires std::convertible_to<Bounds, std::span<const std::uint64_t>>
  constexpr bounded_ownership(Bounds&& given) noexcept : bounds(given) {
    detail::expect_lasting<Bounds>();
  }
  /// Rejects bounds of another type.
  template <std::ranges::range Bounds>
    requires(!std::convertible_to<Bounds, std::span<const std::uint64_t>>)
  constexpr bounded_ownership(Bounds&&) noexcept {
    static_assert(std::convertible_to<Bounds, std::span<const std::uint64_t>>,
                  "the bounds of a bounded_ownership are a span, vector or array of std::uint64_t");
  }

  /// The lengths of the blocks are the options in which ranks must agree.
  constexpr void options(auto&& f) const {
    for (std::size_t b = 1; b < bounds.size(); ++b) f("length", bounds[b] - bounds[b - 1]);
  }
  /// Throws `invalid_argument` unless the bounds divide [0, n) into one block for each of `ranks` ranks.
  void validate(std::uint64_t n, rank_t ranks) const {
    if (bounds.size() != static_cast<std::size_t>(ranks) + 1) {
      raise<invalid_argument>({"an ownership has ", bounds.size(),
                               " bounds; expected P + 1 = ", std::uint64_t{1} + static_cast<std::uint64_t>(ranks),
                               " bounds, one block for each rank"});
    }
    for (std::size_t b = 1; b < bounds.size(); ++b) {
      if (bounds[b] < bounds[b - 1]) {
        raise<invalid_argument>({"bound ", b, " of an ownership is ", bounds[b], ", but bound ", b - 1, " is ",
                                 bounds[b - 1], "; expected ascending bounds"});
      }
    }
    if (bounds.front() != 0 || bounds.back() != n) {
      raise<invalid_argument>({"the bounds of an ownership go from ", bounds.front(), " to ", bounds.back(),
                               "; expected bounds from 0 to n = ", n});
    }
  }

  /// The indices of `block`.
  [[nodiscard]] constexpr index_range operator[](rank_t block) const noexcept {
    const auto b = static_cast<std::size_t>(block);
    return {bounds[b], bounds[b + 1]};
  }
};

} // namespace spar::inline v0_1
