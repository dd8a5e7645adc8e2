// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Computes the maximum of one number per rank, by dissemination (Hensgen, Finkel and Manber 1988).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/wire.hpp>

#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Sets `mine` to the maximum of the numbers `mine` of all ranks. In round t, rank r receives from rank r + 2^t and
/// sends to rank r - 2^t (modulo P). For any number of ranks, ceil(log2 P) rounds suffice, because a maximum does not
/// change if a rank receives a number twice.
template <transport Net>
task<void> find_largest(channel<Net> net, std::uint64_t& mine) {
  const rank_t p = net.size();
  for (rank_t distance = 1; distance < p; distance *= 2) {
    std::uint64_t theirs = 0;
    auto sending = net.send((net.rank() + p - distance) % p, view_message(std::span<const std::uint64_t>(&mine, 1)));
    message_buffer in(net.memory());
    in.place(0, std::span(&theirs, 1));
    co_await net.receive((net.rank() + distance) % p, in);
    co_await sending; // the send must end before `mine` changes
    mine = std::max(mine, theirs);
    net.compute(1);
  }
}

} // namespace spar::inline v0_1
