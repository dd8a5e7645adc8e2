// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The concept `transport`: what collectives require of one rank's access to a network.
#pragma once

#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/operation_record.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <string_view>

namespace spar {

/// A type of objects that a coroutine can `co_await`, with a result of the type T.
template <class A, class T>
concept awaitable = requires(A a, std::coroutine_handle<> h) {
  { a.await_ready() } -> std::convertible_to<bool>;
  a.await_suspend(h);
  { a.await_resume() } -> std::same_as<T>;
};

/// One rank's access to a network. Messages with the same source, destination and tag arrive in order. A send or a
/// receive starts when the function `send` or `receive` is called. At most one receive per source and tag may be in
/// flight, so concurrent parts of a collective use different lanes.
///
/// - `send` borrows the pieces of the message until the send ends; `receive` takes the sizes of the pieces from the
///   header of the message.
/// - `progress(true)` waits until an operation may have ended; `progress(false)` does not wait. Both resume ready
///   coroutines and pass control messages to `on_control_message`. Except in the simulator, both also call
///   `poll_waits` from time to time. Once `node().dead()` is true, `progress(true)` waits only while
///   `node().loans().any()` is true.
/// - `post` sends a control message, and never blocks. It may throw std::bad_alloc, except for the reason of an abort,
///   for which a transport has memory from the start: a rank aborts at most once. If several ranks abort, a transport
///   may drop the reasons of all but the first.
/// - `await` resumes a coroutine when an operation is complete or its deadline has expired; `endpoint` implements
///   `await`.
/// - `now` is the clock of the statistics, in seconds. `compute(entries)` reports local work on `entries` entries since
///   the last message; the simulator advances its clock by the duration of this work.
///
/// Rejects a bare MPI communicator, which has neither a scheduler nor a pool for each rank. The scheduler resumes the
/// coroutines of collectives; the pool keeps repeated collectives from allocating memory.
template <class Net>
concept transport = requires(Net& net, const Net& observed, const message_pieces& out, message_buffer& in, rank_t peer,
                             tag_t tag, const control_message& note, std::uint64_t entries, operation_record& operation,
                             std::coroutine_handle<> waiting) {
  { observed.rank() } -> std::same_as<rank_t>;
  { observed.size() } -> std::same_as<rank_t>;
  { net.send(out, peer, tag) } -> awaitable<void>;
  { net.receive(in, peer, tag) } -> awaitable<void>;
  net.post(note, peer);
  net.await(operation, waiting);
  net.progress(true);
  { net.now() } -> std::same_as<double>;
  net.compute(entries);
  { net.node() } -> std::same_as<endpoint&>;
  { net.scheduler() } -> std::same_as<scheduler&>;
  { net.memory() } -> std::same_as<pool&>;
};

/// A transport for calls on values in device memory. `work()` is the place of these values, and the work on them (see
/// `channel::work`); `host()` is the transport of messages in host memory.
template <class Net>
concept values_on_device = requires(Net& net) {
  net.work();
  net.host();
};

namespace detail {

/// Sends `text` to `peer`, in as many control messages as needed.
template <transport Net>
[[gnu::cold]] void send_text(Net& net, control_message::purpose what, std::string_view text, rank_t peer) {
  for (std::size_t at = 0;;) {
    const control_message part = part_of(what, net.rank(), text, at);
    net.post(part, peer);
    if (part.last != 0) return;
    at += part.length;
  }
}

/// Sends `text` to all other ranks.
template <transport Net>
[[gnu::cold]] void broadcast_text(Net& net, control_message::purpose what, std::string_view text) {
  for (rank_t peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank()) send_text(net, what, text, peer);
  }
}

} // namespace detail

} // namespace spar
