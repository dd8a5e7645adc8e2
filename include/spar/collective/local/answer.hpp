// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What functions return that a collective awaits because they may need an answer from a device, such as a number of
// entries: on the host, `co_await` gets the result at once, without a suspension; over a transport `values_on_device`,
// the coroutine is suspended until the device has answered, and the rank goes on with its other calls.
#pragma once

#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <coroutine>
#include <type_traits>
#include <utility>

namespace spar::local {

/// An awaitable that has its result already.
template <class T = void>
class [[nodiscard]] ready {
 public:
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
template <>
class [[nodiscard]] ready<void> {
 public:
  [[nodiscard]] static constexpr bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<>) noexcept {}
  static void await_resume() noexcept {}
  static void get() noexcept {}
};

/// The awaitable of a result of type T that may need an answer from the device of `Net`, if `Net` has one. Await it at
/// once, because it may refer to the arguments of the function that returned it.
template <transport Net, class T = void>
using answer = std::conditional_t<values_on_device<Net>, task<T>, ready<T>>;

namespace detail {

template <transport Net, class T>
task<T> finish_at_once(channel<Net> net, T result) {
  (void)net; // a parameter only because its scheduler would resume this coroutine
  co_return result;
}

template <transport Net>
task<void> finish_at_once(channel<Net> net) {
  (void)net;
  co_return;
}

} // namespace detail

/// Returns an answer that is known without the device.
template <transport Net, class T>
answer<Net, T> known([[maybe_unused]] channel<Net> net, T result) {
  if constexpr (values_on_device<Net>)
    return detail::finish_at_once(net, std::move(result));
  else
    return ready<T>(std::move(result));
}

template <transport Net>
answer<Net> known([[maybe_unused]] channel<Net> net) {
  if constexpr (values_on_device<Net>)
    return detail::finish_at_once(net);
  else
    return ready<>();
}

/// Returns the answer `f(result)`, where `result` is that of `first`. `f` must own, or refer to, what exists until the
/// returned answer has been awaited.
template <transport Net, class T, class F>
auto then(channel<Net>, ready<T> first, F f) {
  if constexpr (std::is_void_v<T>) {
    using result = std::invoke_result_t<F&>;
    if constexpr (std::is_void_v<result>)
      return f(), ready<>();
    else
      return ready<result>::from(f);
  } else {
    using result = std::invoke_result_t<F&, T>;
    if constexpr (std::is_void_v<result>)
      return f(first.await_resume()), ready<>();
    else
      return ready<result>::from([&] { return f(first.await_resume()); });
  }
}
template <transport Net, class T, class F>
task<std::invoke_result_t<F&, T>> then(channel<Net> net, task<T> first, F f) {
  (void)net; // a parameter only because its scheduler resumes this coroutine
  T result = co_await std::move(first);
  co_return f(std::move(result));
}
template <transport Net, class F>
task<std::invoke_result_t<F&>> then(channel<Net> net, task<void> first, F f) {
  (void)net;
  co_await std::move(first);
  co_return f();
}

} // namespace spar::local
