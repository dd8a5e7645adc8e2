// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The coroutine type `task<T>`, which every collective returns. A task starts when its function is called, and the
// scheduler of its rank resumes the task after each suspension.
#pragma once

#include <spar/core/error.hpp>
#include <spar/runtime/tasks/call_error.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <class T>
concept has_scheduler = requires(T& t) {
  { t.scheduler() } -> std::convertible_to<scheduler&>;
};

/// True for a communicator_rank, whose port (its transport) has a scheduler.
template <class T>
concept has_port = requires(T& t) {
  { t.port().scheduler() } -> std::convertible_to<scheduler&>;
};

/// Returns the scheduler of the first argument that has one. The arguments are the parameters of a coroutine, among
/// which there must be a communicator, a transport or a channel.
template <class First, class... Rest>
scheduler& scheduler_among(First& first, Rest&... rest) {
  if constexpr (has_scheduler<First>) {
    return first.scheduler();
  } else if constexpr (has_port<First>) {
    return first.port().scheduler();
  } else {
    static_assert(sizeof...(Rest) > 0,
                  "a coroutine that returns spar::task needs a parameter of type communicator, transport or channel, "
                  "whose scheduler resumes the coroutine");
    return scheduler_among(rest...);
  }
}

/// Returns the error of the call to which a coroutine with these parameters belongs, that is, of its channel; null if
/// the coroutine belongs to no call.
template <class First, class... Rest>
call_error* call_error_among(First& first, Rest&... rest) noexcept {
  if constexpr (requires { first.call_error(); })
    return &first.call_error();
  else if constexpr (has_scheduler<First> || has_port<First> || sizeof...(Rest) == 0)
    return nullptr;
  else
    return call_error_among(rest...);
}

#ifdef __CUDACC__
[[noreturn]] inline scheduler& no_scheduler() noexcept { std::terminate(); }
#endif

/// Rejects types of awaiters that GCC 12 would destroy twice: aggregates with a non-trivial destructor. GCC 12 does
/// so if a temporary of such a type is awaited and the coroutine suspends.
template <class Awaiter>
concept safe_awaiter = !std::is_aggregate_v<std::remove_cvref_t<Awaiter>> ||
                       std::is_trivially_destructible_v<std::remove_cvref_t<Awaiter>>;

/// An awaiter that refers to another awaiter, because GCC 12 copies awaiters that are lvalues. The other awaiter, even
/// a temporary, lives until the end of the full expression with `co_await`.
template <class Awaiter>
class by_reference {
 public:
  explicit by_reference(Awaiter& awaiter) noexcept : awaiter_(&awaiter) {}
  [[nodiscard]] bool await_ready() const { return awaiter_->await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const { awaiter_->await_suspend(waiting); }
  decltype(auto) await_resume() const { return awaiter_->await_resume(); }

 private:
  Awaiter* awaiter_;
};

/// An awaiter that waits until a task has ended, and leaves its result or error in the task.
template <class Task>
class until_ended : public by_reference<Task> {
 public:
  using by_reference<Task>::by_reference;
  void await_resume() const noexcept {}
};

class promise_base {
 public:
  promise_base(scheduler& ready, call_error* call) noexcept : scheduler_(&ready), call_(call) { ready.join(); }

  // Allocates the frame of a coroutine from the pool of its rank. A prefix in front of the frame stores the pool,
  // because `operator delete` does not get the parameters of the coroutine. Always inlined, because GCC otherwise warns
  // in user code: it takes this template and the plain `operator delete` for a mismatched pair.
  template <class... Args>
  [[gnu::always_inline]] static void* operator new(std::size_t size, Args&... args) {
    return allocate(size, scheduler_among(args...));
  }
  static void operator delete(void* frame, std::size_t) noexcept;

  [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }

  [[nodiscard]] std::suspend_always final_suspend() noexcept {
    finished_ = true;
    scheduler_->leave();
    if (continuation_) scheduler_->post(continuation_); // `run` resumes the awaiting coroutine later
    return {};
  }

  [[gnu::cold]] void unhandled_exception() noexcept;

  template <class Awaiter>
  auto await_transform(Awaiter&& awaiter) const noexcept {
    static_assert(safe_awaiter<Awaiter>,
                  "an awaiter must not be an aggregate with a destructor (GCC 12 would destroy it twice): give it a "
                  "constructor");
    return by_reference<std::remove_reference_t<Awaiter>>(awaiter);
  }

  void rethrow() const {
    if (error_) throw_error();
  }
  [[noreturn, gnu::cold]] static void throw_taken();

