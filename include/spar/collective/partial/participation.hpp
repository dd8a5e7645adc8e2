// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decides which calls start a round of a collective that then runs without the late ranks (eager-SGD, section 4): the
// calls of everyone, of anyone (solo), of a rank drawn for each round (majority), or of a number of ranks (quorum;
// lemma 5.1).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/splitmix.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace spar {

namespace detail {

/// The rank drawn for a round: each rank with the same probability, and the same rank on all ranks.
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

/// The first rank that makes its call starts the round on all ranks, so no rank waits for another.
struct solo {
  static constexpr std::string_view name = "solo";
  static constexpr void validate(rank_t) noexcept {}
  template <class F>
  static constexpr void options(F&&) noexcept {}
  [[nodiscard]] static constexpr bool initiates(rank_t, std::uint64_t, rank_t) noexcept { return true; }
};

/// A rank that is drawn for each round starts the round with its call. If all ranks call at different times, on average
/// over the rounds (P + 1) / 2 of them have called by then; a single round is only sure to include one.
struct majority {
  static constexpr std::string_view name = "majority";
  std::uint64_t seed = 1; ///< must be equal on all ranks

  static constexpr void validate(rank_t) noexcept {}
  template <class F>
  constexpr void options(F&& f) const {
    f("seed", seed);
  }
  [[nodiscard]] constexpr bool initiates(rank_t rank, std::uint64_t round, rank_t ranks) const noexcept {
    return rank == detail::drawn(seed, round, ranks);
  }
};

/// The q-th call starts the round, so every result includes the calls of at least q ranks. Ranks report their calls to
/// a rank that is drawn for the round and counts them.
struct quorum {
  static constexpr std::string_view name = "quorum";
  rank_t q = 1;           ///< in [1, P]
  std::uint64_t seed = 1; ///< must be equal on all ranks

  /// Throws `invalid_argument` if q is not in [1, P].
  constexpr void validate(rank_t ranks) const {
    if (q < 1 || q > ranks)
      raise<invalid_argument>({"a quorum must be from 1 to ", ranks, ", the number of ranks, not ", q});
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

/// A participation in which some ranks start rounds by their own calls.
template <class P>
concept initiated = requires(const P& who, rank_t rank, std::uint64_t round) {
  { who.initiates(rank, round, rank) } -> std::same_as<bool>;
};
/// A participation in which a rank counts the calls of a round.
template <class P>
concept counted = requires(const P& who, rank_t ranks, std::uint64_t round) {
  { who.q } -> std::convertible_to<rank_t>;
  { who.counter(round, ranks) } -> std::same_as<rank_t>;
};

} // namespace detail

/// Decides which calls start a round: `everyone`, a type with `initiates(rank, round, P)`, which returns whether the
/// rank's own call starts the round, or a type with `q` and `counter(round, P)`, the rank that counts the calls until
/// there are q. `options(f)` calls `f(name, value)` with each option that must be equal on all ranks; `validate(P)`
/// throws `invalid_argument` for invalid options.
template <class P>
concept participation =
    std::copyable<P> && requires(const P& who, rank_t ranks, void (*each)(std::string_view, std::uint64_t)) {
      { P::name } -> std::convertible_to<std::string_view>;
      who.options(each);
      who.validate(ranks);
    } && (std::same_as<P, everyone> || detail::initiated<P> || detail::counted<P>);

} // namespace spar
