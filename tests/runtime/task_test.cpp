// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// task<T> starts at once, returns its result or its error, resumes through the ready queue, and can be destroyed at any
// point.
#include <spar/runtime/tasks/task.hpp>

#include <gtest/gtest.h>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

/// A rank without a network: a pool and a ready queue.
struct node {
  spar::pool memory;
  spar::scheduler queue{memory};
  [[nodiscard]] spar::scheduler& scheduler() { return queue; }
};

/// Coroutines wait for a gate; `open` makes all waiting coroutines ready.
class gate {
 public:
  explicit gate(node& at) : at_(&at) {}
  [[nodiscard]] bool await_ready() const { return open_; }
  void await_suspend(std::coroutine_handle<> waiting) { waiting_.push_back(waiting); }
  void await_resume() const {}
  void open() {
    open_ = true;
    for (const auto h : std::exchange(waiting_, {})) at_->queue.post(h);
  }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  node* at_;
  std::vector<std::coroutine_handle<>> waiting_;
  bool open_ = false;
};

spar::task<int> returns(node&, int x) { co_return x; }
spar::task<int> returns_later(node&, gate& g, int x) {
  co_await g;
  co_return x;
}

TEST(task, starts_at_once) {
  node at;
  bool begun = false;
  struct marks {
    static spar::task<void> run(node&, bool* flag) {
      *flag = true;
      co_return;
    }
  };
  const auto t = marks::run(at, &begun);
  EXPECT_TRUE(begun);
  EXPECT_TRUE(t.done());
}

TEST(task, gives_its_result) {
  node at;
  auto t = returns(at, 42);
  ASSERT_TRUE(t.done());
  EXPECT_EQ(t.result(), 42);
}

TEST(task, waits_until_what_it_awaits_is_ready) {
  node at;
  gate g{at};
  auto t = returns_later(at, g, 7);
  EXPECT_FALSE(t.done());
  at.queue.run();
  EXPECT_FALSE(t.done());
  g.open();
  EXPECT_FALSE(t.done()) << "resumed outside the ready queue";
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_EQ(t.result(), 7);
}

spar::task<int> adds(node& at, gate& g, int a, int b) {
  auto left = returns_later(at, g, a);
  auto right = returns_later(at, g, b);
  const int x = co_await std::move(left);
  const int y = co_await std::move(right);
  co_return x + y;
}

TEST(task, awaits_several_tasks) {
  node at;
  gate g{at};
  auto t = adds(at, g, 3, 4);
  EXPECT_EQ(g.waiting(), 2U);
  g.open();
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_EQ(t.result(), 7);
}

spar::task<int> throws_later(node&, gate& g) {
  co_await g;
  throw std::domain_error("seven");
}
spar::task<int> passes_on(node& at, gate& g) {
  auto inner = throws_later(at, g);
  co_return co_await std::move(inner);
}
spar::task<int> catches(node& at, gate& g) {
  auto inner = passes_on(at, g);
  int caught = 0;
  try {
    caught = co_await std::move(inner);
  } catch (const std::domain_error&) {
    caught = -1;
  }
  co_return caught;
}

TEST(task, passes_errors_on) {
  node at;
  gate g{at};
  auto t = passes_on(at, g);
  auto c = catches(at, g);
  g.open();
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_THROW((void)t.result(), std::domain_error);
  ASSERT_TRUE(c.done());
  EXPECT_EQ(c.result(), -1);
}

spar::task<void> throws_at_once(node&) {
  throw std::runtime_error("at once");
  co_return;
}

TEST(task, an_error_before_the_first_suspension_waits_for_the_result) {
  node at;
  auto t = throws_at_once(at);
  ASSERT_TRUE(t.done());
  EXPECT_THROW(t.result(), std::runtime_error);
}

spar::task<std::unique_ptr<int>> makes(node&, gate& g, int x) {
  co_await g;
  co_return std::make_unique<int>(x);
}
spar::task<std::unique_ptr<int>> hands_over(node& at, gate& g) {
  auto inner = makes(at, g, 9);
  auto made = co_await std::move(inner);
  co_return made;
}

TEST(task, results_may_be_move_only) {
  node at;
  gate g{at};
  auto t = hands_over(at, g);
  g.open();
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_EQ(*t.result(), 9);
}

TEST(task, can_be_moved_while_suspended) {
  node at;
  gate g{at};
  auto t = returns_later(at, g, 5);
  auto moved = std::move(t);
  auto other = returns(at, 1);
  other = std::move(moved);
  g.open();
  at.queue.run();
  ASSERT_TRUE(other.done());
  EXPECT_EQ(other.result(), 5);
}

