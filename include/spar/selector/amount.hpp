// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The number of entries that a selector selects, given as k or as a share of the vector, and the tolerance for this
// number.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/error.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>

#include <concepts>
#include <cstdint>
#include <limits>

namespace spar::inline v0_1::selector {

/// The value of an option `k` that the program has not set. It differs from k = 0, with which a selector selects
/// nothing.
inline constexpr std::uint64_t unset = std::numeric_limits<std::uint64_t>::max();

/// The number of entries that a selector aims to select: exactly `k`, or between `least` and `most` if the selector
/// reuses or estimates its threshold.
struct topk_bounds {
  std::uint64_t least = 0; ///< the least number of entries
  std::uint64_t k = 0;     ///< the number of entries that is aimed at
  std::uint64_t most = 0;  ///< the largest number of entries

  /// From k - floor(`epsilon` * k) to k + floor(`epsilon` * k) entries.
  static topk_bounds around(std::uint64_t k, double epsilon) noexcept {
    const auto slack = static_cast<std::uint64_t>(epsilon * static_cast<double>(k));
    return {k - std::min(slack, k), k, k + slack};
  }
};

namespace detail {

/// The number k as an option that ranks compare, where a k that is not set equals 0.
constexpr std::uint64_t compared_k(std::uint64_t k) noexcept { return k == unset ? 0 : k; }

/// Calls `f` with the option that is set, k or the density.
constexpr void amount_option(auto&& f, std::uint64_t k, double density) {
  if (density == 0)
    f("k", compared_k(k));
  else
    f("density", density);
}

/// Returns the number of entries to select: `k`, or if `density` is nonzero, `density` * n rounded to the nearest
/// integer, but at least 1 unless n is 0. Throws `invalid_argument` if neither k nor the density is set, if both are
/// nonzero, if k exceeds n, or if the density is not in [0, 1].
inline std::uint64_t amount(std::uint64_t k, double density, std::uint64_t n) {
  spar::detail::check_number(density, spar::detail::valid::share, "the selector's density");
  if (k == unset) {
    if (density == 0)
      raise<invalid_argument>({"the selector has neither k nor a density; expected one of them, such as a density "
                               "of 0.01 (a k of 0 selects nothing)"});
    k = 0;
  }
  if (k != 0 && density != 0) {
    raise<invalid_argument>({"expected either k or a density, but k is ", k, " and the density is ", density});
  }
  if (k > n) raise<invalid_argument>({"the selector's k is ", k, "; expected at most n = ", n});
  if (density == 0 || n == 0) return k;
  const auto share = static_cast<std::uint64_t>(density * static_cast<double>(n) + 0.5);
  return share == 0 ? 1 : share > n ? n : share;
}

} // namespace detail

} // namespace spar::inline v0_1::selector

namespace spar::inline v0_1 {

/// A selector with a function `bounds(n)` that returns how many of n entries the selector selects.
template <class Selector>
concept selector_with_bounds = requires(const Selector& select, std::uint64_t n) {
  { select.bounds(n) } -> std::same_as<selector::topk_bounds>;
};

/// The reason why a schedule that keeps the k largest entries rejects a selector without `bounds()`.
using needs_k =
    because<"this schedule keeps the k largest entries of the sum, and the selector has no k: use a selector "
            "that has one, such as exact_topk">;

} // namespace spar::inline v0_1
