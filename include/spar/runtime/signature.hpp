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
[[gnu::cold]] inline call_view view_of(const call_identity& call, const signature& agreed, rank_t rank,
                                       const description& describe = {}) {
  call_view own{rank, agreed, call.history};
  const bool named = agreed.form != nullptr;
  own.operation.add(named ? agreed.form->operation : "an unnamed operation");
  if (named && agreed.form->width != 0) own.operation.add_parts(" of rows of ", agreed.form->width, " values");
  if (describe.write != nullptr) {
    describe.write(describe.object, own.algorithm);
  } else {
    own.algorithm.add(named ? agreed.form->algorithm : "an unnamed algorithm");
    if (agreed.root >= 0) own.algorithm.add_parts("(root=", agreed.root, ")");
  }
  if (!call.chosen.empty()) own.algorithm.add(", which runs "), own.algorithm.add(call.chosen);
  if (named && agreed.form->dense) own.algorithm.add(" of dense values");
  return own;
}

[[gnu::cold]] inline joined_text name_of(element_code code) {
  constexpr const char* names[] = {"none",   "float",  "double", "int32",    "int64",
                                   "uint32", "uint64", "half",   "bfloat16", "bytes"};
  const auto number = static_cast<unsigned>(code);
  if (are_rows(code)) return {"rows of ", names[number - 32]};
  if (number < sizeof(names) / sizeof(names[0])) return {names[number]};
  return {"a user-defined type (code ", number, ")"};
}

/// Throws `mismatch` with a message that names the property `what`, in which the ranks differ, and gives the values of
/// both ranks. `where` says in which collective, unless it is the one that fails.
template <class Value>
[[noreturn, gnu::cold]] void throw_mismatch(const char* what, rank_t peer, Value theirs, rank_t rank, Value own,
                                            const char* where = "") {
  raise<mismatch>({"ranks disagree on ", what, where, ": rank ", peer, " has ", theirs, ", rank ", rank, " has ", own});
}

/// Throws `mismatch` if `h`, the header of a message from `peer` to this rank, `rank`, has the same tag as the messages
/// of `call`, but belongs to a call with another number.
[[gnu::cold]] inline void check_sequence(const header& h, rank_t peer, const call_identity& call, rank_t rank) {
  const header ours = header_of(call.agreed, call);
  if (h.sequence == ours.sequence) return;
  const auto number = [&](const header& of) { return of.sequence * max_in_flight + call.sequence % max_in_flight; };
  if (static_cast<std::int16_t>(h.sequence - ours.sequence) > 0)
    throw_mismatch("the number of the collective", peer, number(h), rank, number(ours));
  raise<mismatch>({"ranks disagree on the collective number ", number(h), ", which has ended: rank ", peer,
                   " has sent a message in it that rank ", rank, " has not received, and that arrives in collective ",
                   number(ours), ", whose messages have the same tag"});
}

/// Compares `h`, the header of an unexpected message from `peer`, with `ours`, the header that this rank expects.
/// Throws `mismatch` for the first field that differs; returns if only the digests differ. For a peer that does not
/// describe its call: messages of other phases of the same call may have other elements.
[[gnu::cold]] inline void check_fields(const header& h, rank_t peer, const header& ours, rank_t rank) {
  if (h.element != ours.element) {
    throw_mismatch("the element type", peer, name_of(h.element).c_str(), rank, name_of(ours.element).c_str());
  }
  // Two vectors of rows may have different dimensions because their rows have different widths.
  if (h.dimension != header::unknown_dimension && h.dimension != ours.dimension && !are_rows(h.element)) {
    throw_mismatch("the dimension n", peer, h.dimension, rank, ours.dimension);
  }
  if (h.index != ours.index)
    throw_mismatch("the index type", peer, name_of(h.index).c_str(), rank, name_of(ours.index).c_str());
}

/// Throws `mismatch` with a message that names the difference between two calls whose digests differ. `where` says in
/// which collective, unless it is the one that fails.
[[noreturn, gnu::cold]] inline void throw_mismatch(const call_view& theirs, const call_view& own,
                                                   const char* where = "") {
  const rank_t root = theirs.agreed.root;
  if (!theirs.known() && root >= 0 && own.agreed.root >= 0 && root != own.agreed.root)
    throw_mismatch("the root", theirs.rank, root, own.rank, own.agreed.root, where);
  if (!theirs.known()) {
    raise<mismatch>({"ranks disagree on the algorithm, its options, the operation, the dimension or an earlier "
                     "collective: rank ",
                     own.rank, " has ", own.algorithm.c_str(), ", ", own.operation.c_str(),
                     ", n = ", own.agreed.dimension, "; rank ", theirs.rank,
                     " differs, but did not report its values: it has left the call or did not answer within 1 s"});
  }
  const auto differ = [&](const char* what, auto their_value, auto ours) {
    throw_mismatch(what, theirs.rank, their_value, own.rank, ours, where);
  };
  constexpr element_code no_values{}; // the type of a call without values, such as a barrier
  const bool have_values = theirs.agreed.element != no_values && own.agreed.element != no_values;
  const bool same_values = theirs.agreed.element == own.agreed.element &&
                           theirs.agreed.dimension == own.agreed.dimension && theirs.agreed.index == own.agreed.index;
  if (have_values && !same_values && theirs.name() != own.name()) {
    const joined_text their_call(theirs.algorithm.c_str(), " (n = ", theirs.agreed.dimension, ", ",
                                 name_of(theirs.agreed.element).c_str(), ")");
    const joined_text ours(own.algorithm.c_str(), " (n = ", own.agreed.dimension, ", ",
                           name_of(own.agreed.element).c_str(), ")");
    differ("the algorithm", their_call.c_str(), ours.c_str());
  }
  if (have_values && theirs.agreed.element != own.agreed.element)
    differ("the element type", name_of(theirs.agreed.element).c_str(), name_of(own.agreed.element).c_str());
  const bool same_algorithm = theirs.algorithm.view() == own.algorithm.view();
  if (same_algorithm && theirs.operation.view() != own.operation.view())
    differ("the operation", theirs.operation.c_str(), own.operation.c_str());
  const option_difference between(theirs.algorithm.c_str(), own.algorithm.c_str());
  if (have_values && theirs.agreed.dimension != own.agreed.dimension) {
    if (same_algorithm || !between.of_values())
      differ("the dimension n", theirs.agreed.dimension, own.agreed.dimension);
    // Options that differ, too, say more, such as the lengths of the tensors that are fused.
    const joined_text their_dimension(theirs.agreed.dimension, " of ", between.theirs());
    const joined_text ours(own.agreed.dimension, " of ", between.own());
    differ("the dimension n", their_dimension.c_str(), ours.c_str());
  }
  if (have_values && theirs.agreed.index != own.agreed.index)
    differ("the index type", name_of(theirs.agreed.index).c_str(), name_of(own.agreed.index).c_str());
  if (!same_algorithm) {
    differ(between.of_values() ? "the algorithm's options" : "the algorithm", between.theirs(), between.own());
  }
  raise<mismatch>({"ranks disagree on the algorithm", where, ": both run ", own.algorithm.c_str(), ", but rank ",
                   theirs.rank, " has the digest ", theirs.agreed.digest, " and rank ", own.rank, " has the digest ",
                   own.agreed.digest, "; the options of their algorithms or operations, their plans or states differ"});
}

} // namespace detail

} // namespace spar::inline v0_1
