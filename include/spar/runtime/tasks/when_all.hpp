// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joining several operations: tasks, handles of collectives, sends and receives.
#pragma once

#include <spar/runtime/tasks/task.hpp>

#include <coroutine>

namespace spar {

namespace detail {

/// Waits for the end of an awaitable and leaves its result, or its error, where it is.
template <class Awaitable>
class until_ended {
 public:
  explicit until_ended(Awaitable& work) noexcept : work_(&work) {}
  [[nodiscard]] bool await_ready() const { return work_->await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const { work_->await_suspend(waiting); }
  void await_resume() const noexcept {}

 private:
  Awaitable* work_;
};

} // namespace detail

/// Ends when all of `work` has ended, well or not; await it at once. Each result, or error, is then taken from its own
/// awaitable without waiting. All of them began when they were made, so they run side by side.
template <class Net, class... Awaitables>
  requires(detail::has_scheduler<Net> || detail::has_port<Net>)
task<void> when_all(Net& net, Awaitables&... work) {
  (void)net; // its scheduler resumes this coroutine
  ((co_await detail::until_ended<Awaitables>(work)), ...);
}

} // namespace spar
