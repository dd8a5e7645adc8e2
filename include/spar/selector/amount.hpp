// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many entries a selector is asked for: a number, or a share of the vector; and by how much it may miss that.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>

#include <concepts>
#include <cstdint>

namespace spar::selector {

/// How many entries may be selected: k, or as near to it as a threshold comes that is not looked for anew.
struct topk_bounds {
  std::uint64_t least = 0;
  std::uint64_t k = 0;
  std::uint64_t most = 0;

  static topk_bounds around(std::uint64_t k, double epsilon) noexcept {
    const auto slack = static_cast<std::uint64_t>(epsilon * static_cast<double>(k));
    return {k - std::min(slack, k), k, k + slack};
  }
};

namespace detail {

/// `k` or, where a density is given instead, that share of n: rounded to the nearest, but at least one entry. Throws
/// `invalid_argument` where both are given, where k is beyond n and where the density is not in [0, 1].
inline std::uint64_t amount(std::uint64_t k, double density, std::uint64_t n) {
  if (!(density >= 0 && density <= 1)) raise<invalid_argument>({"a density of ", density, " is not in [0, 1]"});
  if (k != 0 && density != 0) {
    raise<invalid_argument>({"a selector is given both k = ", k, " and a density of ", density});
  }
  if (k > n) raise<invalid_argument>({"a selector of k = ", k, " entries is given a vector of ", n});
  if (density == 0 || n == 0) return k;
  const auto share = static_cast<std::uint64_t>(density * static_cast<double>(n) + 0.5);
  return share == 0 ? 1 : share > n ? n : share;
}

} // namespace detail

} // namespace spar::selector

namespace spar {

/// A selector that says how many entries it selects.
template <class Selector>
concept selector_with_bounds = requires(const Selector& select, std::uint64_t n) {
  { select.bounds(n) } -> std::same_as<selector::topk_bounds>;
};

/// The verdict of a schedule that keeps the k largest entries on a selector without `bounds()`.
using needs_k =
    because<"this schedule keeps the k largest entries of the sum, and the selector has no k: take exact_topk, "
            "bucket_topk, threshold_reuse or gaussian, or a selector with bounds(n)">;

} // namespace spar
