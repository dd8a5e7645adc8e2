// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses numbers with units.
#include "units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace spar::perf {

namespace {

using unit = std::pair<std::string_view, double>;

constexpr unit counts[] = {{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
constexpr unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
constexpr unit rates[] = {{"B/s", 1},          {"KB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
                          {"TB/s", 1e12},      {"KiB/s", 0x1p10},   {"MiB/s", 0x1p20},   {"GiB/s", 0x1p30},
                          {"Kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};

double parse(std::string_view option, std::string_view text, std::span<const unit> units, std::string_view like) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error == std::errc() && std::isfinite(number) && number >= 0) {
    for (const auto& [name, factor] : units) {
      const bool fits = std::isfinite(number * factor);
      if (fits && (suffix == name || (suffix.empty() && number == 0))) return number * factor;
    }
  }
  throw usage_error(std::string(option) + " must be a number like " + std::string(like) + ", not '" +
                    std::string(text) + "'");
}

} // namespace

std::uint64_t parse_count(std::string_view option, std::string_view text) {
  constexpr std::string_view like = "1000000, 1e6 or 16M (K = 2^10, M = 2^20, G = 2^30)";
  const double number = parse(option, text, counts, like);
  if (number != std::floor(number) || number > 0x1p53) {
    throw usage_error(std::string(option) + " must be a whole number of at most 2^53, not '" + std::string(text) + "'");
  }
  return static_cast<std::uint64_t>(number);
}

double parse_seconds(std::string_view option, std::string_view text) {
  return parse(option, text, times, "1us (s, ms, us, ns)");
}

double parse_rate(std::string_view option, std::string_view text) {
  return parse(option, text, rates, "1GB/s (B/s to TB/s, KiB/s to GiB/s, Kbit/s to Tbit/s)");
}

double parse_share(std::string_view option, std::string_view text) {
  constexpr unit plain[] = {{"", 1}};
  const double number = parse(option, text, plain, "1e-3");
  if (number == 0 || number > 1)
    throw usage_error(std::string(option) + " must have a number above 0 and at most 1, not '" + std::string(text) +
                      "'");
  return number;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

} // namespace spar::perf
