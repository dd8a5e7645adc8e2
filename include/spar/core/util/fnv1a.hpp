// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The 64-bit hash FNV-1a (Fowler, Noll and Vo), for names.
#pragma once

#include <cstdint>
#include <string_view>

namespace spar::detail {

inline constexpr std::uint64_t fnv1a_basis = 14695981039346656037U;

constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t octet) noexcept {
  return (hash ^ octet) * 1099511628211U;
}
/// The hash of `text`. If `hash` is the hash of another text, returns the hash of that text followed by `text`.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_basis) noexcept {
  for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return hash;
}

} // namespace spar::detail
