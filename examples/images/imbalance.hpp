// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Late ranks: the duration of each step on each rank, during most of which the rank sleeps (eager-SGD, section 6.2).
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

/// Which ranks are late in a step: none; one random rank; or all, with delays that rotate among the ranks.
enum class imbalance { none, one, rotating };

/// The durations of steps.
struct pace {
  imbalance who = imbalance::none;
  double least = 0;                 ///< seconds of a step on a rank that is not late
  double shortest = 0, longest = 0; ///< delays, in seconds

  /// The seconds of a step on one of P ranks; `drawn` is the late rank of imbalance::one.
  double seconds(std::size_t step, unsigned rank, unsigned drawn, unsigned P) const {
    switch (who) {
    case imbalance::one:
      return least + (rank == drawn ? longest : 0);
    case imbalance::rotating: { // each rank has every delay in turn
      const auto place = static_cast<double>((step + rank) % P) / std::max(1U, P - 1);
      return least + shortest + place * (longest - shortest);
    }
    default:
      return least;
    }
  }
};

/// Parses the options `--imbalance`, `--step` and `--delays`. Throws std::runtime_error if one is invalid.
inline pace pace_of(const std::string& who, const std::string& step, const std::string& delays) {
  constexpr std::array<std::string_view, 3> names{"none", "one", "rotating"};
  const auto name = std::find(names.begin(), names.end(), who);
  if (name == names.end())
    throw std::runtime_error(fmt::format("--imbalance must be none, one or rotating, not '{}'", who));
  const std::size_t colon = delays.find(':');
  if (colon == std::string::npos) {
    throw std::runtime_error(
        fmt::format("--delays must be the shortest and the longest delay, like 5ms:40ms, not '{}'", delays));
  }
  const pace found{static_cast<imbalance>(name - names.begin()), seconds_of("--step", step),
                   seconds_of("--delays", std::string_view(delays).substr(0, colon)),
                   seconds_of("--delays", std::string_view(delays).substr(colon + 1))};
  if (found.shortest > found.longest) {
    throw std::runtime_error(fmt::format("--delays must give the shortest delay first, not '{}'", delays));
  }
  return found;
}

} // namespace images
