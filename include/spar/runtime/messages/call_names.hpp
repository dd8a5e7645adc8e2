// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names of collectives. Ranks match named collectives by their names, so ranks may start these collectives in different
// orders.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/tasks/operation_record.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The name of a collective. Ranks may start collectives with different names in different orders. A communicator has
/// at most 2048 names. A name can be reused once the call with this name has ended. A call with a name throws
/// `invalid_argument` if the previous call with this name has not ended, if 2048 other names are in use, or if a
/// different name has the same hash.
struct named {
  std::string_view text; ///< the name; must be valid until the call has started
};

namespace detail {

/// The number of a collective, modulo `max_in_flight`, is at least `first_named` if the collective has a name, and
/// smaller if it has no name.
inline constexpr std::uint64_t first_named = max_in_flight / 2;

/// The record of a name. The record is also the operation that a call awaits until this rank knows the number of the
/// name. The tag of this operation is -1, which no message has.
struct call_name : operation_record {
  call_name* next = nullptr;
  std::string text;
  std::uint64_t hash = 0;
  std::uint64_t number = 0; // the numbers of this name's calls modulo `max_in_flight`; 0 until rank 0 has assigned it
  std::uint64_t calls = 0;
  std::uint64_t history = 0; // hash of the signatures of this name's calls so far
  bool in_flight = false;
};

/// The names of the collectives on a communicator. Rank 0 numbers the names in the order in which rank 0 first uses
/// them, and sends the numbers to the other ranks.
class call_names {
 public:
  call_names() = default;
  call_names(const call_names&) = delete;
  ~call_names();

  /// Returns the record of the name `text`; adds the record if the name is new. Throws `invalid_argument` if the name
  /// is new and the communicator already has 2048 names, or if a different name has the same hash.
  call_name& find(std::string_view text);

  /// Stores in `calls[i]` the number of calls of the name with the number `first_named` + i, for i < `count`. Returns
  /// the least number of elements behind which all are 0.
  [[gnu::cold]] std::size_t count_calls(std::uint64_t* calls, std::uint64_t count) const noexcept;

  /// Only on rank 0: assigns the next number to `name`, and returns the text of the control message that sends this
  /// number to the other ranks.
  [[nodiscard, gnu::cold]] std::string give_number(call_name& name);
  /// Reads `note`, the text of the control message in which rank 0 has sent the number of a name. Throws
  /// `corrupt_message` if the number is out of range, or if the name already has a different number.
  [[gnu::cold]] call_name& take_number(std::string_view note);

 private:
  call_name& find(std::uint64_t hash);

  std::array<call_name*, 256> chains_{}; // hash table: lists linked by `next`
  std::uint64_t count_ = 0;
  std::uint64_t next_ = first_named;
};

} // namespace detail

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/messages/call_names-inl.hpp>
#endif
