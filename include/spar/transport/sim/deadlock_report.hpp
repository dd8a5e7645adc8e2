// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The error message of a `deadlock` in the simulator, which lists the rank for which each rank waits.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>

#include <cstddef>
#include <string>

namespace spar::detail {

/// Lists the receives that wait for a message, then the messages for which no receive is posted. The list ends after 32
/// receives and messages in all.
template <class Ranks>
[[gnu::cold]] std::string sim_deadlock_report(const Ranks& ranks) {
  std::string text = "no rank can make progress:";
  std::size_t named = 0;
  const auto add = [&](rank_t first, const char* what, rank_t second, tag_t tag) {
    if (++named == 33) text += " and more";
    if (named > 32) return;
    text += sentence(named > 1 ? "; rank " : " rank ", first, what, second, " (collective ", tag / max_lanes, ", lane ",
                     tag % max_lanes, ")");
  };
  for (const auto& r : ranks) {
    for (auto* e = r.port().matching_.receives().first(); e != nullptr; e = e->next) {
      add(r.rank(), " waits for a message from rank ", e->peer, e->tag);
    }
  }
  for (const auto& r : ranks) {
    for (auto* m = r.port().matching_.arrivals().first(); m != nullptr; m = m->next) {
      add(r.rank(), " has posted no receive for a message from rank ", m->source, m->tag);
    }
  }
  return named > 0 ? text : text + " no rank waits for a message, and no message is in flight";
}

} // namespace spar::detail
