// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives that are matched by their names, in whatever order ranks start them.
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

/// Names a collective: ranks may start collectives with different names in different orders. Up to 2048 names on a
/// communicator; a name may be used again once its call has ended.
struct named {
  std::string_view text;
};

namespace detail {

/// Of the numbers of collectives in flight those from here on stand for names.
inline constexpr std::uint64_t first_named = max_in_flight / 2;

/// To get to know its number is an operation, with a tag that no message has.
struct call_name : operation_record {
  call_name* next = nullptr;
  std::string text;
  std::uint64_t hash = 0;
  std::uint64_t number = 0; // in place of a sequence number; 0 until it is known
  std::uint64_t calls = 0;
  bool in_flight = false;
};

/// The names of a communicator. Rank 0 numbers them in the order in which it starts them, and tells the others.
class call_names {
 public:
  call_names() = default;
  call_names(const call_names&) = delete;
  ~call_names() {
    for (call_name* chain : chains_) {
      while (chain != nullptr) delete std::exchange(chain, chain->next);
    }
  }

  /// Throws `invalid_argument` where there are too many names, or two that cannot be told apart.
  call_name& find(std::string_view text) {
    call_name& name = find(fnv1a(text));
    if (name.text.empty()) name.text = text;
    if (name.text != text) {
      raise<invalid_argument>({"the names ", name.text, " and ", std::string(text),
                               " have the same hash: one of these collectives needs another name"});
    }
    return name;
  }

  /// Rank 0 gives the next number; the text that tells the others.
  [[nodiscard]] std::string give_number(call_name& name) {
    name.number = next_++;
    std::string note(2 * sizeof(std::uint64_t), '\0');
    std::memcpy(note.data(), &name.hash, sizeof(name.hash));
    std::memcpy(note.data() + sizeof(name.hash), &name.number, sizeof(name.number));
    return note;
  }
  /// What rank 0 has told. Throws `corrupt_message`.
  call_name& take_number(std::string_view note) {
    std::uint64_t hash = 0;
    std::uint64_t number = 0;
    if (note.size() == sizeof(hash) + sizeof(number)) {
      std::memcpy(&hash, note.data(), sizeof(hash));
      std::memcpy(&number, note.data() + sizeof(hash), sizeof(number));
    }
    if (number < first_named || number >= max_in_flight) {
      raise<corrupt_message>({"a control message gives a collective a number that is none"});
    }
    call_name& name = find(hash);
    if (name.number != 0 && name.number != number) raise<corrupt_message>({"a collective is numbered a second time"});
    name.number = number;
    return name;
  }

 private:
  [[gnu::noinline]] call_name& find(std::uint64_t hash) {
    call_name*& chain = chains_[hash % chains_.size()];
    for (call_name* n = chain; n != nullptr; n = n->next) {
      if (n->hash == hash) return *n;
    }
    if (count_ >= max_in_flight - first_named) {
      raise<invalid_argument>({"a communicator has at most ", max_in_flight - first_named,
                               " names of collectives: use a name again for the next call"});
    }
    ++count_;
    auto* name = new call_name;
    name->hash = hash;
    name->next = std::exchange(chain, name);
    return *name;
  }

  std::array<call_name*, 256> chains_{}; // by hash
  std::uint64_t count_ = 0;
  std::uint64_t next_ = first_named;
};

} // namespace detail

} // namespace spar
