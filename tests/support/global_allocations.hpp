// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The number of calls of the global operator new, and calls that fail. Link global_allocations.cpp, which replaces the
// operator.
#pragma once

#include <cstdint>
#include <ostream>

namespace spar_test {

[[nodiscard]] std::uint64_t global_allocations();

/// While an object of this class exists, the allocation number `number` of this thread, from 1, throws std::bad_alloc;
/// none if `number` is 0.
class failing_allocation {
 public:
  explicit failing_allocation(std::uint64_t number);
  failing_allocation(const failing_allocation&) = delete;
  ~failing_allocation();
  /// Whether the allocation has failed.
  [[nodiscard]] bool failed() const;

 private:
  std::uint64_t number_;
};

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
