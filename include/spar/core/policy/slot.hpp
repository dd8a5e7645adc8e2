// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The slots of a composition, and the compile-time error messages for parts that do not fit together.
#pragma once

#include <spar/core/policy/policy.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace spar::inline v0_1 {

/// The slots of a composition. Each part of a composition fills one slot, and states the slot as a constant, for
/// example `static constexpr slot fills = slot::selector;`.
enum class slot {
  selector, ///< which entries of a dense vector are sent
  storage,  ///< how messages encode sparse streams and dense blocks
  topology, ///< how the network connects the ranks, and so which ranks exchange messages
  schedule  ///< which messages are sent, and in which order contributions are reduced
};

/// A part of a composition: a copyable policy with a constant `fills`, the slot of the part. The part must be a policy
/// so that ranks can compare its options.
template <class Part>
concept part = std::copyable<Part> && policy<Part> && requires {
  { Part::fills } -> std::convertible_to<slot>;
};
/// A part that fills the slot `Which`.
template <class Part, slot Which>
concept part_for = part<Part> && Part::fills == Which;

/// A string literal that can be a template argument, so that the compiler prints the string in its error messages.
template <std::size_t N>
struct literal {
  char text[N]{}; ///< the characters, with the terminating null
  /// Copies the string literal `characters`.
  consteval literal(const char (&characters)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = characters[i];
  }
};

/// The reason why the parts of a composition do not fit together, as a type whose template argument the compiler
/// prints. `because<"">` means that the parts fit together.
template <literal Sentence>
struct because {
  /// Whether there is no reason, so that the parts fit together.
  static constexpr bool none = sizeof(Sentence.text) == 1;
  static constexpr std::string_view sentence{Sentence.text, sizeof(Sentence.text) - 1}; ///< the reason, as a sentence
};
/// What `accepts` returns if the parts fit together.
using nothing_against = because<"">;

/// A reason against a composition that is empty, so that the parts fit together.
template <class Reason>
concept composes = Reason::none;

/// The state of a part of a composition that keeps no data from one call to the next.
struct no_state {
  void shared_state(auto&&) const noexcept {}
  void own_state(auto&&) const noexcept {}
};

namespace detail {

template <class Part>
struct state_type : std::type_identity<no_state> {};
template <class Part>
  requires requires { typename Part::state; }
struct state_type<Part> : std::type_identity<typename Part::state> {};

struct no_report {};
template <class Part>
struct report_type : std::type_identity<no_report> {};
template <class Part>
  requires requires { typename Part::report; }
struct report_type<Part> : std::type_identity<typename Part::report> {};

} // namespace detail

/// The type of the data that a part of a composition keeps from one call to the next: the member type `state` of the
/// part or, if there is none, `no_state`.
template <class Part>
using state_of = typename detail::state_type<Part>::type;
/// The type of the report that a part of a composition makes about a call: the member type `report` of the part or, if
/// there is none, an empty type.
template <class Part>
using report_of = typename detail::report_type<Part>::type;

} // namespace spar::inline v0_1
