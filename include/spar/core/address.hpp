// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Types and functions for ranks and for the tags of messages.
#pragma once

#include <cstdint>

namespace spar {

using rank_t = std::int32_t;
using tag_t = std::int32_t;

/// A renumbering of the ranks that gives nearby numbers to ranks that are near each other in the network. Both arrays
/// have P entries and are borrowed; null pointers mean that each rank keeps its own number.
struct rank_order {
  const rank_t* ranks = nullptr;   ///< the rank of each number
  const rank_t* numbers = nullptr; ///< the number of each rank
};

/// Limits on the collectives in flight at once and on the concurrent lanes of each. Their product fits into the tags
/// that every MPI library guarantees, up to 32767.
inline constexpr std::uint64_t max_in_flight = 4096;
inline constexpr std::uint8_t max_lanes = 8;

/// The tag of a message: the sequence number of its collective, modulo `max_in_flight`, and its lane.
constexpr tag_t make_tag(std::uint64_t sequence, std::uint8_t lane) noexcept {
  return static_cast<tag_t>((sequence % max_in_flight) * max_lanes + lane);
}

constexpr std::uint8_t lane_of(tag_t tag) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(tag) % max_lanes);
}
/// The sequence number from which the tag was made, modulo `max_in_flight`.
constexpr std::uint32_t sequence_of(tag_t tag) noexcept { return static_cast<std::uint32_t>(tag) / max_lanes; }

} // namespace spar
