// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of survivors.hpp.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/rendezvous/survivors.hpp>

#include <optional>
#include <utility>

namespace spar::inline v0_1::detail {

SPAR_INLINE std::vector<survivor> agree_on_survivors(rendezvous_store& meeting, std::string_view prefix, rank_t own,
                                                     rank_t size, std::string_view text, patience& with) {
  // A report begins with a plus, the word of a rank that has given up another one with a minus.
  constexpr double longest_wait = 0.05; // seconds until the rank asks `with` again
  const auto key = [&](rank_t r) { return sentence(prefix, r); };

  std::string report("+");
  report.append(text); // may have any bytes
  const std::string kept = meeting.put(key(own), report);
  if (kept.starts_with('-'))
    raise<peer_failed>({"rank ", own, " (this rank) called shrink too late, so the others go on without it: ",
                        std::string_view(kept).substr(1)});
  if (kept != report)
    raise<invalid_argument>({"rank ", own, " calls shrink twice on the same communicator, or two processes have this ",
                             "number; call shrink on the communicator that the first call has returned"});
  std::vector<survivor> list;
  for (rank_t r = 0; r < size; ++r) {
    std::optional<std::string> word;
    if (r == own) word = kept;
    while (!word) {
      const double left = with.left(r);
      if (left > 0)
        word = meeting.wait(key(r), std::min(left, longest_wait));
      else
        word = meeting.put(key(r), sentence("-rank ", own, " has given it up"));
    }
    if (word->starts_with('+')) list.push_back({r, word->substr(1)});
  }
  return list;
}

} // namespace spar::inline v0_1::detail
