// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The number of calls of the global operator new. Link global_allocations.cpp, which replaces the operator.
#pragma once

#include <cstdint>
#include <ostream>

namespace spar_test {

[[nodiscard]] std::uint64_t global_allocations();

/// Allocations from the transport's memory and from the global operator new.
struct taken {
  std::uint64_t pooled;
  std::uint64_t global;
  friend bool operator==(const taken&, const taken&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const taken& t) {
  return out << t.pooled << " pooled, " << t.global << " global";
}

} // namespace spar_test
