// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handles of non-blocking calls, and the functions that start and run calls.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/policy/policy.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar::inline v0_1 {

/// Makes progress on `net` until the task `work` has ended. Returns the result of `work` or throws its exception.
template <communicates Net, class T>
T run_until_done(Net& net, task<T> work) {
  auto& port = detail::port_of(net);
  const detail::rank_lock lock(port.node().shared());
  while (!work.done()) port.progress(true);
  detail::await_loans(port);
  return work.result();
}

namespace detail {

/// As long as this object exists, the transport ends its sleeps at `time`.
class end_of_wait {
 public:
  end_of_wait(waits& of, double time) noexcept : waits_(&of) { of.set_program_waits_until(time); }
  end_of_wait(const end_of_wait&) = delete;
  ~end_of_wait() { waits_->set_program_waits_until(__builtin_inf()); }

 private:
  waits* waits_;
};

} // namespace detail

/// The handle of a non-blocking call of a collective whose result has the type T, on the transport Net. Borrowed
/// arguments must outlive the handle, whose destructor waits for the call. So must the transport: destroying a
/// communicator that has a call in flight aborts the communicator, and the call ends in `peer_failed`. The result or
/// the error of the call comes from `wait()`, which blocks, or, in a coroutine, from `co_await std::move(handle)`. A
/// result other than `void` is moved out, so only the first of these gives it; a further one throws `invalid_argument`.
/// The call makes progress whenever the program waits for, or polls, any call on the same transport, and while a
/// progress_thread exists. With a progress_thread, coroutines cannot await the handle: `co_await` throws `error`.
template <transport Net, class T>
class [[nodiscard]] pending_call {
 public:
  /// Called by the functions that start calls.
  pending_call(Net& net, call_record& call, task<T> work) noexcept : work_(std::move(work)) {
    handle_.net = &net;
    handle_.call = &call;
    handle_.work = work_.coroutine();
    handle_.join_before(net.node().calls().handles());
  }
  /// Takes over the call of `other`, which can then only be destroyed; all its other members throw `invalid_argument`.
  pending_call(pending_call&& other) noexcept : work_(std::move(other.work_)) {
    handle_.net = std::exchange(other.handle_.net, nullptr);
    handle_.call = std::exchange(other.handle_.call, nullptr);
    handle_.work = other.handle_.work;
    handle_.join_before(other.handle_);
    other.handle_.leave();
  }
  pending_call& operator=(pending_call&&) = delete;
  ~pending_call() {
    if (handle_.net == nullptr) return;
    const detail::rank_lock lock(net().node().shared());
    if constexpr (device_bound_transport<Net>) {
      const auto device = net().make_current(); // a destructor cannot refuse to run while another one is current
      end();
    } else {
      end();
    }
  }

  /// Makes progress without blocking, and returns whether the call has ended. Errors of the call appear in `wait()`;
  /// `done` itself throws what `communicator_rank::progress` throws, and `invalid_argument` for a moved-from handle.
  [[nodiscard]] bool done() {
    if (handle_.net == nullptr) return left_over().done();
    const detail::rank_lock lock(net().node().shared());
    if (!work_.done()) net().progress(false);
    return work_.done();
  }
  /// Waits until the call has ended, and returns its result. Throws the error of the call: see the \ref call_errors.
  T wait() {
    if (handle_.net == nullptr) return left_over().result();
    const detail::rank_lock lock(net().node().shared());
    while (!work_.done()) net().progress(true);
    return work_.result();
  }
  /// Makes progress until the call has ended, at most for `seconds`, and returns whether it has ended, as `done` does.
  /// Then `wait()` gives the result or the error at once. In the simulator, whose time passes only with
  /// messages, throws `deadlock` if none is in flight. Throws `invalid_argument` if `seconds` is negative or NaN.
  [[nodiscard]] bool wait_for(double seconds) {
    detail::check_number(seconds, detail::valid::time_limit, "the time to wait");
    if (handle_.net == nullptr) return left_over().done();
    const detail::rank_lock lock(net().node().shared());
    const double until = net().now() + seconds;
    const detail::end_of_wait end(net().node().waits(), until);
    while (!work_.done() && net().now() < until) net().progress(true);
    return work_.done();
  }
  /// Cancels the call if the call has not ended. One rank alone cannot withdraw from a collective. Therefore `cancel`
  /// aborts the communicator: all calls in flight, on all ranks, end in `peer_failed`. Throws `invalid_argument`
  /// for a moved-from handle.
  void cancel() {
    if (handle_.net == nullptr) return static_cast<void>(left_over());
    const detail::rank_lock lock(net().node().shared());
    if (!work_.done()) detail::abort_and_unwind(net(), "a call was cancelled");
  }
  /// Messages, bytes and seconds of this call. The numbers are complete once the call has ended, and not available any
  /// more, but 0, once the communicator is destroyed. Throws `invalid_argument` for a moved-from handle.
  [[nodiscard]] const spar::statistics& statistics() const {
    if (handle_.call == nullptr) (void)left_over();
    return handle_.call->cost;
  }

