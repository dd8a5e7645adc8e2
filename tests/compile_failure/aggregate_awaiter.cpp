// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// GCC 12 destroys aggregate temporaries of a full expression with co_await twice; task rejects aggregates as awaiters.
#include <spar/runtime/tasks/task.hpp>

#include <memory>

struct node {
  spar::scheduler& scheduler();
};

struct awaiter {
#ifdef POSITIVE_CONTROL
  awaiter() {}
#endif
  bool await_ready() { return true; }
  void await_suspend(std::coroutine_handle<>) {}
  void await_resume() {}
  std::unique_ptr<int> owned;
};

spar::task<void> f(node&) {
  awaiter a;
  co_await std::move(a);
}
