// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are late on purpose: parses durations, and sleeps while taking part in rounds of other ranks.
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace examples {

/// Parses "32ms", "300us" or "1.5s" into seconds. Throws std::runtime_error for anything else, and for more than a
/// minute.
inline double seconds_of(std::string_view option, std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, end);
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 0;
  if (error != std::errc{} || scale == 0 || !(number >= 0 && number * scale <= 60)) {
    throw std::runtime_error(
        fmt::format("{} must be from 0s to 60s, like 1.5s, 32ms or 300us, not '{}'", option, text));
  }
  return number * scale;
}

/// Sleeps until the time `then` on MPI's clock, in naps of `nap` seconds. Between naps, takes part in rounds of other
/// ranks; a polling thread would take cores from ranks that compute. During a round this function does not nap, because
/// all other ranks would wait for this rank at each message.
template <class Optimizer>
void sleep_until(double then, Optimizer& by, double nap) {
  for (double now = MPI_Wtime(); now < then; now = MPI_Wtime()) {
    if (by.progress())
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(nap, then - now)));
  }
}

} // namespace examples
