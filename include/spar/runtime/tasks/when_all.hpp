// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Waits for several awaitables: tasks, pending calls, sends and receives.
#pragma once

#include <spar/runtime/tasks/task.hpp>

#include <coroutine>

namespace spar {

namespace detail {

/// Waits for the end of an awaitable, and leaves the result or the error in the awaitable.
template <class Awaitable>
class until_ended : public by_reference<Awaitable> {
 public:
  using by_reference<Awaitable>::by_reference;
  void await_resume() const noexcept {}
};

} // namespace detail

/// Ends when all of `work` has ended, with or without errors. Await it at once. Afterwards take each result, or error,
/// from its own awaitable, which no longer waits. All awaitables started when they were created, so they run
/// concurrently.
template <class Net, class... Awaitables>
  requires(detail::has_scheduler<Net> || detail::has_port<Net>)
task<void> when_all(Net& net, Awaitables&... work) {
  (void)net; // its scheduler resumes this coroutine
  ((co_await detail::until_ended<Awaitables>(work)), ...);
}

} // namespace spar
