// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How processes that come later join the ranks of a group. A process asks at the first free place of the store, rank 0
// of a group takes it, and one decision in the store says who belongs to the grown group: a table of all, or the reason
// why there is none. The first decision stays, so all read the same (docs/decisions/0057-grow.md).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/rendezvous/store.hpp>
#include <spar/rendezvous/survivors.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spar::inline v0_1::detail {

/// A process that asks to join: its place in the store, and what it tells about itself, such as its address.
struct joiner {
  std::uint64_t place;
  std::string text;
};

/// The decision about a growth. No two ranks have told the same about themselves.
struct growth {
  std::uint64_t next_place = 0;   ///< the place after the last one that was taken, which no other growth has
  std::string settings{};         ///< what rank 0 tells to all
  std::vector<std::string> all{}; ///< what each rank has told about itself: the ranks of the old group, then joiners
};
std::string encode(const growth& from);
/// Throws `corrupt_message` if `bytes` is malformed.
growth decode_growth(std::string_view bytes);

/// On rank 0 of a group: takes the processes that ask at the place `next` and at those that follow, as far as no other
/// group has taken them, for the growth whose keys in `meeting` begin with `prefix`. Refuses processes of another
/// version of spar, those that tell the same about themselves as one before, and those for whose text `validate` throws
/// an error of spar. Sets `next` to the first free place.
[[nodiscard]] std::vector<joiner> take_joiners(rendezvous_store& meeting, std::string_view prefix, std::uint64_t& next,
                                               void (*validate)(std::string_view text));

/// On rank 0 of a group of `size` ranks, which tells `text` about itself and `settings` to all: waits until the other
/// ranks have called `follow_growth` and the `joiners` are there, and decides. A joiner with which this rank loses
/// patience is left out; its number for `with` is `size` plus its number among the `joiners`. Returns a growth without
/// ranks, as on all other ranks, if a joiner has given up before: nobody joins. Throws `peer_failed`, as on all other
/// ranks, if this rank loses patience with another rank of the group or a rank has called `refuse_growth`;
/// `corrupt_message` if the decision is malformed; and the errors of `meeting`.
[[nodiscard]] growth lead_growth(rendezvous_store& meeting, std::string_view prefix, rank_t size, std::string_view text,
                                 std::string_view settings, const std::vector<joiner>& joiners, patience& with);
/// On the other ranks, of which this one has the number `own`: waits for the decision. If this rank loses patience with
/// rank 0 before, nobody joins, and this function throws `peer_failed`. Otherwise, returns and throws as `lead_growth`.
[[nodiscard]] growth follow_growth(rendezvous_store& meeting, std::string_view prefix, rank_t own,
                                   std::string_view text, patience& with);
/// On a rank of the group that cannot take part for the reason `why`: nobody joins, unless the group has decided
/// already. Returns the text of the decision.
std::string refuse_growth(rendezvous_store& meeting, std::string_view prefix, std::string_view why);

/// On a process that tells `text` about itself, which differs from that of any other: asks to join until a group has
/// decided to take it. Throws `timeout` if none has after `seconds`, `mismatch` if rank 0 of a group has refused it,
/// `corrupt_message` if the decision is malformed, and the errors of `meeting`.
[[nodiscard]] growth join_group(rendezvous_store& meeting, std::string_view text, double seconds);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/joiners-inl.hpp>
#endif
