// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is meant: ranks, and the tags of the messages between them.
#pragma once

#include <cstdint>

namespace spar {

using rank_t = std::int32_t;
using tag_t = std::int32_t;

/// Numbers for the ranks by which partners in a collective are near each other: both arrays have P entries and are
/// borrowed; null where each rank has its own number.
struct rank_order {
  const rank_t* ranks = nullptr;   ///< the rank of each number
  const rank_t* numbers = nullptr; ///< the number of each rank
};

/// Collectives that may be in flight at once, and concurrent lanes in each; MPI guarantees tags up to 32767 only.
inline constexpr std::uint64_t max_in_flight = 4096;
inline constexpr std::uint8_t max_lanes = 8;

/// The tag of a message: which collective it belongs to, modulo the number in flight, and which lane of it.
constexpr tag_t make_tag(std::uint64_t sequence, std::uint8_t lane) noexcept {
  return static_cast<tag_t>((sequence % max_in_flight) * max_lanes + lane);
}

constexpr std::uint8_t lane_of(tag_t tag) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(tag) % max_lanes);
}
/// The sequence number that a tag was made from, modulo `max_in_flight`.
constexpr std::uint32_t sequence_of(tag_t tag) noexcept { return static_cast<std::uint32_t>(tag) / max_lanes; }

} // namespace spar
