// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Late ranks: the delay of each rank in each step (eager-SGD, sections 2.3 and 6.2).
#pragma once

#include "late.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace examples {

/// Which ranks are late in a step: none; some ranks, drawn at random; all, with delays that rotate among the ranks; or
/// all, with random delays as in a cloud.
enum class imbalance { none, random, rotating, cloud };

/// The help of the options `--imbalance` and `--delay`.
inline constexpr const char* imbalance_help =
    "late ranks: none; random:N (N random ranks in each step, by the longest delay); rotating (all ranks, by delays "
    "from the shortest to the longest that move from rank to rank); cloud (all ranks, by random delays, mostly short, "
    "whose mean is the longest delay)";
inline constexpr const char* delay_help = "delay, or the shortest and the longest delay, like 5ms:40ms";

/// The delays of late ranks, which are the same for all systems.
struct delays {
  imbalance who = imbalance::none;
  unsigned late = 0;                ///< number of late ranks with imbalance::random
  double shortest = 0, longest = 0; ///< seconds

  /// The seconds by which one of P ranks is late in a step.
  double of(std::size_t step, unsigned rank, unsigned P, std::uint64_t seed) const {
    const auto number = static_cast<std::uint32_t>(step);
    switch (who) {
    case imbalance::random: { // draws `late` of P ranks, the same on every rank
      std::seed_seq numbers{static_cast<std::uint32_t>(seed), number};
      std::mt19937 random(numbers);
      unsigned left = late;
      for (unsigned r = 0; r < rank; ++r) {
        if (random() % (P - r) < left) --left;
      }
      return random() % (P - rank) < left ? longest : 0;
    }
    case imbalance::rotating: { // each rank has every delay in turn
      const auto place = static_cast<double>((step + rank) % P) / std::max(1U, P - 1);
      return shortest + place * (longest - shortest);
    }
    case imbalance::cloud: {
      // The paper's steps on Google Cloud take 399 to 1892 ms, with a mean of 454 ms and a deviation of 116 ms: delays
      // of up to 1493 ms, with a mean of 55 ms. The distribution is log-normal; cut off at the longest delay, it has a
      // mean of 54 ms and a deviation of 102 ms.
      std::seed_seq numbers{static_cast<std::uint32_t>(seed), number, rank};
      std::mt19937 random(numbers);
      const double variance = std::log(1 + std::pow(116.0 / 55, 2));
      std::lognormal_distribution<double> in_means(-variance / 2, std::sqrt(variance));
      return longest * std::min(in_means(random), 1493.0 / 55);
    }
    default:
      return 0;
    }
  }
};

/// Parses the options `--imbalance` and `--delay` for P ranks. Throws std::runtime_error if one is invalid.
inline delays delays_of(const std::string& who, const std::string& delay, unsigned P) {
  delays found;
  const std::string prefix = "random:";
  if (who.starts_with(prefix)) {
    found.who = imbalance::random;
    const char* const end = who.data() + who.size();
    const auto [stop, error] = std::from_chars(who.data() + prefix.size(), end, found.late);
    if (error != std::errc{} || stop != end || found.late < 1 || found.late > P) {
      throw std::runtime_error(fmt::format("--imbalance random:N must have 1 to {} late ranks, not '{}'", P, who));
    }
  } else {
    constexpr std::array<std::string_view, 4> names{"none", "", "rotating", "cloud"};
    const auto name = std::find(names.begin(), names.end(), who);
    if (name == names.end() || who.empty()) {
      throw std::runtime_error(fmt::format("--imbalance must be none, random:N, rotating or cloud, not '{}'", who));
    }
    found.who = static_cast<imbalance>(name - names.begin());
  }
  const std::size_t colon = std::min(delay.find(':'), delay.size());
  found.shortest = seconds_of("--delay", std::string_view(delay).substr(0, colon));
  found.longest =
      colon == delay.size() ? found.shortest : seconds_of("--delay", std::string_view(delay).substr(colon + 1));
  if (found.shortest > found.longest) {
    throw std::runtime_error(fmt::format("--delay must give the shortest delay first, not '{}'", delay));
  }
  return found;
}

} // namespace examples
