// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of call_names.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/messages/call_names.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE call_names::~call_names() {
  for (call_name* chain : chains_) {
    while (chain != nullptr) delete std::exchange(chain, chain->next);
  }
}

SPAR_INLINE call_name& call_names::find(std::string_view text) {
  call_name& name = find(fnv1a(text));
  if (name.text.empty()) name.text = text;
  if (name.text != text) {
    raise<invalid_argument>(
        {"the names ", name.text.c_str(), " and ", text, " have the same hash: rename one of these collectives"});
  }
  return name;
}

SPAR_INLINE call_name& call_names::find(std::uint64_t hash) {
  call_name*& chain = chains_[hash % chains_.size()];
  for (call_name* n = chain; n != nullptr; n = n->next) {
    if (n->hash == hash) return *n;
  }
  if (count_ >= max_in_flight - first_named) {
    raise<invalid_argument>({"too many names of collectives: a communicator has at most ", max_in_flight - first_named,
                             "; reuse names whose calls have ended"});
  }
  ++count_;
  auto* name = new call_name;
  name->hash = hash;
  name->next = std::exchange(chain, name);
  return *name;
}

SPAR_INLINE std::size_t call_names::count_calls(std::uint64_t* calls, std::uint64_t count) const noexcept {
  std::size_t size = 0;
  for (const call_name* name : chains_) {
    for (; name != nullptr; name = name->next) {
      const std::uint64_t i = name->number - first_named;
      if (name->calls == 0 || i >= count) continue;
      calls[i] = name->calls;
      size = i < size ? size : i + 1;
    }
  }
  return size;
}

SPAR_INLINE std::string call_names::give_number(call_name& name) {
  name.number = next_++;
  std::string note(2 * sizeof(std::uint64_t), '\0');
  std::memcpy(note.data(), &name.hash, sizeof(name.hash));
  std::memcpy(note.data() + sizeof(name.hash), &name.number, sizeof(name.number));
  return note;
}

SPAR_INLINE call_name& call_names::take_number(std::string_view note) {
  std::uint64_t hash = 0;
  std::uint64_t number = 0;
  if (note.size() == sizeof(hash) + sizeof(number)) {
    std::memcpy(&hash, note.data(), sizeof(hash));
    std::memcpy(&number, note.data() + sizeof(hash), sizeof(number));
  }
  if (number < first_named || number >= max_in_flight) {
    raise<corrupt_message>({"a control message assigns the number ", number,
                            " to a named collective; expected a number in [", first_named, ", ", max_in_flight, ")"});
  }
  call_name& name = find(hash);
  if (name.number != 0 && name.number != number) {
    raise<corrupt_message>({"a control message assigns the number ", number,
                            " to a named collective that already has the number ", name.number});
  }
  name.number = number;
  return name;
}

} // namespace detail

} // namespace spar::inline v0_1
