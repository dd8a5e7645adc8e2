// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model's expected times of Ok-Topk by the schedules `balanced_owners` and `pruned_owners` (Ok-Topk, table 1).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/model/cost.hpp>

namespace spar::inline v0_1 {

namespace detail {

/// Expected bytes of a set of `count` random indices below n in the code of `storage::coded`.
inline double set_bytes(double n, double count) noexcept {
  return count <= 0 ? 0 : count * (__builtin_log2(std::max(1.0, n / count)) + 1.5) / 8;
}

/// The time in which the owners count the sums that reach the threshold, in an allgather of three numbers of each rank.
inline double seconds_of_counts(const network_model& net, const call_shape& p) noexcept {
  return p.rounds() * net.alpha + static_cast<double>(p.ranks - 1) * 12 * net.beta;
}

} // namespace detail

/// Expected seconds of a call of the shape `p` by `balanced_owners` on a flat topology: a split, the counts, moves that
/// even out the owners' shares of the k largest sums, and an allgather of the shares. Like all functions of this file,
/// for a call on entries at independent, uniformly random indices, in which ranks neither count entries first nor
/// search for a threshold or for boundaries; these rounds take equally long by both schedules.
inline double seconds_balanced_owners(const network_model& net, const call_shape& p) noexcept {
  if (p.ranks < 2) return 0;
  const double sent = p.others() * p.k; // entries to owners, and sums in the allgather
  const double moves =
      p.ranks > 2 ? shared_latency(net) + 2 * message_overhead(net) : 0; // of few entries, to both neighbours
  const double allgather = p.rounds() * net.alpha + net.beta * sent * p.entry_bytes() + p.k * p.coding / 2;
  const double merging = p.k * net.gamma_sparse * (p.rounds() + 0.5);
  return seconds_split(net, p) + detail::seconds_of_counts(net, p) + moves + allgather + merging;
}

/// Expected seconds of a call of the shape `p` by `pruned_owners`: an exchange of slices, requests, answers, the counts
/// and an exchange of winners.
///
/// The union U of all index sets has the sums, so k / U of them win. As many of a rank's values reach the threshold by
/// themselves, and as many of the winners are at an index of any one rank. An owner asks for the values at an index
/// that another rank has too if they have equal signs.
inline double seconds_pruned_owners(const network_model& net, const call_shape& p) noexcept {
  if (p.ranks < 2) return 0;
  const auto peers = static_cast<double>(p.ranks - 1);
  const double sent = p.others() * p.k, n = p.others() * p.n; // entries to owners and sums to ranks, in their blocks
  const double all = p.expected_union(p.ranks);
  const double won = all > 0 ? std::min(1.0, p.k / all) : 1;
  const double alone = p.n > 0 ? __builtin_pow(1 - std::min(1.0, p.k / p.n), peers) : 1;
  const double asked = (1 - won) * (1 - alone) / 2;
  const double own = won * alone, shared = won * (1 - alone); // winners at an index of the receiver
  const double known = (won + asked) * sent;
  const double value = p.k > 0 ? std::min(p.value_bytes, p.entry_bytes() - detail::set_bytes(p.n, p.k) / p.k) : 0;
  const double coding = net.gamma_coded / 2; // of an index, or of a value

  // The messages for a rank begin with 48 bytes of numbers, and 32 bytes more are the beginnings of nine codes.
  const double slices = won * sent * p.entry_bytes() + 2 * detail::set_bytes(n, (1 - won) / 2 * sent) + 40 * peers;
  const double answers = detail::set_bytes((1 - won) * sent, asked * sent) + asked * sent * value + 15 * peers;
  const double winners = (1 - won) * sent * p.entry_bytes() + shared * sent * value +
                         detail::set_bytes(known, own * sent) + detail::set_bytes(known, shared * sent) + 25 * peers;
  return detail::seconds_of_exchange(net, p, slices, sent * (won * p.coding + (1 - won) * coding)) +
         2 * (shared_latency(net) + peers * message_overhead(net)) + net.beta * answers + 2 * asked * sent * coding +
         detail::seconds_of_counts(net, p) +
         detail::seconds_of_exchange(net, p, winners, sent * ((1 - won) * p.coding + (won + shared) * coding)) +
         p.k * net.gamma_sparse * ((2 + won + asked) * p.rounds() + 1);
}

} // namespace spar::inline v0_1
