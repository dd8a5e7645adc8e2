// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A coroutine needs a parameter that provides the scheduler which resumes the coroutine.
#include <spar/runtime/tasks/task.hpp>

struct node {
  spar::scheduler& scheduler();
};

#ifdef POSITIVE_CONTROL
spar::task<int> f(node&, int x) { co_return x; }
#else
spar::task<int> f(int x) { co_return x; }
#endif
