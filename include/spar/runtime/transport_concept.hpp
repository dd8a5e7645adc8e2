// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport concept: what collectives require of a network.
#pragma once

#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/message.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <string_view>

namespace spar {

template <class A, class T>
concept awaitable = requires(A a, std::coroutine_handle<> h) {
  { a.await_ready() } -> std::convertible_to<bool>;
  a.await_suspend(h);
  { a.await_resume() } -> std::same_as<T>;
};

/// One rank's access to a network. Messages with the same source, destination and tag arrive in order. Operations start
/// when they are called. At most one receive per source and tag may be in flight; concurrent parts of a collective use
/// different lanes.
///
/// - `send` borrows the pieces until the operation ends; `receive` takes the size from the header of the message.
/// - `progress(true)` waits until an operation may have ended, `progress(false)` does not wait; both then resume ready
///   coroutines. They pass control messages to `detail::on_control_message` and call `detail::poll_waits`. Once
///   `node().dead()`, they wait only while `node().loans().any()`.
/// - `post` sends a control message; it never blocks and never fails.
/// - `await` resumes a coroutine when an operation is complete or its deadline has expired; `endpoint` implements it.
/// - `now` is the clock of the statistics. `compute(entries)` reports local work on `entries` entries since the last
///   message, for which the simulator advances its clock.
///
/// Rejects a bare MPI communicator: without a scheduler and a pool per rank, collectives could neither be resumed nor
/// be repeated without allocations.
template <class Net>
concept transport = requires(Net& net, const Net& observed, const message_pieces& out, message_buffer& in, rank_t peer,
                             tag_t tag, const control_message& note, std::uint64_t entries,
                             detail::operation_record& operation, std::coroutine_handle<> waiting) {
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

namespace detail {

/// Sends a text to `peer`, in as many control messages as needed.
template <transport Net>
[[gnu::cold]] void send_text(Net& net, control_message::purpose what, std::string_view text, rank_t peer) {
  for (std::size_t at = 0;;) {
    const control_message part = part_of(what, net.rank(), text, at);
    net.post(part, peer);
    if (part.last != 0) return;
    at += part.length;
  }
}

/// Sends a text to all other ranks.
template <transport Net>
[[gnu::cold]] void broadcast_text(Net& net, control_message::purpose what, std::string_view text) noexcept {
  for (rank_t peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank()) send_text(net, what, text, peer);
  }
}

/// Like `spar::abort`, but does not unwind pending calls. The caller holds the rank's lock.
template <transport Net>
[[gnu::cold]] void abort(Net& net, std::string_view reason) noexcept {
  if (net.node().dead()) return;
  broadcast_text(net, control_message::purpose::abort, reason);
  net.node().mark_dead(net.rank(), reason);
}

/// Aborts, then unwinds this rank's calls so that peers regain the send buffers that these calls still read. In a
/// coroutine, the calls unwind when the coroutine is suspended.
template <transport Net>
[[gnu::cold]] void abort_and_unwind(Net& net, std::string_view reason) noexcept {
  detail::abort(net, reason);
  if (!net.scheduler().running()) net.scheduler().run();
}

/// Waits until no peer reads memory of a failed call.
template <transport Net>
void await_loans(Net& net) {
  if (net.node().loans().any()) detail::abort(net, "a call has ended before its messages were received");
  while (net.node().loans().any()) net.progress(true);
}

} // namespace detail

/// Aborts with the exception that is being handled, and rethrows it. The peers are notified before the operations of
/// the call are cancelled, because cancelling may need the peers.
template <transport Net>
[[noreturn, gnu::cold]] void abort_and_rethrow(Net& net) {
  detail::abort(net, message_of(std::current_exception()));
  throw;
}

} // namespace spar
