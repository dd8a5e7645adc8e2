// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a selection pass over an array on several threads, each of which processes its own part of the array.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <array>
#include <cstddef>

namespace spar::inline v0_1::kernel {

/// Returns the room, in entries, that the output of each thread needs if `threads` threads share a pass over n values
/// that selects up to `count` entries.
constexpr std::size_t part_room(std::size_t count, std::size_t n, int threads) noexcept {
  return threads == 1 ? count : std::min(count, n / static_cast<std::size_t>(threads) + 1);
}

/// Splits [0, n) into `threads` parts, and calls `pass(begin, end, out + p * room...)` for each part p in parallel.
/// `threads` must be in [1, max_threads]. At the end, moves the outputs of the parts together, in the order of the
/// parts, so that no gaps are left in the arrays `out`. Returns the sums of the results of all calls of `pass`.
///
/// A call of `pass` must stop early if it would write more than `room` entries. If no call stops early, the output is
/// the same as with one thread, and the returned `seen` is n.
template <class Pass, class... Out>
taken in_parts(int threads, std::size_t n, std::size_t room, const Pass& pass, Out*... out) {
  if (threads == 1) return pass(std::size_t{0}, n, out...);
  std::array<taken, max_threads> parts;
  const auto room_of = [room](int part) { return static_cast<std::size_t>(part) * room; };
  spar::detail::in_parallel(0, threads, [&](int part) {
    parts[static_cast<std::size_t>(part)] =
        pass(spar::detail::part_begin(n, part, threads), spar::detail::part_begin(n, part + 1, threads),
             out + room_of(part)...);
  });
  taken all = parts[0];
  for (int part = 1; part < threads; ++part) {
    const taken& own = parts[static_cast<std::size_t>(part)];
    // No part exceeds its room, so the entries move towards the beginning of the array, as std::copy requires if the
    // ranges overlap.
    (std::copy(out + room_of(part), out + room_of(part) + own.count, out + all.count), ...);
    all.count += own.count;
    all.seen += own.seen;
  }
  return all;
}

} // namespace spar::inline v0_1::kernel
