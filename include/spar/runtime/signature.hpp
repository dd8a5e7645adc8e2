// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Signatures of calls, on which all ranks must agree, and the `mismatch` errors if ranks disagree.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/policy/option_difference.hpp>
#include <spar/core/policy/policy.hpp>
#include <spar/core/row.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/endpoint/call_table.hpp>
#include <spar/runtime/messages/message.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace spar::inline v0_1 {

/// Takes the place of the index type in calls on dense vectors, whose values have no indices.
struct no_indices {};

namespace detail {

template <class Algorithm, class Op, bool Dense, std::size_t Width>
inline constexpr call_form form_of{Algorithm::name, Op::name, Dense, Width,
                                   splitmix(fnv1a(Op::name) + 2 * Width + (Dense ? 1 : 0))};

/// The digest by which ranks compare their calls. `name` is the hash of the algorithm's name, and `form` is the hash of
/// the operation, of the kind of vectors, dense or sparse (see `call_form`), and of the types. `option` combines the
/// options of the algorithm and any further number that must be equal on all ranks.
constexpr std::uint64_t call_digest(std::uint64_t name, std::uint64_t option, std::uint64_t form,
                                    std::uint64_t dimension) noexcept {
  return splitmix(splitmix(form + dimension) ^ splitmix(name ^ splitmix(option)));
}

/// The number by which ranks compare the options of the operation `op`; 0 if `op` has no options.
template <class Op>
constexpr std::uint64_t options_of(const Op& op) {
  if constexpr (policy<Op>)
    return digest_of(op);
  else
    return 0;
}

} // namespace detail

/// The signature of a call of `algorithm` with the operation Op on vectors of `dimension` values of type T. Index is
/// the type of indices, or `no_indices` for dense vectors. `option` is a further number that must be equal on all
/// ranks. If the algorithm has a function `root()`, error messages name its result even after the call has ended.
template <element T, class Index, class Op, policy Algorithm>
  requires index_type<Index> || std::same_as<Index, no_indices>
constexpr signature signature_of(std::uint64_t dimension, const Algorithm& algorithm, std::uint64_t option = 0) {
  constexpr const call_form& form = detail::form_of<Algorithm, Op, std::same_as<Index, no_indices>, width_of<T>>;
  constexpr std::uint64_t name = detail::fnv1a(Algorithm::name);
  signature agreed{.element = code_of<T>, .index = element_code::uint32, .dimension = dimension, .form = &form};
  if constexpr (index_type<Index>) agreed.index = code_of<Index>;
  if constexpr (requires { rank_t{algorithm.root()}; }) agreed.root = algorithm.root();
  const std::uint64_t types = detail::fnv1a(form.hash, std::uint64_t{static_cast<std::uint8_t>(agreed.element)} << 8 |
                                                           static_cast<std::uint8_t>(agreed.index));
  agreed.digest = detail::call_digest(name, digest_of(algorithm) + option, types, dimension);
  return agreed;
}

/// The signature of a call of `algorithm` without values, such as a barrier.
template <class Op, policy Algorithm>
constexpr signature signature_of(const Algorithm& algorithm) {
  constexpr const call_form& form = detail::form_of<Algorithm, Op, false, 0>;
  return {.digest = detail::call_digest(detail::fnv1a(Algorithm::name), digest_of(algorithm), form.hash, 0),
          .form = &form};
}

/// Returns a header that contains the fields that are equal in all messages of `call` on which ranks agree as `agreed`
/// says: the signature of the call, or of those of its messages that have other elements.
constexpr header header_of(const signature& agreed, const call_identity& call) noexcept {
  header h{.element = agreed.element,
           .sequence = header::sequence_part(call.sequence),
           .digest = agreed.digest ^ call.history,
           .dimension = agreed.dimension};
  h.index = agreed.index;
  return h;
}

/// Whether the header `h` belongs to a message of `call` on which ranks agree as `agreed` says. The dimension is
/// compared as a part of the digest.
constexpr bool is_of(const header& h, const signature& agreed, const call_identity& call) noexcept {
  return h.digest == (agreed.digest ^ call.history) && h.sequence == header::sequence_part(call.sequence) &&
         h.element == agreed.element && h.index == agreed.index;
}

namespace detail {

/// The description of a call, either of this rank or of a peer, for error messages.
struct call_view {
  rank_t rank = 0;
  signature agreed{};
  std::uint64_t history = 0;
  bounded_text operation{};
  bounded_text algorithm{}; // name and options; empty if the call is unknown

  [[nodiscard]] bool known() const noexcept { return !algorithm.empty(); }
  /// The name of the algorithm, without its options.
  [[nodiscard]] std::string_view name() const noexcept {
    return algorithm.view().substr(0, algorithm.view().find_first_of("(, "));
  }
};

/// Describes a call of the rank `rank`. If `describe` is empty, for example after the end of a successful call, the
/// result lacks the options of the algorithm.
[[gnu::cold]] call_view view_of(const call_identity& call, const signature& agreed, rank_t rank,
                                const description& describe = {});

[[gnu::cold]] joined_text name_of(element_code code);

/// Throws `mismatch` with a message that names the property `what`, in which the ranks differ, and gives the values of
/// both ranks. `where` says in which collective, unless it is the one that fails.
template <class Value>
[[noreturn, gnu::cold]] void throw_mismatch(const char* what, rank_t peer, Value theirs, rank_t rank, Value own,
                                            const char* where = "") {
  raise<mismatch>({"ranks disagree on ", what, where, ": rank ", peer, " has ", theirs, ", rank ", rank, " has ", own});
}

/// Throws `mismatch` if `h`, the header of a message from `peer` to this rank, `rank`, has the same tag as the messages
/// of `call`, but belongs to a call with another number.
[[gnu::cold]] void check_sequence(const header& h, rank_t peer, const call_identity& call, rank_t rank);

/// Compares `h`, the header of an unexpected message from `peer`, with `ours`, the header that this rank expects.
/// Throws `mismatch` for the first field that differs; returns if only the digests differ. For a peer that does not
/// describe its call: messages of other phases of the same call may have other elements.
[[gnu::cold]] void check_fields(const header& h, rank_t peer, const header& ours, rank_t rank);

/// Throws `mismatch` with a message that names the difference between two calls whose digests differ. `where` says in
/// which collective, unless it is the one that fails.
[[noreturn, gnu::cold]] void throw_mismatch(const call_view& theirs, const call_view& own, const char* where = "");

} // namespace detail

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/signature-inl.hpp>
#endif
