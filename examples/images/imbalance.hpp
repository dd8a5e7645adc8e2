// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are late: how long each computes in each step, of which most is slept through (eager-SGD, section 6.2).
#pragma once

#include "../late.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace images {

using examples::seconds_of;

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
  const pace found{static_cast<imbalance>(name - names.begin()), seconds_of("--step", step),
                   seconds_of("--delays", std::string_view(delays).substr(0, colon)),
                   seconds_of("--delays", std::string_view(delays).substr(colon + 1))};
  if (found.shortest > found.longest) {
    throw std::runtime_error(fmt::format("the shortest delay comes first in --delays: not '{}'", delays));
  }
  return found;
}

} // namespace images
