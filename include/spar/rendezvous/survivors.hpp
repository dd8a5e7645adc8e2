// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the ranks of a group agree who is left after a failure. The store is the witness: for each rank it keeps one
// word, the rank's own report or the word of another rank that has given it up, and the first word stays. So all ranks
// read the same list, in one round, whoever is stopped or dies meanwhile (docs/decisions/0056-shrink.md).
#pragma once

#include <spar/core/address.hpp>
#include <spar/rendezvous/store.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace spar::inline v0_1::detail {

/// For how long a rank waits for the reports of the others.
class patience {
 public:
  /// For how many more seconds to wait for the rank `peer`; 0 if it is known to be lost, or if the time is over.
  virtual double left(rank_t peer) = 0;

 protected:
  ~patience() = default;
};

/// A rank that goes on: its number in the old group, and what it tells the others about itself, such as its address.
struct survivor {
  rank_t rank;
  std::string text;
  bool operator==(const survivor&) const = default;
};

/// Returns the ranks that go on, in ascending order: those of the `size` ranks of a group that have called this
/// function before another one has lost `patience` with them. All callers get the same list, or an error: the calling
/// rank, which has the number `own` and tells `text` about itself, gets `peer_failed` if it is not on the list. The
/// keys in `meeting` begin with `prefix`, which is the same on all ranks and belongs to this agreement alone. Throws
/// the errors of `meeting`; the rank may then call again with the same arguments. Throws `invalid_argument` if the rank
/// has called with another `text` before.
[[nodiscard]] std::vector<survivor> agree_on_survivors(rendezvous_store& meeting, std::string_view prefix, rank_t own,
                                                       rank_t size, std::string_view text, patience& with);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/survivors-inl.hpp>
#endif
