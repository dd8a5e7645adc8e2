// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the names of compressed systems.
#include "compressed_name.hpp"

#include "units.hpp"

#include <spar/core/error.hpp>
#include <spar/storage/named_codec.hpp>

#include <algorithm>
#include <array>

namespace spar::perf {

std::optional<compressed_name> parse_compressed(const std::string& name) {
  constexpr std::array algorithms{"dense", "ring", "rec_doubling", "flexreduce", "dsar_split"};
  const auto plus = name.find('+');
  if (plus == std::string::npos) return std::nullopt;
  compressed_name found{name.substr(0, plus), name.substr(plus + 1)};
  if (std::find(algorithms.begin(), algorithms.end(), found.algorithm) == algorithms.end()) return std::nullopt;
  constexpr std::string_view by_message = "+p2p";
  if (found.codec.ends_with(by_message)) {
    found.codec.resize(found.codec.size() - by_message.size());
    found.messages = true;
    if (found.algorithm != "ring" && found.algorithm != "rec_doubling") {
      throw usage_error(name + ": +p2p is only for ring and rec_doubling");
    }
  }
  try {
    const spar::storage::named_codec known(found.codec);
  } catch (const spar::invalid_argument& e) {
    throw usage_error(name + ": " + e.what());
  }
  return found;
}

} // namespace spar::perf
