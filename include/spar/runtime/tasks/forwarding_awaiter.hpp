// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The base class of awaiters that extend an operation of a transport.
#pragma once

#include <spar/core/compiler.hpp>

#include <coroutine>
#include <utility>

namespace spar {

/// Owns an operation of the type Inner, and forwards the three functions of an awaiter to the operation. A derived
/// class hides the functions whose behaviour it changes.
template <class Inner>
class forwarding_awaiter {
 public:
  /// Takes over the operation `inner`.
  explicit forwarding_awaiter(Inner inner) noexcept : inner_(std::move(inner)) {}
  [[nodiscard]] bool await_ready() const noexcept { return inner_.await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const { inner_.await_suspend(waiting); }
  void await_resume() const { inner_.await_resume(); }

 private:
  Inner inner_;
};

} // namespace spar
