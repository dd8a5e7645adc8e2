// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are late: how long each computes in each step, of which most is slept through (eager-SGD, section 6.2).
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <stdexcept>
#include <string>
#include <string_view>

#include <sched.h>

namespace images {

/// Seconds, as in "20ms". Throws std::runtime_error for anything else.
inline double seconds_of(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 0;
  if (error != std::errc{} || scale == 0 || !(number >= 0 && number * scale <= 3600)) {
    throw std::runtime_error(fmt::format("a time is at most an hour, as 20ms, 500us or 1s, not '{}'", text));
  }
  return number * scale;
}

/// Who is late in a step.
enum class imbalance { none, one, rotating };

/// How long a rank computes in a step.
struct pace {
  imbalance who = imbalance::none;
  double least = 0;                 ///< seconds of a step of a rank that is not late
  double shortest = 0, longest = 0; ///< delays, in seconds

  /// Seconds of one rank of P; `drawn` is the rank that is late where one is.
  double seconds(std::size_t step, unsigned rank, unsigned drawn, unsigned P) const {
    switch (who) {
    case imbalance::one:
      return least + (rank == drawn ? longest : 0);
    case imbalance::rotating: { // every rank has each delay in turn
      const auto place = static_cast<double>((step + rank) % P) / std::max(1U, P - 1);
      return least + shortest + place * (longest - shortest);
    }
    default:
      return least;
    }
  }
};

/// From the command line's `--imbalance`, `--step` and `--delays`. Throws std::runtime_error.
inline pace pace_of(const std::string& who, const std::string& step, const std::string& delays) {
  constexpr std::array<std::string_view, 3> names{"none", "one", "rotating"};
  const auto name = std::find(names.begin(), names.end(), who);
  if (name == names.end()) throw std::runtime_error(fmt::format("--imbalance is none, one or rotating, not '{}'", who));
  const std::size_t colon = delays.find(':');
  if (colon == std::string::npos) {
    throw std::runtime_error(fmt::format("--delays are the shortest and the longest, as 5ms:40ms, not '{}'", delays));
  }
  const pace found{static_cast<imbalance>(name - names.begin()), seconds_of(step),
                   seconds_of(std::string_view(delays).substr(0, colon)),
                   seconds_of(std::string_view(delays).substr(colon + 1))};
  if (found.shortest > found.longest) {
    throw std::runtime_error(fmt::format("the shortest delay comes first in --delays: not '{}'", delays));
  }
  return found;
}

/// Sleeps until then, by MPI's clock, but for a look at the messages every 0.3 ms: what the other ranks sum needs this
/// one's help. A thread that polls would take the core from a rank that computes.
template <class Exchange>
void sleep_until(double end, Exchange& by) {
  for (double left = end - MPI_Wtime(); left > 0; left = end - MPI_Wtime()) {
    if (by.progress()) { // all others would wait for this rank's naps at each message
      sched_yield();
      continue;
    }
    const timespec nap{0, static_cast<long>(1e9 * std::min(left, 3e-4))};
    nanosleep(&nap, nullptr);
  }
}

} // namespace images