  /// For `co_await`. Throws `error` if the communicator has a progress thread, and `invalid_argument` for a moved-from
  /// handle.
  [[nodiscard]] bool await_ready() const {
    if (handle_.net == nullptr) return left_over().done();
    if (net().node().shared() != nullptr) {
      raise<error>(
          {"a coroutine cannot await a collective on a communicator with a progress thread: call wait() instead"});
    }
    return work_.done();
  }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { work_.await_suspend(waiting); }
  T await_resume() { return work_.result(); }

 private:
  /// Waits for the call, and gives back its record.
  void end() noexcept {
    work_.await_suspend(std::noop_coroutine()); // replaces any awaiting coroutine, which is being destroyed too
    try {
      while (!work_.done()) net().progress(true);
    } catch (...) { // no further progress is possible; destroying the task cancels the call
    }
    {
      const task<T> gone = std::move(work_);
    } // the task is destroyed before the record of its call is reused
    handle_.leave();
    net().node().calls().recycle(*handle_.call);
  }
  [[nodiscard]] Net& net() const noexcept { return *static_cast<Net*>(handle_.net); }
  /// The work of a call whose communicator is destroyed. Throws if another handle has taken over the call.
  [[gnu::cold]] const task<T>& left_over() const {
    if (handle_.call == nullptr) {
      raise<invalid_argument>({"this handle has no call, because another handle was constructed from it by std::move; "
                               "use the other handle"});
    }
    return work_;
  }
  [[gnu::cold]] task<T>& left_over() { return const_cast<task<T>&>(std::as_const(*this).left_over()); }

  detail::call_handle handle_;
  task<T> work_;
};

/// The handle of a non-blocking call on a communicator or a transport of the type Net, with a result of the type T:
/// - `void`: a call on dense values, `start_barrier`, and `start` of an `error_feedback`;
/// - `sparse_stream<T, Index>`: a call on streams;
/// - `gathered<T, Index>`: `start_allgather` of streams;
/// - `selected_sum<T, Index>`: `start_reduce` of an `error_feedback`;
/// - `participants`, or `partial_sum<T, Index>` for streams: `start` and `start_drain` of a `partial`.
template <communicates Net, class T>
using pending = pending_call<detail::port_type_of<Net>, T>;

namespace detail {

/// The scope of a call, from its start to its end. The constructor numbers the call, and waits until no other call in
/// flight uses the same tags. Throws `peer_failed` if the communicator is dead.
template <transport Net>
class open_call {
 public:
  open_call(Net& net, call_record& call) : net_(&net), call_(&call) {
    net.node().calls().number(call);
    const double now = net.now();
    if (net.node().calls().was_away(now)) catch_up();
    while (net.node().calls().tags_in_use(call)) net.progress(true);
    if (net.node().dead()) net.node().failure().raise_peer_failed();
    net.node().open(call, now);
  }
  open_call(const open_call&) = delete;
  /// Called when the algorithm has returned. Throws `mismatch` if a message of the call has not been received, and
  /// `error` if a send has not ended.
  void end() {
    check_left_over(*net_, *call_);
    if (net_->node().loans().any() && !net_->node().dead())
      raise<error>({"an algorithm has returned before all of its sends have ended; await them first"});
  }
  ~open_call() { net_->node().finish(*call_, net_->now()); }