  /// Destroys the coroutine `self`, which may still be suspended.
  void end(std::coroutine_handle<> self) noexcept;

  scheduler* scheduler_;
  call_error* call_; // of the call to which the coroutine belongs; null if it belongs to none
  std::coroutine_handle<> continuation_;
  std::exception_ptr error_;
  bool finished_ = false;

 private:
  static void* allocate(std::size_t size, scheduler& ready);

  struct prefix {
    pool* memory;
    std::size_t size;
  };
  static constexpr std::size_t frame_prefix = sizeof(prefix);

  [[noreturn, gnu::cold]] void throw_error() const;
};

template <class T>
class promise : public promise_base {
 public:
  promise(scheduler& ready, call_error* call) noexcept : promise_base(ready, call) {}
  ~promise() {
    if (has_value_) value_.~T();
  }
  template <class U>
  void return_value(U&& value) {
#ifdef __CUDACC__
    // The front end of nvcc 13.0 takes the local variable of `co_return local` for an lvalue. A type that can only be
    // moved must come from a local variable, because other compilers would reject anything else.
    constexpr bool is_local = std::is_same_v<U, T&> && !std::is_copy_constructible_v<T>;
    ::new (static_cast<void*>(&value_)) T(static_cast<std::conditional_t<is_local, T&&, U&&>>(value));
#else
    ::new (static_cast<void*>(&value_)) T(std::forward<U>(value));
#endif
    has_value_ = true;
  }
  T result() {
    rethrow();
    if (std::exchange(taken_, true)) throw_taken();
    return std::move(value_);
  }

 private:
  union {
    T value_; // constructed by `co_return`
  };
  bool has_value_ = false;
  bool taken_ = false; // the value has been moved out
};

template <>
class promise<void> : public promise_base {
 public:
  using promise_base::promise_base;
  void return_void() const noexcept {}
  void result() const { rethrow(); }
};

} // namespace detail

/// A running or finished coroutine on one rank. Await a task once, as an rvalue: `co_await` returns the result of the
/// coroutine or throws its exception. If a coroutine with a channel as a parameter ends in an exception, its call has
/// failed, and the communicator is aborted at once, with the message of the exception. Destroying an unfinished task
/// destroys the coroutine at its suspension point, and so cancels the operations that the coroutine awaits.
template <class T = void>
class [[nodiscard]] task {
 public:
  /// The promise of the coroutine, as C++ requires.
  class promise_type : public detail::promise<T> {
   public:
#ifdef __CUDACC__
    // The front end of nvcc 13.0 requires a default constructor, which the host compiler never calls.
    promise_type() noexcept : detail::promise<T>(detail::no_scheduler(), nullptr) {}
#endif
    /// Finds the scheduler of the rank among the arguments of the coroutine, `first` and `rest`.
    template <class First, class... Rest>
    explicit promise_type(First& first, Rest&... rest) noexcept
        : detail::promise<T>(detail::scheduler_among(first, rest...), detail::call_error_among(first, rest...)) {}
    /// The task that owns the coroutine.
    task get_return_object() { return task(std::coroutine_handle<promise_type>::from_promise(*this)); }
  };

  /// Takes over the coroutine of `other`.
  task(task&& other) noexcept : coroutine_(other.coroutine_) { other.coroutine_ = nullptr; }
  /// Exchanges the coroutines.
  task& operator=(task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  [[gnu::noinline]] ~task() {
    if (coroutine_) coroutine_.promise().end(coroutine_);
  }

  /// The coroutine, which this task owns.
  [[nodiscard]] std::coroutine_handle<> coroutine() const noexcept { return coroutine_; }
  /// Whether the coroutine has ended.
  [[nodiscard]] bool done() const noexcept { return coroutine_.promise().finished_; }

  /// Throws the exception of a finished task, if there is one, and leaves a result in the task.
  void throw_error() const { coroutine_.promise().rethrow(); }
  /// Returns the result of a finished task, or throws its exception. A result other than `void` is moved out, so a
  /// further call throws `invalid_argument`.
  T result() { return coroutine_.promise().result(); }

  [[nodiscard]] bool await_ready() const noexcept { return done(); }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { coroutine_.promise().continuation_ = waiting; }
  T await_resume() { return result(); }

 private:
  explicit task(std::coroutine_handle<promise_type> coroutine) noexcept : coroutine_(coroutine) {}
  std::coroutine_handle<promise_type> coroutine_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/tasks/task-inl.hpp>
#endif
