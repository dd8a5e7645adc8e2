// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport concept: what a collective needs of the network.
#pragma once

#include <spar/core/endpoint.hpp>
#include <spar/core/message.hpp>

#include <concepts>
#include <coroutine>

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
///   is ready.
/// - `now` is the time by which statistics are kept; `compute(entries)` says that local work on so many entries is done
///   here (the simulator advances its clock).
///
/// Rejects a bare MPI communicator: without a scheduler and a pool per rank a collective could neither be resumed nor
/// repeated without allocating.
template <class Net>
concept transport = requires(Net& net, const Net& observed, const message_pieces& out, message_buffer& in, rank_t peer,
                             tag_t tag, std::uint64_t entries) {
  { observed.rank() } -> std::same_as<rank_t>;
  { observed.size() } -> std::same_as<rank_t>;
  { net.send(out, peer, tag) } -> awaitable<void>;
  { net.receive(in, peer, tag) } -> awaitable<void>;
  net.progress(true);
  { net.now() } -> std::same_as<double>;
  net.compute(entries);
  { net.node() } -> std::same_as<endpoint&>;
  { net.scheduler() } -> std::same_as<scheduler&>;
  { net.memory() } -> std::same_as<pool&>;
};

} // namespace spar
