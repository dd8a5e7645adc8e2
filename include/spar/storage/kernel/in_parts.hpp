// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass that takes entries from values, shared by threads.
#pragma once

#include <spar/core/parallel.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace spar::kernel {

/// The room of each thread in the output of a pass that takes up to `count` of n values.
constexpr std::size_t part_room(std::size_t count, std::size_t n, int threads) noexcept {
  return threads == 1 ? count : std::min(count, n / static_cast<std::size_t>(threads) + 1);
}

/// What `pass(part, begin, end)` takes from the parts of [0, n), each on a thread of its own, of which there are 1 to
/// max_threads. Each writes to a room of its own; then `move(part, to, count)` brings together what they have taken, in
/// their order, `to` being the place of the first entry, which is never behind the part's room. The same as one part,
/// but that parts stop each by itself: `seen` is n where none did.
template <class Pass, class Move>
taken in_parts(int threads, std::size_t n, const Pass& pass, const Move& move) {
  if (threads == 1) return pass(0, 0, n);
  std::array<taken, max_threads> parts;
  spar::detail::in_parallel(0, threads, [&](int part) {
    parts[static_cast<std::size_t>(part)] =
        pass(part, spar::detail::part_begin(n, part, threads), spar::detail::part_begin(n, part + 1, threads));
  });
  taken all;
  for (int part = 0; part < threads; ++part) {
    const taken& own = parts[static_cast<std::size_t>(part)];
    if (part > 0) move(part, all.count, own.count);
    all.count += own.count;
    all.seen += own.seen;
  }
  return all;
}

} // namespace spar::kernel
