// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who must take part in a round of a collective before it runs without the others (eager-SGD, section 4): everyone,
// anyone (solo), a rank drawn for each round (majority), or so many of them (quorum; lemma 5.1).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/splitmix.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace spar {

namespace detail {

/// The rank drawn for a round: each with the same probability, the same on all ranks.
constexpr rank_t drawn(std::uint64_t seed, std::uint64_t round, rank_t ranks) noexcept {
  return static_cast<rank_t>(splitmix(splitmix(seed) ^ round) % static_cast<std::uint64_t>(ranks));
}

} // namespace detail

/// Each round waits for every rank's call, as a collective does that is not partial.
struct everyone {
  static constexpr std::string_view name = "everyone";
  static constexpr void validate(rank_t) noexcept {}
  template <class F>
  static constexpr void options(F&&) noexcept {}
};

/// The first rank that makes its call starts the round on all: nobody waits for anybody.
struct solo {
  static constexpr std::string_view name = "solo";
  static constexpr void validate(rank_t) noexcept {}
  template <class F>
  static constexpr void options(F&&) noexcept {}
  [[nodiscard]] static constexpr bool initiates(rank_t, std::uint64_t, rank_t) noexcept { return true; }
};

/// A rank that is drawn for the round starts it when it makes its call. Where all ranks call at different times,
/// (P + 1) / 2 of them have called by then in the mean over rounds; no single round is sure of more than one.
struct majority {
  static constexpr std::string_view name = "majority";
  std::uint64_t seed = 1; ///< the same on every rank

  static constexpr void validate(rank_t) noexcept {}
  template <class F>
  constexpr void options(F&& f) const {
    f("seed", seed);
  }
  [[nodiscard]] constexpr bool initiates(rank_t rank, std::uint64_t round, rank_t ranks) const noexcept {
    return rank == detail::drawn(seed, round, ranks);
  }
};

/// The q-th call starts the round: every result has the calls of at least q ranks. They tell a rank that is drawn for
/// the round, which counts.
struct quorum {
  static constexpr std::string_view name = "quorum";
  rank_t q = 1;           ///< in [1, P]
  std::uint64_t seed = 1; ///< the same on every rank

  /// Throws `invalid_argument` where there are less ranks than q, or q is not positive.
  constexpr void validate(rank_t ranks) const {
    if (q < 1 || q > ranks)
      raise<invalid_argument>({"a quorum is from 1 to ", ranks, ", the number of ranks, not ", q});
  }
  template <class F>
  constexpr void options(F&& f) const {
    f("q", q), f("seed", seed);
  }
  [[nodiscard]] constexpr rank_t counter(std::uint64_t round, rank_t ranks) const noexcept {
    return detail::drawn(seed, round, ranks);
  }
};

namespace detail {

/// Some ranks start rounds by their own calls.
template <class P>
concept initiated = requires(const P& who, rank_t rank, std::uint64_t round) {
  { who.initiates(rank, round, rank) } -> std::same_as<bool>;
};
/// A rank counts the calls of a round.
template <class P>
concept counted = requires(const P& who, rank_t ranks, std::uint64_t round) {
  { who.q } -> std::convertible_to<rank_t>;
  { who.counter(round, ranks) } -> std::same_as<rank_t>;
};

} // namespace detail

/// Who must take part. Besides `everyone`, one whose ranks start rounds by their own calls, by
/// `initiates(rank, round, P)`, or one whose calls are counted, by `q` and `counter(round, P)`. `options(f)` calls
/// `f(name, value)` with what must be the same on all ranks; `validate(P)` throws `invalid_argument`.
template <class P>
concept participation =
    std::copyable<P> && requires(const P& who, rank_t ranks, void (*each)(std::string_view, std::uint64_t)) {
      { P::name } -> std::convertible_to<std::string_view>;
      who.options(each);
      who.validate(ranks);
    } && (std::same_as<P, everyone> || detail::initiated<P> || detail::counted<P>);

} // namespace spar
