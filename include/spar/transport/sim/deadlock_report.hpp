// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The error message of a `deadlock` in the simulator, which lists for what each rank waits.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/runtime/wait_errors.hpp>

#include <cstddef>
#include <string>

namespace spar::inline v0_1::detail {

/// Lists what the ranks wait for, and which ranks wait for nothing although their programs have not ended, then the
/// messages for which no receive is posted. The list ends after 32 entries.
template <class Ranks>
[[gnu::cold]] std::string sim_deadlock_report(Ranks& ranks) {
  std::string text = "no rank can make progress:";
  std::size_t named = 0;
  const auto add = [&](rank_t rank, const auto&... what) {
    if (++named == 33) text += " and more";
    if (named <= 32) text += sentence(named > 1 ? "; rank " : " rank ", rank, what...);
  };
  for (auto& r : ranks) {
    waiting_list& waiting = r.port().waits().active();
    for (auto* w = waiting.first(); w != nullptr; w = waiting.after(*w))
      add(r.rank(), " waits ", awaited(r.port(), *w).c_str());
    if (!r.port().waits().any() && !r.port().has_left_) add(r.rank(), " ", wait_state_of(r.port(), 0).text());
  }
  for (auto& r : ranks) {
    for (auto* m = r.port().matching_.arrivals().first(); m != nullptr; m = m->next) {
      add(r.rank(), " has posted no receive for a message from rank ", m->source, " (collective ", sequence_of(m->tag),
          ", lane ", lane_of(m->tag), ")");
    }
  }
  return text;
}

} // namespace spar::inline v0_1::detail
