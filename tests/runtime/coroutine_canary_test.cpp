// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms of co_await that the library uses must construct and destroy each object exactly once, with every compiler.
// GCC 12 destroys aggregate temporaries of a full expression with co_await twice; the forms tested here are safe.
#include <spar/runtime/tasks/task.hpp>

#include <gtest/gtest.h>

#include <array>
#include <coroutine>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace {

struct node {
  spar::pool memory;
  spar::scheduler queue{memory};
  [[nodiscard]] spar::scheduler& scheduler() { return queue; }
};

/// Counts live objects, and detects use after destruction.
class tracked {
 public:
  tracked() { ++alive; }
  tracked(const tracked& other) : magic_(other.magic_) { ++alive; }
  tracked(tracked&& other) noexcept : magic_(other.magic_) { ++alive; }
  tracked& operator=(const tracked&) = default;
  ~tracked() {
    --alive;
    if (magic_ != intact) ++damaged;
    magic_ = 0;
  }
  [[nodiscard]] int value() const {
    if (magic_ != intact) ++damaged;
    return 1;
  }
  static inline int alive = 0;
  static inline int damaged = 0;

 private:
  static constexpr int intact = 0x5EED;
  int magic_ = intact;
};

/// An awaiter that suspends once.
class pause {
 public:
  explicit pause(node& at) : at_(&at) {}
  [[nodiscard]] bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { at_->queue.post(waiting); }
  [[nodiscard]] int await_resume() const { return 1; }

 private:
  node* at_;
};

/// An awaiter with a constructor and a member that must be destroyed once.
class owning_pause {
 public:
  owning_pause(node& at, tracked held) : inner_(at), held_(std::move(held)) {}
  [[nodiscard]] bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { inner_.await_suspend(waiting); }
  [[nodiscard]] int await_resume() const { return held_.value(); }

 private:
  pause inner_;
  tracked held_;
};

struct aggregate {
  tracked held;
  int number;
};
class with_constructor {
 public:
  with_constructor(tracked held, int number) : held_(std::move(held)), number_(number) {}
  [[nodiscard]] int number() const { return held_.value() * number_; }

 private:
  tracked held_;
  int number_;
};

spar::task<int> by_value(node& at, tracked t) {
  const pause p{at};
  co_await p;
  co_return t.value();
}
spar::task<int> takes_aggregate(node& at, aggregate a) {
  const pause p{at};
  co_await p;
  co_return a.held.value() * a.number;
}
spar::task<int> takes_constructed(node& at, with_constructor c) {
  const pause p{at};
  co_await p;
  co_return c.number();
}
template <class F>
spar::task<int> calls(node& at, F f) {
  const pause p{at};
  co_await p;
  co_return f();
}

// --- the safe forms ---

spar::task<int> temporary_of_a_class(node& at) { co_return co_await by_value(at, tracked{}); }
spar::task<int> named_task(node& at) {
  auto t = by_value(at, tracked{});
  co_return co_await std::move(t);
}
spar::task<int> named_aggregate(node& at) {
  aggregate a{tracked{}, 3};
  co_return co_await takes_aggregate(at, std::move(a)) - 2;
}
spar::task<int> constructed_temporary(node& at) {
  co_return co_await takes_constructed(at, with_constructor{tracked{}, 3}) - 2;
}
spar::task<int> named_lambda(node& at) {
  const tracked x;
  auto f = [x] { return x.value(); };
  co_return co_await calls(at, std::move(f));
}
spar::task<int> lambda_of_references(node& at) {
  const tracked x;
  co_return co_await calls(at, [&x] { return x.value(); });
}
spar::task<int> awaiter_with_constructor(node& at) { co_return co_await owning_pause(at, tracked{}); }
spar::task<int> named_awaiter(node& at) {
  const owning_pause p(at, tracked{});
  co_return co_await p;
}
spar::task<int> either(node& at, bool first) {
  int result = 0;
  if (first)
    result = co_await by_value(at, tracked{});
  else
    result = co_await owning_pause(at, tracked{});
  co_return result;
}
spar::task<int> in_a_loop(node& at) {
  int total = 0;
  for (int i = 0; i < 5; ++i) {
    const tracked local;
    total += co_await by_value(at, local);
  }
  co_return total - 4;
}
spar::task<std::vector<tracked>> many(node& at) {
  std::vector<tracked> all(3);
  const pause p{at};
  co_await p;
  co_return all;
}
spar::task<int> result_by_value(node& at) {
  auto all = co_await many(at);
  co_return all[2].value();
}
spar::task<int> assigned_result(node& at) {
  std::optional<std::vector<tracked>> kept;
  kept.emplace(co_await many(at));
  co_return kept->at(1).value();
}

template <class Form>
void expect_balanced(Form form) {
  tracked::alive = 0;
  tracked::damaged = 0;
  node at;
  {
    auto t = form(at);
    at.queue.run();
    ASSERT_TRUE(t.done());
    EXPECT_EQ(t.result(), 1);
  }
  EXPECT_EQ(tracked::alive, 0);
  EXPECT_EQ(tracked::damaged, 0);
  { // the same if the coroutine is destroyed half-way
    const auto t = form(at);
    EXPECT_FALSE(t.done());
  }
  at.queue.run();
  EXPECT_EQ(tracked::alive, 0) << "destroyed while suspended";
  EXPECT_EQ(tracked::damaged, 0) << "destroyed while suspended";
  EXPECT_EQ(at.memory.live(), 0U);
}

TEST(coroutine_canary, temporary_of_a_class) { expect_balanced(temporary_of_a_class); }
TEST(coroutine_canary, named_task) { expect_balanced(named_task); }
TEST(coroutine_canary, named_aggregate) { expect_balanced(named_aggregate); }
TEST(coroutine_canary, constructed_temporary) { expect_balanced(constructed_temporary); }
TEST(coroutine_canary, named_lambda) { expect_balanced(named_lambda); }
TEST(coroutine_canary, lambda_of_references) { expect_balanced(lambda_of_references); }
TEST(coroutine_canary, awaiter_with_constructor) { expect_balanced(awaiter_with_constructor); }
TEST(coroutine_canary, named_awaiter) { expect_balanced(named_awaiter); }
TEST(coroutine_canary, either_branch) {
  expect_balanced([](node& at) { return either(at, true); });
  expect_balanced([](node& at) { return either(at, false); });
}
TEST(coroutine_canary, in_a_loop) { expect_balanced(in_a_loop); }
TEST(coroutine_canary, result_by_value) { expect_balanced(result_by_value); }
TEST(coroutine_canary, assigned_result) { expect_balanced(assigned_result); }

TEST(coroutine_canary, unsafe_awaiters_are_known) {
  struct unsafe {
    std::unique_ptr<int> owned;
  };
  struct harmless {
    int number;
  };
  EXPECT_FALSE(spar::detail::safe_awaiter<unsafe>);
  EXPECT_TRUE(spar::detail::safe_awaiter<harmless>);
  EXPECT_TRUE(spar::detail::safe_awaiter<owning_pause>);
  EXPECT_TRUE(spar::detail::safe_awaiter<spar::task<int>>);
}

} // namespace
