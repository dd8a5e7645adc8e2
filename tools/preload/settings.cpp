// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "settings.hpp"

#include <spar/core/error.hpp>
#include <spar/model/network_file.hpp>
#include <spar/system/text/composition_text.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <variant>

namespace preload {

namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

/// The algorithm of a composition that the library can run below MPI_Allreduce; none for any other.
algorithm algorithm_of(const spar::composition_text& parts) {
  const bool plain = std::holds_alternative<spar::storage::coo>(parts.store);
  if (!std::holds_alternative<spar::everything>(parts.select) ||
      (!plain && !std::holds_alternative<spar::storage::named_codec>(parts.store)))
    return algorithm::none;
  if (parts.over != spar::topology_text::flat)
    return std::holds_alternative<spar::chains>(parts.by) ? algorithm::chains : algorithm::none;
  const auto find = []<class Schedule>(const Schedule&) {
    if constexpr (std::same_as<Schedule, spar::cheapest>) return algorithm::automatic;
    if constexpr (std::same_as<Schedule, spar::rabenseifner>) return algorithm::rabenseifner;
    if constexpr (std::same_as<Schedule, spar::ring>) return algorithm::ring;
    if constexpr (std::same_as<Schedule, spar::recursive_doubling>) return algorithm::rec_doubling;
    if constexpr (std::same_as<Schedule, spar::two_shot>) return algorithm::two_shot;
    if constexpr (std::same_as<Schedule, spar::one_shot>) return algorithm::one_shot;
    return algorithm::none;
  };
  return std::visit(find, parts.by);
}

void read_algorithm(std::string_view text, settings& to) {
  const auto refuse = [&](const char* why) {
    spar::raise<spar::invalid_argument>({"SPAR_ALLREDUCE=", text, ": ", why});
  };
  if (text.size() >= to.text.size()) refuse("the text is too long; expected at most 127 characters");
  try {
    const spar::composition_text parts = spar::parse_composition(text);
    to.chosen = algorithm_of(parts);
    to.encodes = !std::holds_alternative<spar::storage::coo>(parts.store);
  } catch (const spar::invalid_argument& e) {
    refuse(e.what());
  }
  if (to.chosen == algorithm::none || (to.chosen == algorithm::rabenseifner && to.encodes)) {
    refuse("expected automatic, rabenseifner, ring, rec_doubling, two_shot, one_shot, flexreduce, blueconnect or "
           "hierarchical, with or without a codec, which rabenseifner cannot have");
  }
  std::copy(text.begin(), text.end(), to.text.begin());
}

void read_bytes(std::string_view text, settings& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to.min_bytes);
  if (error != std::errc() || end != text.data() + text.size()) {
    spar::raise<spar::invalid_argument>({"SPAR_MIN_BYTES must be a number of bytes, not '", std::string(text), "'"});
  }
}

void read_model(std::string_view file, settings& to) {
  try {
    to.network = spar::read_network(std::string(file));
  } catch (const spar::invalid_argument& e) {
    spar::raise<spar::invalid_argument>({"SPAR_NETWORK: ", e.what()});
  }
}

} // namespace

settings read_settings() noexcept {
  settings read;
  read.verbose = environment("SPAR_VERBOSE") == "1";
  try {
    const auto chosen = environment("SPAR_ALLREDUCE");
    read_algorithm(chosen.empty() ? "automatic" : chosen, read);
    if (const auto bytes = environment("SPAR_MIN_BYTES"); !bytes.empty()) {
      read_bytes(bytes, read);
      read.min_exact_bytes = read.min_exact_bytes_on_one_host = read.min_bytes;
      read.min_exact_bytes_a_rank = 0;
    }
    if (const auto file = environment("SPAR_NETWORK"); !file.empty()) {
      read_model(file, read);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spar: %s; every MPI_Allreduce goes to the MPI library\n", e.what());
    read.chosen = algorithm::none;
  }
  return read;
}

} // namespace preload
