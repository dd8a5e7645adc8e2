// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Types and functions for ranks and for the tags of messages.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>

namespace spar::inline v0_1 {

using rank_t = std::int32_t; ///< the number of a rank in its communicator, from 0
using tag_t = std::int32_t;  ///< the tag of a message, see `make_tag`

/// A renumbering of the P ranks that gives nearby numbers to ranks that are near each other in the network. The struct
/// borrows its two arrays, which have P entries each. If the pointers are null, each rank keeps its own number.
struct rank_order {
  const rank_t* ranks = nullptr;   ///< `ranks[i]` is the rank that gets the number i
  const rank_t* numbers = nullptr; ///< `numbers[r]` is the number that rank r gets
};

/// At most 4096 collectives are in flight on a communicator at the same time, and each uses at most 8 lanes. The tags
/// are then at most 32767, the largest tag that every MPI library must support.
inline constexpr std::uint64_t max_in_flight = 4096;
/// The number of lanes of a collective.
inline constexpr std::uint8_t max_lanes = 8;

/// The tag of a message on the lane `lane` of the collective with the number `sequence`. The tag contains this number
/// modulo `max_in_flight`.
constexpr tag_t make_tag(std::uint64_t sequence, std::uint8_t lane) noexcept {
  return static_cast<tag_t>((sequence % max_in_flight) * max_lanes + lane);
}

/// The lane of the messages with the tag `tag`.
constexpr std::uint8_t lane_of(tag_t tag) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(tag) % max_lanes);
}
/// The number, modulo `max_in_flight`, of the collective whose messages have the tag `tag`.
constexpr std::uint32_t sequence_of(tag_t tag) noexcept { return static_cast<std::uint32_t>(tag) / max_lanes; }

} // namespace spar::inline v0_1
