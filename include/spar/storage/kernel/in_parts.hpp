// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass that takes entries from values, shared by threads.
#pragma once

#include <spar/core/parallel.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <array>
#include <cstddef>

namespace spar::kernel {

/// What `pass(part, begin, end)` takes from the parts of [0, n), each on a thread of its own, which writes to a room of
/// its own. Then `move(part, to, count)` brings together what the parts have taken, in their order, `to` being the
/// place of the first entry; it is never behind the part's room. The same as one part, but that parts stop each by
/// itself: `seen` is n where none did.
template <class Pass, class Move>
taken in_parts(int threads, std::size_t n, const Pass& pass, const Move& move) {
  if (threads <= 1) return pass(0, 0, n);
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
