// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions that divide the local work of a rank among several threads.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>

#include <cstddef>

namespace spar::inline v0_1 {

/// Maximum number of threads that share the local work of one rank. The number is limited because functions keep the
/// results of all threads on the stack.
inline constexpr int max_threads = 256;

/// Throws `invalid_argument` if `threads` is not in [1, max_threads].
inline void check_threads(int threads) {
  static_assert(max_threads == 256);
  detail::check_number(threads, {1, max_threads, "a number in [1, 256]"}, "the number of threads");
}

namespace detail {

/// Returns the number of threads, from 1 to `threads`, that a pass over n values should use: one thread per 32768
/// values, because starting a thread costs as much as a pass over 32768 values.
constexpr int useful_threads(int threads, std::size_t n) noexcept {
  const std::size_t most = n >> 15;
  return most < static_cast<std::size_t>(threads) ? std::max(1, static_cast<int>(most)) : threads;
}

/// Calls `work(part)` for each number `part` in [first, last) in parallel. Normally the calling thread runs one part,
/// and each other part runs on its own new thread. If the system cannot start enough threads, some threads run
/// several parts in turn. `work` must not throw.
template <class Work>
void in_parallel(int first, int last, const Work& work) noexcept {
  if (last - first <= 1) {
    if (first < last) work(first);
    return;
  }
  const int middle = first + (last - first) / 2;
  thread upper;
  bool started = false;
  try {
    upper = thread([&work, middle, last] { in_parallel(middle, last, work); });
    started = true;
  } catch (...) {
    in_parallel(middle, last, work);
  }
  in_parallel(first, middle, work);
  if (started) upper.join();
}

/// Returns the first index of part number `part` when [0, n) is divided into `parts` parts whose sizes differ by at
/// most 1.
constexpr std::size_t part_begin(std::size_t n, int part, int parts) noexcept {
  const auto p = static_cast<std::size_t>(part), all = static_cast<std::size_t>(parts);
  return n / all * p + n % all * p / all;
}

} // namespace detail

} // namespace spar::inline v0_1