 private:
  /// Handles control messages that have arrived while this rank made no calls for more than 0.5 s. Other ranks may have
  /// given up waiting and aborted the communicator; if so, this rank must not receive their earlier messages any more.
  [[gnu::cold]] void catch_up() {
    for (int polls = 0; polls < 2000; ++polls) net_->progress(false);
  }

  Net* net_;
  call_record* call_;
};

template <class Net, class Algorithm, class... Args>
using task_of = decltype(std::declval<const Algorithm&>()(std::declval<channel<Net>>(), std::declval<Args>()...));

/// An awaitable that is ready once no peer reads memory of a failed call of this rank.
class loans_returned {
 public:
  explicit loans_returned(endpoint& node) noexcept : node_(&node) {}
  loans_returned(const loans_returned&) = delete;
  ~loans_returned() { wait_.forget(); }
  [[nodiscard]] bool await_ready() const noexcept { return !node_->loans().any(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept { node_->await_loans(wait_, waiting); }
  static void await_resume() noexcept {}

 private:
  endpoint* node_;
  operation_record wait_;
};

/// An awaitable that is ready once the coroutine of `work` has ended. Throws its exception, but leaves its result in
/// `work`.
template <class Task>
class end_of {
 public:
  explicit end_of(const Task& work) noexcept : work_(&work) {}
  [[nodiscard]] bool await_ready() const noexcept { return work_->done(); }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { work_->await_suspend(waiting); }
  void await_resume() const { work_->throw_error(); }

 private:
  const Task* work_;
};

/// Returns an object that writes the name and the options of `algorithm` into an error message, or an empty object if
/// `algorithm` is neither a policy nor describes itself. `algorithm` must not move until the call has ended.
template <class Algorithm>
description description_for(const Algorithm& algorithm) noexcept {
  if constexpr (policy<Algorithm>)
    return {&algorithm,
            [](const void* described, bounded_text& to) { describe(*static_cast<const Algorithm*>(described), to); }};
  else if constexpr (requires(bounded_text& to) { algorithm.describe(to); })
    return {&algorithm,
            [](const void* described, bounded_text& to) { static_cast<const Algorithm*>(described)->describe(to); }};
  else
    return {};
}

/// A last `co_return` after a statement that never ends. Without it, nvcc warns of a coroutine that may return nothing.
template <class Task>
[[noreturn]] auto never_returned() -> decltype(std::declval<Task&>().result()) {
  std::terminate();
}

/// Prepares the record of the name `which` for a collective that is about to start, and returns the record. Throws
/// `invalid_argument` where `name_call` does. On rank 0, sends the number of a new name to the other ranks.
template <transport Net>
call_name& begin_name(Net& net, named which) {
  call_name& name = net.node().name_call(which);
  if (net.rank() == 0 && name.number == 0)
    broadcast_text(net, control_message::purpose::name, net.node().number_name(name));
  return name;
}

/// Runs one call from its start to its end. The frame of this coroutine owns `algorithm` and `args`, and keeps the
/// arguments until no peer reads memory to which they refer.
template <transport Net, class Algorithm, class... Args>
task_of<Net, Algorithm, Args...> drive(channel<Net> net, call_record* call, Algorithm algorithm, Args... args) {
  call->describe = description_for(algorithm);
  try {
    open_call<Net> open(net.net(), *call);
    auto work = algorithm(net, args...);
    end_of<decltype(work)> ended(work);
    co_await ended;
    open.end();
    co_return work.result();
  } catch (...) {
    call->error.note();
    net.net().node().calls().keep_options(*call);
  }
  loans_returned returned(net.net().node());
  co_await returned;
  call->error.rethrow();
  co_return never_returned<task_of<Net, Algorithm, Args...>>();
}

/// An awaitable that is ready once this rank knows the number that rank 0 has assigned to the name of a call. Throws
/// `timeout` if the deadline expires first, and `peer_failed` if the communicator dies first.
template <transport Net>
class number_known {
 public:
  number_known(Net& net, call_name& name) noexcept : net_(&net), name_(&name) {}
  number_known(const number_known&) = delete;
  ~number_known() { name_->forget(); }
  [[nodiscard]] bool await_ready() const noexcept { return name_->number != 0 || net_->node().dead(); }
  void await_suspend(std::coroutine_handle<> waiting) const { net_->await(*name_, waiting); }
  void await_resume() const {
    if (name_->error) std::rethrow_exception(name_->error);
    if (name_->number == 0) net_->node().failure().raise_peer_failed();
  }

 private:
  Net* net_;
  call_name* name_;
};

template <transport Net, class Algorithm, class... Args>
task_of<Net, Algorithm, Args...> drive_named(channel<Net> net, call_record* call, Algorithm algorithm, Args... args) {
  call->name->in_flight = true; // set only now: a call that fails to start would never reset `in_flight`
  number_known<Net> number(net.net(), *call->name);
  co_await number;
  co_return co_await drive(net, call, std::move(algorithm), args...);
}

} // namespace detail

/// Starts `algorithm(channel, args...)` as the next collective on the communicator `on`, and returns the handle of the
/// call. All ranks must start the same collectives in the same order, with equal `agreed`. Throws `invalid_argument` if
/// this rank has called `leave` or `start_leave`.
template <communicates Net, class Algorithm, class... Args>
auto start_collective(Net& on, const signature& agreed, Algorithm algorithm, Args... args) {
  using port_type = detail::port_type_of<Net>;
  using work = detail::task_of<port_type, Algorithm, Args...>;
  port_type& net = detail::port_of(on);
  net.node().check_open();
  try {
    const detail::rank_lock lock(net.node().shared());
    call_record& call = net.node().calls().acquire();
    return pending_call<port_type, decltype(std::declval<work&>().result())>(
        net, call, detail::drive(channel<port_type>(net, call, agreed), &call, std::move(algorithm), args...));
  } catch (...) {
    detail::fail_to_begin(net);
  }
}

/// Starts `algorithm(channel, args...)` as the collective with the name `which` on the communicator `on`, and returns
/// the handle of the call. Ranks may start collectives with different names in any order; `agreed` must be equal on all
/// ranks. Throws `invalid_argument` if an earlier call with the name `which` has not ended.
template <communicates Net, class Algorithm, class... Args>
auto start_collective(Net& on, named which, const signature& agreed, Algorithm algorithm, Args... args) {
  using port_type = detail::port_type_of<Net>;
  using work = detail::task_of<port_type, Algorithm, Args...>;
  port_type& net = detail::port_of(on);
  net.node().check_open();
  try {
    const detail::rank_lock lock(net.node().shared());
    detail::call_name& name = detail::begin_name(net, which);
    call_record& call = net.node().calls().acquire();
    call.name = &name;
    return pending_call<port_type, decltype(std::declval<work&>().result())>(
        net, call, detail::drive_named(channel<port_type>(net, call, agreed), &call, std::move(algorithm), args...));
  } catch (...) {
    detail::fail_to_begin(net);
  }
}

/// Runs `algorithm(channel, args...)` as the next collective on the communicator `on`, waits for its end, and returns
/// its result. `agreed` must be equal on all ranks. Has the same effect as `start_collective` and `wait()`, but needs
/// one coroutine fewer.
template <communicates Net, class Algorithm, class... Args>
auto run_collective(Net& on, const signature& agreed, const Algorithm& algorithm, Args... args) {
  using port_type = detail::port_type_of<Net>;
  port_type& net = detail::port_of(on);
  net.node().check_open();
  const detail::rank_lock lock(net.node().shared());
  call_record call;
  const channel<port_type> through(net, call, agreed); // the channel also fills in `call`
  call.describe = detail::description_for(algorithm);
  try {
    detail::open_call<port_type> open(net, call);
    auto work = algorithm(through, args...);
    while (!work.done()) net.progress(true);
    work.throw_error();
    open.end();
    return work.result();
  } catch (...) {
    call.error.note();
    net.node().calls().keep_options(call);
  }
  detail::await_loans(net);
  call.error.rethrow();
}

} // namespace spar::inline v0_1
