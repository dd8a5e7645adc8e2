// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An awaitable that has its result already: what the functions of `host_work` return where those of a device return a
// task.
#pragma once

#include <spar/core/compiler.hpp>

#include <coroutine>
#include <utility>

namespace spar {

/// An awaitable that has its result already, so that `co_await` does not suspend.
template <class T = void>
class [[nodiscard]] ready {
 public:
  /// Holds `result`.
  explicit ready(T result) noexcept : result_(std::move(result)) {}
  /// Constructs the result in place: `make()` returns it.
  template <class Make>
  [[nodiscard]] static ready from(const Make& make) {
    return ready(0, make);
  }
  [[nodiscard]] static constexpr bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<>) noexcept {}
  [[nodiscard]] T&& await_resume() noexcept { return std::move(result_); }
  /// The result, for functions that are no coroutines because they never run on a device.
  [[nodiscard]] T get() && noexcept { return std::move(result_); }

 private:
  template <class Make>
  ready(int, const Make& make) : result_(make()) {}

  T result_;
};
/// The same without a result.
template <>
class [[nodiscard]] ready<void> {
 public:
  [[nodiscard]] static constexpr bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<>) noexcept {}
  static void await_resume() noexcept {}
  /// Does nothing.
  static void get() noexcept {}
};

} // namespace spar
