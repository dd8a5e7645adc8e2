// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of cost.hpp that do not depend on the type of values.
#pragma once

#include <spar/model/cost.hpp>

namespace spar::inline v0_1 {

[[gnu::noinline]] SPAR_INLINE double call_shape::expected_union(std::int64_t count) const noexcept {
  if (n <= 0 || k >= n) return n;
  double all = 0;
  for (double some = k; count > 0; count /= 2, some += some - some * some / n) {
    if (count % 2 == 1) all += some - all * some / n;
  }
  return all;
}

[[gnu::noinline]] SPAR_INLINE double seconds_recursive_doubling(const network_model& net, const call_shape& p,
                                                                std::uint64_t parts) {
  ensure(parts >= 1 && parts <= 8, "the model of recursive doubling knows 1 to 8 parts");
  const auto active = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(p.ranks)));
  const std::int64_t folded = p.ranks - active; // the number of pairs; their active ranks have the lowest numbers
  const double part = 1 / static_cast<double>(parts);

  // The seconds on the way of a contribution that is folded: back to its rank, or to the active rank farthest from it.
  const auto seconds = [&](bool back) {
    double arrived[8] = {}, taking = 0; // when each part arrived; the time to decode and merge it
    double core = 0, link = 0;          // the times until which they are busy
    const auto step = [&](double sent, double merged, bool waits = true) {
      const double coding = p.coding_seconds(net, sent) * part, taken = taking;
      taking = coding / 2 + (merged > 0 ? p.merge_seconds(net, merged) * part : 0);
      for (std::uint64_t i = 0; i < parts; ++i) {
        core = std::max(core, arrived[i]) + taken + coding / 2;
        link = std::max(link, core) + message_overhead(net) + net.beta * p.stream_bytes(net, sent) * part;
        // A sum that is there already is merged during the sending, whose end the next round waits for.
        arrived[i] = waits ? link + shared_latency(net) : link - taking;
      }
    };
    if (folded > 0) {
      step(p.k, 2 * p.k);
      core = link = 0; // of the receiver, which has not worked yet
      // If the number of pairs is odd, the peer of one receiver in the first round has no partner and sends its parts
      // at the same time as the receiver's partner, so that the parts of both pass the receiver's link in turn.
      const double occupied = message_overhead(net) + net.beta * p.stream_bytes(net, p.k) * part;
      if (folded % 2 == 1)
        for (std::uint64_t i = 1; i < parts; ++i) arrived[i] += static_cast<double>(i) * occupied;
    }
    for (std::int64_t distance = 1; distance < active; distance *= 2) {
      // The first `distance` active ranks and the `distance` after them, with their partners. Without partners, these
      // have begun earlier, so that their sum has arrived.
      const std::int64_t partners = std::min(distance, std::max<std::int64_t>(0, folded - distance));
      const double own = p.expected_union(distance + std::min(distance, folded));
      step(own, own + p.expected_union(distance + partners), !back || folded == 0 || partners > 0);
    }
    if (folded > 0 && back) {
      step(p.expected_union(p.ranks), 0);
      core = 0;
    }
    for (std::uint64_t i = 0; i < parts; ++i) core = std::max(core, arrived[i]) + taking;
    return core;
  };
  return folded > 0 ? std::max(seconds(true), seconds(false)) : seconds(false);
}

} // namespace spar::inline v0_1
