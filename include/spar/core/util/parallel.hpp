// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Work on the parts of a range at the same time.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>

#include <cstddef>

namespace spar {

/// No rank's work is shared by more threads: what each has done is kept on the stack.
inline constexpr int max_threads = 256;

/// Throws `invalid_argument` for a number of threads that cannot share work.
inline void check_threads(int threads) {
  if (threads < 1 || threads > max_threads) {
    raise<invalid_argument>({"work is to be shared by ", threads, " threads, which is not in [1, ", max_threads, "]"});
  }
}

namespace detail {

/// As many of `threads` as a pass over n values is worth: what starting one takes, 32 Ki values take as well.
constexpr int useful_threads(int threads, std::size_t n) noexcept {
  const std::size_t most = n >> 15;
  return most < static_cast<std::size_t>(threads) ? std::max(1, static_cast<int>(most)) : threads;
}

/// Calls `work(part)` for the parts in [first, last), each on a thread of its own, one of them the caller's; on the
/// caller's where no more threads are to be had. `work` throws nothing.
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

/// Where part `part` of [0, n) begins, of so many equal parts.
constexpr std::size_t part_begin(std::size_t n, int part, int parts) noexcept {
  const auto p = static_cast<std::size_t>(part), all = static_cast<std::size_t>(parts);
  return n / all * p + n % all * p / all;
}

} // namespace detail

} // namespace spar
