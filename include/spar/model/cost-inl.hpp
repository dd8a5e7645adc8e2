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

SPAR_INLINE std::uint64_t parts_of_doubling(const network_model& net, const call_shape& p) noexcept {
  return p.coding > 0 && seconds_recursive_doubling(net, p, 2) < seconds_recursive_doubling(net, p, 1) ? 2 : 1;
}

namespace detail {

SPAR_INLINE double seconds_of_exchange(const network_model& net, const call_shape& p, double bytes,
                                       double coding) noexcept {
  const auto messages = static_cast<double>(p.ranks - 1);
  const double transfer = messages * message_overhead(net) + bytes * net.beta;
  return shared_latency(net) + std::max(transfer, coding) + std::min(transfer, coding) / messages;
}

} // namespace detail

SPAR_INLINE double seconds_split(const network_model& net, const call_shape& p) noexcept {
  if (p.ranks < 2) return 0;
  const double sent = p.others() * p.k;
  return detail::seconds_of_exchange(net, p, sent * p.entry_bytes(), sent * p.coding);
}

SPAR_INLINE double seconds_ssar_split(const network_model& net, const call_shape& p) noexcept {
  const double result = p.expected_union(p.ranks);
  return seconds_split(net, p) + p.k * net.gamma_sparse * std::max(1.0, p.rounds()) + p.rounds() * net.alpha +
         net.beta * p.others() * result * p.entry_bytes() + result * (net.gamma_sparse + p.coding) / 2;
}

SPAR_INLINE double seconds_dsar_split(const network_model& net, const call_shape& p,
                                      double second_phase_bytes) noexcept {
  return seconds_split(net, p) + call_shape::scatter_seconds(net, p.k) +
         p.n / static_cast<double>(p.ranks) * net.gamma_dense + p.rounds() * net.alpha +
         net.beta * p.others() * p.n * second_phase_bytes;
}

SPAR_INLINE double seconds_dense_recursive_doubling(const network_model& net, const call_shape& p) noexcept {
  const double extra = p.power_of_two() ? 0 : 1; // the fold adds two rounds, and ceil(log2 P) includes one of them
  return (p.rounds() + extra) * (net.alpha + net.beta * p.n * p.value_bytes) + p.rounds() * p.n * net.gamma_dense;
}

SPAR_INLINE double seconds_rabenseifner(const network_model& net, const call_shape& p) noexcept {
  const auto active = std::bit_floor(static_cast<std::uint64_t>(p.ranks));
  const double rounds = static_cast<double>(std::bit_width(active) - 1);
  const double sent = 1.0 - 1.0 / static_cast<double>(active);
  double seconds = 2 * rounds * net.alpha + 2 * sent * p.n * p.value_bytes * net.beta + sent * p.n * net.gamma_dense;
  if (!p.power_of_two()) seconds += 2 * (net.alpha + net.beta * p.n * p.value_bytes) + p.n * net.gamma_dense;
  return seconds;
}

SPAR_INLINE double seconds_ring(const network_model& net, const call_shape& p) noexcept {
  return 2 * static_cast<double>(p.ranks - 1) * net.alpha + 2 * p.others() * p.n * p.value_bytes * net.beta +
         p.others() * p.n * net.gamma_dense;
}

SPAR_INLINE double seconds_dense(const network_model& net, const call_shape& p) noexcept {
  return std::min(seconds_dense_recursive_doubling(net, p),
                  std::min(seconds_rabenseifner(net, p), seconds_ring(net, p)));
}

} // namespace spar::inline v0_1
