// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allocations of test doubles, which do not fail. Not in the namespace spar_test, because programs that include spar.h
// have a function of this name.
#pragma once

namespace spar_doubles {

/// While an object of this class exists, allocations of this thread do not fail: they are those of a test double.
class unfailing_allocations {
 public:
  unfailing_allocations() { ++nested; }
  unfailing_allocations(const unfailing_allocations&) = delete;
  ~unfailing_allocations() { --nested; }

  static inline thread_local int nested = 0;
};

} // namespace spar_doubles
