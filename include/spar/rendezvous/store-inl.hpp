// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of store.hpp.
#pragma once

#include <spar/rendezvous/store.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE std::string memory_store::put(std::string_view key, std::string_view value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, added] = values_.try_emplace(std::string(key), value);
  if (added) signal_.notify_all();
  return at->second;
}

SPAR_INLINE std::optional<std::string> memory_store::wait(std::string_view key, double seconds) {
  constexpr double most = 1e9; // a year has 3e7 seconds
  const double until = detail::monotonic_seconds() + (seconds < most ? seconds : most);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (;;) {
    if (const auto at = values_.find(key); at != values_.end()) return at->second;
    if (!(detail::monotonic_seconds() < until)) return std::nullopt;
    signal_.wait(mutex_, until);
  }
}

SPAR_INLINE const std::string* memory_store::find(std::string_view key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

} // namespace spar::inline v0_1
