// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a program on the ranks of a group of threads, and collects what it returns.
#pragma once

#include <spar/transport/threads.hpp>

#include <cstddef>
#include <utility>
#include <vector>

/// Runs `program(net)` on P ranks, and returns what it returns on each.
template <class Program>
auto on_ranks(spar::rank_t ranks, Program program) {
  std::vector<decltype(program(std::declval<spar::threads&>()))> results(static_cast<std::size_t>(ranks));
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) { results[static_cast<std::size_t>(net.rank())] = program(net); });
  return results;
}
