// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives that are matched by name, in whatever order ranks start them.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/tasks/wait_list.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace spar {

/// The name of a collective. Ranks may start collectives with different names in different orders. A communicator has
/// at most 2048 names; a name can be reused once its call has ended.
struct named {
  std::string_view text;
};

namespace detail {

/// Sequence numbers modulo `max_in_flight` belong to names from this number on, and to unnamed collectives below it.
inline constexpr std::uint64_t first_named = max_in_flight / 2;

/// The record of a name. A call waits for the number of its name in an operation, whose tag no message has.
struct call_name : operation_record {
  call_name* next = nullptr;
  std::string text;
  std::uint64_t hash = 0;
  std::uint64_t number = 0; // sequence number, modulo `max_in_flight`, of the calls with this name; 0 until known
  std::uint64_t calls = 0;
  bool in_flight = false;
};

/// The names of a communicator. Rank 0 numbers the names in the order in which it first starts collectives with them,
/// and sends the numbers to the other ranks.
class call_names {
 public:
  call_names() = default;
  call_names(const call_names&) = delete;
  ~call_names() {
    for (call_name* chain : chains_) {
      while (chain != nullptr) delete std::exchange(chain, chain->next);
    }
  }

  /// Finds or adds a name. Throws `invalid_argument` if there are too many names, or if two names have the same hash.
  call_name& find(std::string_view text) {
    call_name& name = find(fnv1a(text));
    if (name.text.empty()) name.text = text;
    if (name.text != text) {
      raise<invalid_argument>({"the names ", name.text, " and ", std::string(text),
                               " have the same hash: rename one of these collectives"});
    }
    return name;
  }

  /// On rank 0, assigns the next number to a name. Returns the text of the control message to the other ranks.
  [[nodiscard]] std::string give_number(call_name& name) {
    name.number = next_++;
    std::string note(2 * sizeof(std::uint64_t), '\0');
    std::memcpy(note.data(), &name.hash, sizeof(name.hash));
    std::memcpy(note.data() + sizeof(name.hash), &name.number, sizeof(name.number));
    return note;
  }
  /// Reads a number that rank 0 has assigned. Throws `corrupt_message` if the number is out of range, or if the name
  /// has another number already.
  call_name& take_number(std::string_view note) {
    std::uint64_t hash = 0;
    std::uint64_t number = 0;
    if (note.size() == sizeof(hash) + sizeof(number)) {
      std::memcpy(&hash, note.data(), sizeof(hash));
      std::memcpy(&number, note.data() + sizeof(hash), sizeof(number));
    }
    if (number < first_named || number >= max_in_flight) {
      raise<corrupt_message>({"a control message gives a named collective the number ", number,
                              "; expected a number in [", first_named, ", ", max_in_flight, ")"});
    }
    call_name& name = find(hash);
    if (name.number != 0 && name.number != number) {
      raise<corrupt_message>(
          {"a control message gives a named collective the number ", number, "; expected its number ", name.number});
    }
    name.number = number;
    return name;
  }

 private:
  call_name& find(std::uint64_t hash) {
    call_name*& chain = chains_[hash % chains_.size()];
    for (call_name* n = chain; n != nullptr; n = n->next) {
      if (n->hash == hash) return *n;
    }
    if (count_ >= max_in_flight - first_named) {
      raise<invalid_argument>({"a communicator has at most ", max_in_flight - first_named,
                               " names of collectives: reuse names whose calls have ended"});
    }
    ++count_;
    auto* name = new call_name;
    name->hash = hash;
    name->next = std::exchange(chain, name);
    return *name;
  }

  std::array<call_name*, 256> chains_{}; // hash table, chained by `next`
  std::uint64_t count_ = 0;
  std::uint64_t next_ = first_named;
};

} // namespace detail

} // namespace spar
