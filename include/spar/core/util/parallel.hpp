// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes the parts of a range on several threads.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>

#include <cstddef>

namespace spar {

/// Upper limit on the threads that share the work of one rank: the results of the threads are kept on the stack.
inline constexpr int max_threads = 256;

/// Throws `invalid_argument` if `threads` is out of range.
inline void check_threads(int threads) {
  if (threads < 1 || threads > max_threads) {
    raise<invalid_argument>({"the number of threads is ", threads, ", but must be in [1, ", max_threads, "]"});
  }
}

namespace detail {

/// How many of `threads` are worth starting for a pass over n values: starting a thread costs as much as a pass over 32
/// Ki values.
constexpr int useful_threads(int threads, std::size_t n) noexcept {
  const std::size_t most = n >> 15;
  return most < static_cast<std::size_t>(threads) ? std::max(1, static_cast<int>(most)) : threads;
}

/// Calls `work(part)` for each part in [first, last), each on its own thread, one of which is the caller's. Parts for
/// which no thread can be started run on the caller's thread. `work` must not throw.
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

/// The index at which part `part` begins, if [0, n) is divided into `parts` equal parts.
constexpr std::size_t part_begin(std::size_t n, int part, int parts) noexcept {
  const auto p = static_cast<std::size_t>(part), all = static_cast<std::size_t>(parts);
  return n / all * p + n % all * p / all;
}

} // namespace detail

} // namespace spar
