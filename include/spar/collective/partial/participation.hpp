// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Policies that decide which calls start a round of a partial collective (eager-SGD, section 4): the calls of all ranks
// (`everyone`), the first call (`solo`), the call of a rank that is drawn for the round (`majority`), or the q-th call
// (`quorum`; lemma 5.1).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/splitmix.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

/// Draws a rank for a round. Each rank has the same probability, and all ranks draw the same rank.
constexpr rank_t drawn(std::uint64_t seed, std::uint64_t round, rank_t ranks) noexcept {
  return static_cast<rank_t>(splitmix(splitmix(seed) ^ round) % static_cast<std::uint64_t>(ranks));
}

/// A participation in which a rank's own call may start the round, such as `solo` and `majority`.
template <class P>
concept initiated = requires(const P& who, rank_t rank, std::uint64_t round) {
  { who.initiates(rank, round, rank) } -> std::same_as<bool>;
};
/// A participation in which one rank counts the calls of a round and starts the round, such as `quorum`.
template <class P>
concept counted = requires(const P& who, rank_t ranks, std::uint64_t round) {
  { who.q } -> std::convertible_to<rank_t>;
  { who.counter(round, ranks) } -> std::same_as<rank_t>;
};

} // namespace detail

/// Each round waits for the calls of all ranks, as in a collective that is not partial.
struct everyone {
  static constexpr std::string_view name = "everyone";
  static constexpr void validate(rank_t) noexcept {}
  static constexpr void options(auto&&) noexcept {}
};

/// The first call of a round starts the round on all ranks. A rank waits only for the calls of ranks that are more than
/// tau calls behind (see partial_options).
struct solo {
  static constexpr std::string_view name = "solo";
  static constexpr void validate(rank_t) noexcept {}
  static constexpr void options(auto&&) noexcept {}
  /// Whether a call of this rank starts a round; always true.
  [[nodiscard]] static constexpr bool initiates(rank_t, std::uint64_t, rank_t) noexcept { return true; }
};

/// For each round, one rank is drawn, and the call of this rank starts the round. If all ranks call at different times,
/// a round includes on average the calls of (P + 1) / 2 ranks. Only the call of the drawn rank is sure to be included.
struct majority {
  static constexpr std::string_view name = "majority";
  std::uint64_t seed = 1; ///< the seed of the draws; must be equal on all ranks

  static constexpr void validate(rank_t) noexcept {}
  constexpr void options(auto&& f) const { f("seed", seed); }
  /// Whether a call of `rank` starts the round `round` of `ranks` ranks: if this rank was drawn for the round.
  [[nodiscard]] constexpr bool initiates(rank_t rank, std::uint64_t round, rank_t ranks) const noexcept {
    return rank == detail::drawn(seed, round, ranks);
  }
};

/// The q-th call starts the round, so the result of every call includes the calls of at least q ranks. For each round,
/// one rank is drawn to count the calls, and the other ranks report their calls to this rank.
struct quorum {
  static constexpr std::string_view name = "quorum";
  rank_t q = 1;           ///< the number of calls that start a round, in [1, P]
  std::uint64_t seed = 1; ///< the seed of the draws; must be equal on all ranks

  /// Throws `invalid_argument` if q is not in [1, P], where P is `ranks`.
  constexpr void validate(rank_t ranks) const {
    if (q < 1 || q > ranks)
      raise<invalid_argument>({"the quorum is ", q, "; expected 1 to ", ranks, ", the number of ranks"});
  }
  constexpr void options(auto&& f) const { f("q", q), f("seed", seed); }
  /// The rank, of `ranks` ranks, that counts the calls of the round `round`.
  [[nodiscard]] constexpr rank_t counter(std::uint64_t round, rank_t ranks) const noexcept {
    return detail::drawn(seed, round, ranks);
  }
};

/// A policy that decides which calls start a round of a partial collective. A participation is one of these:
/// - `everyone`;
/// - a type whose `initiates(rank, round, P)` returns whether the rank's own call starts the round;
/// - a type whose `counter(round, P)` returns the rank that counts the calls of the round and starts the round at the
///   q-th call, where q is the member `q` of the type.
/// `options(f)` calls `f(name, value)` with each option that must be equal on all ranks. `validate(P)` throws
/// `invalid_argument` for invalid options.
template <class P>
concept participation =
    std::copyable<P> && requires(const P& who, rank_t ranks, void (*each)(std::string_view, std::uint64_t)) {
      { P::name } -> std::convertible_to<std::string_view>;
      who.options(each);
      who.validate(ranks);
    } && (std::same_as<P, everyone> || detail::initiated<P> || detail::counted<P>);

} // namespace spar::inline v0_1
