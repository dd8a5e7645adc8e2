// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The workspace of a call, `channel::work`, and its answers.
#pragma once

#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/workspace/host_work.hpp>

#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// The workspace of the calls over the transport `Net`: its own, or `host_work`.
template <transport Net>
decltype(auto) work_of(const channel<Net>& net) noexcept {
  if constexpr (channel<Net>::on_device)
    return net.net().work();
  else
    return host_work(net.scheduler());
}

/// The type of the workspace of the calls over `Net`.
template <transport Net>
using workspace_of = std::remove_cvref_t<decltype(work_of(std::declval<const channel<Net>&>()))>;

/// What a function returns whose result is a T of the workspace of `Net`: `ready<T>`, or `task<T>` if it may have to
/// wait for a device, while the rank goes on with its other calls. Await it at once, because it may refer to the
/// arguments of the function that returned it.
template <transport Net, class T = void>
using answer = typename workspace_of<Net>::template answer<T>;

/// When the indices of a message are checked.
enum class index_check : bool {
  now,
  later ///< if the workspace `checks_later`, the caller passes the stream to `merge_many` or `check_indices` first
};

/// Returns the whole vector of `v` as a dense stream, with the neutral element of `op` at every index without an entry.
template <transport Net, element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> to_dense(channel<Net> net, const stream_view<T, Index>& v, Op op) {
  auto out = sparse_stream<T, Index>::dense(net.work().memory(), v.dimension(), 0, v.dimension());
  net.work().write_dense(v, out.values(), op);
  return out;
}

namespace detail {

template <transport Net, class T>
task<T> end_at_once(channel<Net> net, T result) {
  (void)net; // a parameter only because its scheduler would resume this coroutine
  co_return result;
}

template <transport Net>
task<void> end_at_once(channel<Net> net) {
  (void)net;
  co_return;
}

} // namespace detail

/// Returns `result` as an answer that needs no work.
template <transport Net, class T>
answer<Net, T> answered(channel<Net> net, T result) {
  if constexpr (std::is_same_v<answer<Net, T>, ready<T>>)
    return ready<T>(std::move(result));
  else
    return detail::end_at_once(net, std::move(result));
}
/// The same without a result.
template <transport Net>
answer<Net> answered(channel<Net> net) {
  if constexpr (std::is_same_v<answer<Net>, ready<>>)
    return ready<>();
  else
    return detail::end_at_once(net);
}

/// Returns the answer `f(result)`, where `result` is that of `first`. `f` must own, or refer to, what exists until the
/// returned answer has been awaited.
template <transport Net, class T, class F>
auto after(channel<Net>, ready<T> first, F f) {
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
/// The same for an answer `first` that may have to be awaited.
template <transport Net, class T, class F>
task<std::invoke_result_t<F&, T>> after(channel<Net> net, task<T> first, F f) {
  (void)net; // a parameter only because its scheduler resumes this coroutine
  T result = co_await std::move(first);
  co_return f(std::move(result));
}
/// The same for an answer `first` without a result.
template <transport Net, class F>
task<std::invoke_result_t<F&>> after(channel<Net> net, task<void> first, F f) {
  (void)net;
  co_await std::move(first);
  co_return f();
}

/// Returns the answer `f(result)`, where `result` is that of `first`, and `f` itself returns an answer; otherwise like
/// `after`.
template <transport Net, class T, class F>
auto after_answer(channel<Net>, ready<T> first, F f) {
  return f(first.await_resume());
}
/// The same for an answer `first` that may have to be awaited.
template <transport Net, class T, class F>
std::invoke_result_t<F&, T> after_answer(channel<Net> net, task<T> first, F f) {
  (void)net;
  T result = co_await std::move(first);
  auto next = f(std::move(result));
  co_return co_await std::move(next);
}

} // namespace spar::inline v0_1
