// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of leavers.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/endpoint/leavers.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE calls_of_leaver::calls_of_leaver(const last_call& last, const counts& numbers, std::size_t size) noexcept {
  text_.add({reinterpret_cast<const char*>(&last), sizeof(last)});
  text_.add({reinterpret_cast<const char*>(numbers.data()), size * sizeof(numbers[0])});
}

SPAR_INLINE calls_of_leaver::calls_of_leaver(rank_t who, std::string_view text) {
  constexpr std::size_t size = sizeof(std::uint64_t), least = sizeof(last_call) + size;
  if (text.size() < least || text.size() % size != 0) {
    raise<corrupt_message>({"the calls of rank ", who, ", which has left, have ", text.size(),
                            " bytes; expected a multiple of ", size, ", at least ", least});
  }
  text_.add(text);
}

SPAR_INLINE last_call calls_of_leaver::last() const noexcept {
  last_call last;
  if (!text_.empty()) std::memcpy(static_cast<void*>(&last), text_.c_str(), sizeof(last));
  return last;
}

SPAR_INLINE bool calls_of_leaver::lack(std::uint64_t sequence) const noexcept {
  const std::uint64_t number = sequence % max_in_flight, turn = sequence / max_in_flight;
  if (number < first_named) return turn * first_named + number >= like(sequence);
  return counts_name(sequence) && turn >= like(sequence);
}

SPAR_INLINE bool calls_of_leaver::is_silent(double since, double now, double late) noexcept {
  if (noticed_ < 0) noticed_ = now;
  return now >= std::max(since < 0 ? now : since, noticed_) + late;
}

SPAR_INLINE std::uint64_t calls_of_leaver::count(std::size_t i) const noexcept {
  std::uint64_t number = 0;
  const std::size_t at = sizeof(last_call) + i * sizeof(number);
  if (at + sizeof(number) <= text_.size()) std::memcpy(&number, text_.c_str() + at, sizeof(number));
  return number;
}

SPAR_INLINE calls_of_leaver* leavers::find(rank_t who) noexcept {
  for (leaver* l = all_.first(); l != nullptr; l = l->next) {
    if (l->who == who) return &l->calls;
  }
  return nullptr;
}

SPAR_INLINE calls_of_leaver& leavers::add(rank_t who, std::string_view text) {
  if (calls_of_leaver* const known = find(who)) return *known;
  auto* const l = new leaver{who, {who, text}};
  all_.push_back(l);
  return l->calls;
}

SPAR_INLINE void leavers::clear() noexcept {
  while (leaver* l = all_.pop_front()) delete l;
}

} // namespace spar::inline v0_1::detail
