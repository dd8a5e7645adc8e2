// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of signature.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/signature.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE call_view view_of(const call_identity& call, const signature& agreed, rank_t rank,
                              const description& describe) {
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

SPAR_INLINE joined_text name_of(element_code code) {
  constexpr const char* names[] = {"none",   "float",  "double", "int32",    "int64",
                                   "uint32", "uint64", "half",   "bfloat16", "bytes"};
  const auto number = static_cast<unsigned>(code);
  if (are_rows(code)) return {"rows of ", names[number - 32]};
  if (number < sizeof(names) / sizeof(names[0])) return {names[number]};
  return {"a user-defined type (code ", number, ")"};
}

SPAR_INLINE void check_sequence(const header& h, rank_t peer, const call_identity& call, rank_t rank) {
  const header ours = header_of(call.agreed, call);
  if (h.sequence == ours.sequence) return;
  const auto number = [&](const header& of) { return of.sequence * max_in_flight + call.sequence % max_in_flight; };
  if (static_cast<std::int16_t>(h.sequence - ours.sequence) > 0)
    throw_mismatch("the number of the collective", peer, number(h), rank, number(ours));
  raise<mismatch>({"ranks disagree on the collective number ", number(h), ", which has ended: rank ", peer,
                   " has sent a message in it that rank ", rank, " has not received, and that arrives in collective ",
                   number(ours), ", whose messages have the same tag"});
}

SPAR_INLINE void check_fields(const header& h, rank_t peer, const header& ours, rank_t rank) {
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

SPAR_INLINE void throw_mismatch(const call_view& theirs, const call_view& own, const char* where) {
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
