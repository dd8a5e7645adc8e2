// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of waits.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/endpoint/waits.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE void waits::wake_all(scheduler& ready) noexcept {
  while (operation_record* r = active_.first()) r->wake(ready);
  while (operation_record* r = idle_.first()) r->wake(ready);
}

SPAR_INLINE bool waits::fail_one(const std::uint64_t* sequence, const std::exception_ptr& why, scheduler& ready) {
  for (auto* r = active_.first(); r != nullptr; r = active_.after(*r)) {
    if (r->tag < 0 || (sequence != nullptr && sequence_of(r->tag) != *sequence % max_in_flight)) continue;
    r->error = why;
    r->wake(ready);
    return true;
  }
  return false;
}

SPAR_INLINE bool waits::fail_longest(const std::exception_ptr& why, scheduler& ready) {
  operation_record* const r = active_.first();
  if (r == nullptr) return false;
  r->error = why;
  r->wake(ready);
  return true;
}

} // namespace spar::inline v0_1::detail
