// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport concept: what a collective needs of the network.
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

/// One rank's end of a network. Messages arrive in order per (source, destination, tag). Operations begin when they are
/// called; at most one receive is under way per (source, tag), concurrent parts of a collective use different lanes.
///
/// - `send` borrows the pieces until it has ended; `receive` needs no size in advance, the header tells.
/// - `progress(true)` waits until an operation may have ended, `progress(false)` only looks; both then resume what
///   is ready. They hand control messages to `detail::heed`, ask `detail::poll_waits`, and once `node().dead()`
///   wait for nothing but what `node().loans().any()`.
/// - `post` sends a control message, never blocks and does not fail.
/// - `await` resumes a coroutine when an operation is complete, or has waited beyond the deadline; `endpoint` has it.
/// - `now` is the time by which statistics are kept; `compute(entries)` says that local work on so many entries has
///   been done since the last message (the simulator advances its clock).
///
/// Rejects a bare MPI communicator: without a scheduler and a pool per rank a collective could neither be resumed nor
/// repeated without allocating.
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

/// Tells one rank.
template <transport Net>
[[gnu::noinline, gnu::cold]] void send_text(Net& net, control_message::purpose what, std::string_view text,
                                            rank_t peer) {
  for (std::size_t at = 0;;) {
    const control_message part = part_of(what, net.rank(), text, at);
    net.post(part, peer);
    if (part.last != 0) return;
    at += part.length;
  }
}

/// Tells all other ranks.
template <transport Net>
[[gnu::noinline, gnu::cold]] void tell(Net& net, control_message::purpose what, std::string_view text) noexcept {
  for (rank_t peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank()) send_text(net, what, text, peer);
  }
}

/// `abort` by who has the turn.
template <transport Net>
[[gnu::noinline, gnu::cold]] void abort(Net& net, std::string_view reason) noexcept {
  if (net.node().dead()) return;
  tell(net, control_message::purpose::abort, reason);
  net.node().mark_dead(net.rank(), reason);
}

/// And this rank's calls unwind at once, or in a coroutine when that is suspended: others may wait for what they have
/// lent.
template <transport Net>
[[gnu::noinline, gnu::cold]] void abort_and_unwind(Net& net, std::string_view reason) noexcept {
  detail::abort(net, reason);
  if (!net.scheduler().running()) net.scheduler().run();
}

/// Waits until nobody reads memory of a call that has failed.
template <transport Net>
void await_loans(Net& net) {
  if (net.node().loans().any()) detail::abort(net, "a call has ended before what it sends had been received");
  while (net.node().loans().any()) net.progress(true);
}

} // namespace detail

/// A call fails on this rank, with the exception that is being handled: the others are told, before what the call has
/// under way is cancelled, as that may need them.
template <transport Net>
[[noreturn, gnu::noinline, gnu::cold]] void abort_and_rethrow(Net& net) {
  detail::abort(net, message_of(std::current_exception()));
  throw;
}

} // namespace spar
