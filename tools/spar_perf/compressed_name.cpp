// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the names of compressed systems.
#include "compressed_name.hpp"

#include "system_names.hpp"
#include "units.hpp"

#include <spar/core/error.hpp>
#include <spar/storage/named_codec.hpp>

#include <string>
#include <string_view>

namespace spar::perf {

std::optional<compressed_name> parse_compressed(const std::string& name) {
  const auto plus = name.find('+');
  if (plus == std::string::npos) return std::nullopt;
  compressed_name found{name.substr(0, plus), name.substr(plus + 1)};
  if (!is_word_of(found.algorithm, compressed_names) && !is_word_of(found.algorithm, coded_names)) return std::nullopt;
  if (found.codes_streams()) {
    if (!is_word_of(found.codec, stream_codec_names)) {
      throw usage_error(name + ": unknown code for streams; expected one of " + std::string(stream_codec_names));
    }
    if (!is_word_of(found.algorithm, coded_names)) {
      throw usage_error(name + ": coded is for streams, so only with one of " + std::string(coded_names));
    }
    if (found.is_schedule() && found.algorithm != "ok_topk")
      throw usage_error(name + ": " + found.codec + " is only for ok_topk");
    return found;
  }
  if (!is_word_of(found.algorithm, compressed_names)) {
    throw usage_error(name + ": a codec for vectors is only for " + std::string(compressed_names));
  }
  constexpr std::string_view by_message = "+p2p";
  if (found.codec.ends_with(by_message)) {
    found.codec.resize(found.codec.size() - by_message.size());
    found.messages = true;
    if (found.algorithm != "ring" && found.algorithm != "rec_doubling") {
      throw usage_error(name + ": +p2p is only for ring and rec_doubling");
    }
  }
  constexpr std::string_view by_bound = "bound:";
  try {
    if (found.codec.starts_with(by_bound)) {
      if (found.messages) throw usage_error(name + ": +p2p is only for codecs of messages, and bound makes codes once");
      found.relative = parse_share(name, std::string_view(found.codec).substr(by_bound.size()));
      return found;
    }
    const spar::storage::named_codec known(found.codec);
  } catch (const spar::invalid_argument& e) {
    throw usage_error(name + ": " + e.what());
  }
  return found;
}

} // namespace spar::perf
