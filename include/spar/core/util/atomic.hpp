// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A small atomic variable. The standard header of atomic variables would add 1.0 to 1.5 % to what the compiler does
// for a program with one call (docs/decisions/0005-compile-time.md).
#pragma once

#include <spar/core/compiler.hpp>

namespace spar::inline v0_1::detail {

/// A value that threads share: a number, a bool or an enumeration. Reads acquire, writes release.
template <class T>
class atomic {
 public:
  constexpr atomic(T value) noexcept : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  operator T() const noexcept {
    T value;
    __atomic_load(&value_, &value, __ATOMIC_ACQUIRE);
    return value;
  }
  void operator=(T value) noexcept { __atomic_store(&value_, &value, __ATOMIC_RELEASE); }
  /// For numbers: adds `x`, which may be negative. Returns the sum.
  T operator+=(T x) noexcept { return __atomic_add_fetch(&value_, x, __ATOMIC_ACQ_REL); }
  /// Replaces the value `from` by `to`. Returns false and changes nothing if there is another value.
  [[nodiscard]] bool replace(T from, T to) noexcept {
    return __atomic_compare_exchange(&value_, &from, &to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }

 private:
  alignas(sizeof(T)) T value_;
};

} // namespace spar::inline v0_1::detail
