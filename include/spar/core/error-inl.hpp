// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of error.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/error.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE std::size_t write_parts(char* to, std::size_t room, const char* kinds, va_list parts) noexcept {
  std::size_t size = 0;
  for (; *kinds != '\0'; ++kinds) {
    const auto print = [&](auto... what) {
      const bool fits = size < room;
      size += static_cast<std::size_t>(std::snprintf(fits ? to + size : nullptr, fits ? room - size : 0, what...));
    };
    if (*kinds == 't') {
      print("%s", va_arg(parts, const char*));
    } else if (*kinds == 'v') {
      const auto* const text = va_arg(parts, const std::string_view*);
      print("%.*s", static_cast<int>(text->size()), text->data());
    } else if (*kinds == 'd') {
      print("%g", va_arg(parts, double));
    } else if (*kinds == 'i') {
      print("%d", va_arg(parts, int));
    } else if (*kinds == 'u') {
      print("%u", va_arg(parts, unsigned));
    } else if (*kinds == 'l') {
      print("%lld", va_arg(parts, long long));
    } else {
      print("%llu", va_arg(parts, unsigned long long));
    }
  }
  return size;
}

SPAR_INLINE char* join_parts(const char* kinds, ...) {
  va_list parts, again;
  va_start(parts, kinds);
  va_copy(again, parts);
  const std::size_t room = write_parts(nullptr, 0, kinds, parts) + 1;
  auto* const all = static_cast<char*>(std::malloc(room));
  if (all != nullptr) write_parts(all, room, kinds, again);
  va_end(again);
  va_end(parts);
  if (all == nullptr) throw std::bad_alloc();
  return all;
}

} // namespace detail

} // namespace spar::inline v0_1