/// Counts live objects, to show when they are destroyed.
struct witness {
  int* alive;
  explicit witness(int* count) : alive(count) { ++*alive; }
  witness(const witness& other) : alive(other.alive) { ++*alive; }
  witness& operator=(const witness&) = delete;
  ~witness() { --*alive; }
};

spar::task<int> holds(node&, gate& g, witness w) {
  const witness local{w.alive};
  co_await g;
  co_return *local.alive;
}
spar::task<int> holds_deeper(node& at, gate& g, witness w) {
  auto inner = holds(at, g, w);
  co_return co_await std::move(inner);
}

TEST(task, destroyed_while_suspended_destroys_what_it_holds) {
  node at;
  int alive = 0;
  {
    gate g{at};
    {
      const auto t = holds_deeper(at, g, witness{&alive});
      EXPECT_GT(alive, 0);
    }
    EXPECT_EQ(alive, 0);
  }
  EXPECT_EQ(at.memory.live(), 0U) << "a coroutine frame was not freed";
}

TEST(task, destroyed_while_ready_is_not_resumed) {
  node at;
  int alive = 0;
  {
    gate g{at};
    {
      const auto t = holds_deeper(at, g, witness{&alive});
      g.open();
    }
    EXPECT_EQ(alive, 0);
    at.queue.run();
    EXPECT_TRUE(at.queue.idle());
  }
  EXPECT_EQ(at.memory.live(), 0U);
}

TEST(task, destroyed_when_finished_frees_the_frame) {
  node at;
  {
    const auto t = returns(at, 1);
    EXPECT_EQ(at.memory.live(), 1U);
  }
  EXPECT_EQ(at.memory.live(), 0U);
}

spar::task<std::int64_t> adds_one_by_one(node& at, gate& g, std::int64_t count) {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    auto one = returns(at, 1);
    total += co_await std::move(one);
  }
  co_await g;
  for (std::int64_t i = 0; i < count; ++i) {
    auto one = returns_later(at, g, 1);
    total += co_await std::move(one);
  }
  co_return total;
}

TEST(task, a_million_awaits_in_a_row_keep_the_stack_flat) {
  node at;
  gate g{at};
  auto t = adds_one_by_one(at, g, 1'000'000);
  g.open();
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_EQ(t.result(), 2'000'000);
}

spar::task<int> link(node&, spar::task<int> inner) {
  auto awaited = std::move(inner); // destroyed as soon as it has ended, so that no frame holds a chain of others
  co_return 1 + co_await std::move(awaited);
}

TEST(task, a_chain_of_a_million_keeps_the_stack_flat) {
  node at;
  gate g{at};
  auto chain = returns_later(at, g, 0);
  for (int i = 0; i < 1'000'000; ++i) chain = link(at, std::move(chain));
  g.open();
  at.queue.run();
  ASSERT_TRUE(chain.done());
  EXPECT_EQ(chain.result(), 1'000'000);
}

spar::task<int> yields(node& at, int times) {
  struct reschedule {
    node* to;
    explicit reschedule(node& n) : to(&n) {}
    [[nodiscard]] bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiting) const { to->queue.post(waiting); }
    void await_resume() const {}
  };
  for (int i = 0; i < times; ++i) {
    const reschedule again{at};
    co_await again;
  }
  co_return times;
}

TEST(task, a_coroutine_may_make_itself_ready) {
  node at;
  auto t = yields(at, 1000);
  at.queue.run();
  ASSERT_TRUE(t.done());
  EXPECT_EQ(t.result(), 1000);
}

TEST(task, frames_are_recycled) {
  node at;
  for (int i = 0; i < 3; ++i) {
    gate g{at};
    auto t = adds(at, g, 1, 2);
    g.open();
    at.queue.run();
    EXPECT_EQ(t.result(), 3);
  }
  EXPECT_EQ(at.memory.live(), 0U);
}

TEST(scheduler, resumes_in_order_and_what_becomes_ready_meanwhile) {
  node at;
  std::vector<int> order;
  struct program {
    static spar::task<void> run(node&, gate& mine, gate& next, std::vector<int>* seen, int number) {
      co_await mine;
      seen->push_back(number);
      next.open();
    }
  };
  gate first{at}, second{at}, third{at}, last{at};
  const auto a = program::run(at, first, second, &order, 1);
  const auto b = program::run(at, second, third, &order, 2);
  const auto c = program::run(at, third, last, &order, 3);
  EXPECT_TRUE(at.queue.idle());
  first.open();
  EXPECT_FALSE(at.queue.idle());
  at.queue.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(c.done());
  EXPECT_TRUE(at.queue.idle());
}

} // namespace
