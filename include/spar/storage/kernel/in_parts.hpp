// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a pass that takes entries from values on several threads.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <array>
#include <cstddef>

namespace spar::kernel {

/// The number of entries in the output that each thread needs, in a pass that takes up to `count` of n values.
constexpr std::size_t part_room(std::size_t count, std::size_t n, int threads) noexcept {
  return threads == 1 ? count : std::min(count, n / static_cast<std::size_t>(threads) + 1);
}

/// Calls `pass(begin, end, out...)` for each part of [0, n), on `threads` threads, in [1, max_threads]. Each part
/// writes to its own room in the arrays `out`; then the results are moved together in the order of the parts. The
/// result is the same as with one part, except that each part stops on its own if its room is full; `seen` is n if none
/// did.
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
    (std::copy(out + room_of(part), out + room_of(part) + own.count, out + all.count),
     ...); // forwards, as no part exceeds its room
    all.count += own.count;
    all.seen += own.seen;
  }
  return all;
}

} // namespace spar::kernel
