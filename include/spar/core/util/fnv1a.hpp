// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hash FNV-1a with 64 bits (Fowler, Noll and Vo), for names.
#pragma once

#include <cstdint>
#include <string_view>

namespace spar::detail {

inline constexpr std::uint64_t fnv1a_basis = 14695981039346656037U;

constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t octet) noexcept {
  return (hash ^ octet) * 1099511628211U;
}
/// The hash of `text`, or of what `hash` is of and `text` behind it.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_basis) noexcept {
  for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return hash;
}

} // namespace spar::detail
