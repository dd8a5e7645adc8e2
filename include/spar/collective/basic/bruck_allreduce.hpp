// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of counters in 2 ceil(log2 P) rounds for any number of ranks: a reduce-scatter that runs Bruck's allgather
// in reverse, then Bruck's allgather (Bruck et al. 1997).
#pragma once

#include <spar/collective/basic/allgather.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/ownership.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Sums unsigned counters in place. Every rank sends and receives 2 (P - 1) blocks of n / P counters. Floating-point
/// values are not allowed: each block is summed in a different order of the ranks, so the rounding errors would differ
/// from block to block.
struct bruck_allreduce {
  template <transport Net, std::unsigned_integral T>
  task<void> operator()(channel<Net> net, std::span<T> counters) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{counters.size(), p};
    const auto piece = [&](rank_t first, rank_t count, bool wrapped) {
      return detail::adjacent_blocks(counters, owner, p, first, count, wrapped);
    };
    for (auto distance = static_cast<rank_t>(std::bit_ceil(static_cast<std::uint32_t>(p)) / 2); distance > 0;
         distance /= 2) {
      const rank_t count = std::min(distance, p - distance);
      const rank_t destination = (net.rank() + distance) % p;
      const payload out{
          wire_format::dense,
          piece(destination, count, false).size() + piece(destination, count, true).size(),
          {std::as_bytes(piece(destination, count, false)), std::as_bytes(piece(destination, count, true))}};
      auto sending = net.send(destination, out);
      message_buffer in(net.memory());
      co_await net.receive((net.rank() + p - distance) % p, in);
      for (const std::size_t piece_number : {0U, 1U}) {
        const std::span<T> mine = piece(net.rank(), count, piece_number == 1);
        const auto theirs = in.piece<T>(piece_number);
        if (theirs.size() != mine.size())
          raise<corrupt_message>({"bruck_allreduce: ", theirs.size(), " counters arrived in a piece; expected ",
                                  mine.size(), " counters"});
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<T>(mine[i] + theirs[i]);
      }
      in.release();
      co_await sending;
    }
    const bruck_allgather allgather;
    co_await allgather(net, counters);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
