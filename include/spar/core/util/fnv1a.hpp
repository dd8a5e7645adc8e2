// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The 64-bit hash FNV-1a (Fowler, Noll and Vo), by which spar compares names.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>
#include <string_view>

namespace spar::inline v0_1::detail {

inline constexpr std::uint64_t fnv1a_basis = 14695981039346656037U;

constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t octet) noexcept {
  return (hash ^ octet) * 1099511628211U;
}
/// Returns the hash of `text`. To hash a text in pieces, pass the hash of the preceding pieces as `hash`.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_basis) noexcept {
  for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return hash;
}

} // namespace spar::inline v0_1::detail
