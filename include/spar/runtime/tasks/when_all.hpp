// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Waiting for several awaitables at once: tasks, pending calls, sends and receives.
#pragma once

#include <spar/runtime/tasks/task.hpp>

#include <coroutine>

namespace spar {

namespace detail {

/// An awaiter that waits until an awaitable has ended, and leaves its result or error in the awaitable.
template <class Awaitable>
class until_ended : public by_reference<Awaitable> {
 public:
  using by_reference<Awaitable>::by_reference;
  void await_resume() const noexcept {}
};

} // namespace detail

/// Returns a task that ends when all awaitables in `work` have ended, with or without errors; await this task at once.
/// Each awaitable started when it was created, so all run concurrently. After the task has ended, `co_await` on an
/// awaitable returns its result or throws its error without waiting.
template <class Net, class... Awaitables>
  requires(detail::has_scheduler<Net> || detail::has_port<Net>)
task<void> when_all(Net& net, Awaitables&... work) {
  (void)net; // a parameter only because its scheduler resumes this coroutine
  ((co_await detail::until_ended<Awaitables>(work)), ...);
}

} // namespace spar
