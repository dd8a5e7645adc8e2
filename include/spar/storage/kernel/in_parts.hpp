// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass that takes entries from values, shared by threads.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <array>
#include <cstddef>

namespace spar::kernel {

/// The room of each thread in the output of a pass that takes up to `count` of n values.
constexpr std::size_t part_room(std::size_t count, std::size_t n, int threads) noexcept {
  return threads == 1 ? count : std::min(count, n / static_cast<std::size_t>(threads) + 1);
}

/// What `pass(begin, end, out...)` takes from the parts of [0, n), each on a thread of its own, of which there are 1 to
/// max_threads, and writes to the arrays `out`: first to a room of its own for each part, then brought together in the
/// order of the parts. The same as one part, but that parts stop each by itself: `seen` is n where none did.
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
     ...); // forwards: no part has more than its room
    all.count += own.count;
    all.seen += own.seen;
  }
  return all;
}

} // namespace spar::kernel
