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

namespace spar::inline v0_1 {

/// A type of objects that a coroutine can `co_await`, with a result of the type T.
template <class A, class T>
concept awaitable = requires(A a, std::coroutine_handle<> h) {
  { a.await_ready() } -> std::convertible_to<bool>;
  a.await_suspend(h);
  { a.await_resume() } -> std::same_as<T>;
};

/// One rank's access to a network, the port of a `communicator_rank`. This header says all that the author of a
/// transport needs; `transport/threads.hpp` is the shortest complete example. Derive the port from `endpoint`, the
/// state of a rank, which has `rank`, `size`, `scheduler`, `memory`, `await` and `now`; the port adds
///
/// - `send(pieces, peer, tag)` and `receive(into, peer, tag)`, which start at once. Return `operation<Port, Record>`,
///   whose record derives from `operation_record`. Messages with the same source, destination and tag arrive in order.
///   At most one receive per source and tag may be in flight, so concurrent parts of a collective use different lanes.
///   A send copies `head` and `pieces`, but borrows the memory of the pieces until the send ends. A receive does not
///   know the sizes: it writes the header to `into.arrived()`, and if `into.fits()`, it fills each
///   `into.destination(i)` or lends memory by `into.borrow`. It must not lend memory of the sender if `into.kept()`,
///   nor its own memory if `into.placed()`. A transport that sends bytes writes and validates them by
///   runtime/messages/envelope.hpp; an in-process transport pairs messages with receives by `matching`.
/// - `abandon(record)`, for `operation`: cancels an operation whose owner is destroyed before the operation ends, as by
///   an error, and does not wait for another rank. If a peer still reads the payload of a send in host memory,
///   `abandon` calls `begin_loan()`, and the transport calls `end_loan()` when the peer has finished: no failed call
///   returns before. A payload in device memory that a device may still read, without a loan: `device_path::streamed`.
/// - `progress(block)`, which completes operations by `record.complete(scheduler())`, passes control messages to
///   `on_control_message`, and runs the scheduler. `progress(true)` first waits until an operation may have ended, on a
///   dead communicator only while `node().loans().any()`, and throws if none can end any more. Except in the simulator,
///   calls `poll_waits` from time to time. If it fails, calls `on_progress_error` (runtime/progress.hpp).
/// - `post(note, peer)`, which sends a control message, never blocks and ends no operation: `poll_waits` may be going
///   through those that are awaited. It may throw std::bad_alloc, except for the
///   reason of an abort, for which the transport has memory from the start: a rank aborts at most once, in at most
///   `control_message::most_parts` messages for each peer. If several ranks abort, a transport may drop the reasons of
///   all but the first.
/// - `node()`, the endpoint.
/// - `compute(entries)`, which the simulator needs: local work on `entries` entries since the last message.
///
/// `await` resumes a coroutine when an operation is complete or its deadline has expired. `now` is the clock of the
/// statistics, in seconds. A transport that knows its costs passes them to the `set_network` of its endpoint, the same
/// on every rank. Without them, spar assumes ranks on one machine until the program calls `set_network`.
///
/// Rejects a bare MPI communicator, which has neither a scheduler nor a pool for each rank. The scheduler resumes the
/// coroutines of collectives; the pool keeps repeated collectives from allocating memory. The concepts below describe
/// what a transport may have in addition. spar never calls such a function of another form, so the author of a
/// transport asserts what it means to have, for example `static_assert(spar::sleeping_transport<my_port>)`. A decorator
/// passes on what the wrapped transport has.
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

/// Optional: a transport that a `progress_thread` may use while the thread of the application is busy. The threads take
/// turns to hold the lock of the rank. `share()` is called when the progress_thread starts, and throws
/// `invalid_argument` if the transport cannot be shared. Without this function, a progress_thread over the transport
/// does not compile.
template <class Net>
concept shared_transport = transport<Net> && requires(const Net& net) { net.share(); };

/// Optional: a shared_transport whose progress_thread sleeps; without these functions, it polls. It calls
/// `sleep_until(time)`, without the lock of the rank, to block until a message has arrived or an operation may have
/// ended, but not past the `time` of the clock `now`. `sleep_until` returns false at once if the transport cannot
/// sleep, such as an `any_port` over MPI; then the progress_thread polls. `wake()`, which another thread calls, ends
/// the present `sleep_until`, or the next one if there is none.
template <class Net>
concept sleeping_transport = shared_transport<Net> && requires(Net& net, double time) {
  { net.sleep_until(time) } -> std::same_as<bool>;
  net.wake();
};

/// Only the simulator: `co_await sleep(seconds)` suspends a simulated program, which computes or idles for this virtual
/// time, while its rank still handles arriving messages. For `faulty`, the simulator also has `on_alarm` and `wake_at`.
template <class Net>
concept simulated_transport = transport<Net> && requires(Net& net, double seconds) { net.sleep(seconds); };

/// How a message whose payload is in device memory travels over a transport, below the `device_port` of `on_device`.
enum class device_path : std::uint8_t {
  /// The payload is copied to page-locked host memory, and the transport gets a message in host memory.
  staged,
  /// An MPI library, or UCX, that accepts device memory transfers the payload from its place to device memory of the
  /// receiver. All work on the payload has ended before the send, whose `message_pieces::stream` is not null. The
  /// memory
  /// of a receive that is `on_device()` is device memory, on which no work is in flight: a transport that has a payload
  /// in host memory lends it by `borrow`.
  direct,
  /// Not at all: the device of the receiver reads the memory of the sender. A send passes `pieces` and `loan` on to
  /// `message_buffer::borrow`, and calls `loan->returned` when the receiver gives the payload back. A receive that is
  /// `on_device()` gets only messages with a loan, and any other only messages without.
  loaned,
  /// From its place to device memory of the receiver, in the order of streams. A send takes the payload after the work
  /// that is now in `message_pieces::stream`. Work that is put into `message_buffer::stream()` after the end of the
  /// receive sees the payload. Both are null for a message in host memory.
  ///
  /// If a send is destroyed before its end, the device may still read the payload. So the owner of the memory of the
  /// payload, the `device_port`, does not use this memory again, and frees it only after `wait_until_idle`.
  streamed
};

/// Optional: a transport of messages in device memory. `path_on_device(bytes, pieces)` is the path of a payload of
/// `bytes` bytes in so many pieces that are not empty. A rank that has `direct` messages may have peers whose messages
/// are `staged`; the other paths are the same on all ranks. Without this function, all messages are `staged`, as below
/// a decorator that reads payloads. With checksums, which the processor computes, all are staged that are not loaned.
template <class Net>
concept device_transport = transport<Net> && requires(const Net& net, std::size_t bytes, std::size_t pieces) {
  { net.path_on_device(bytes, pieces) } -> std::same_as<device_path>;
};

/// Optional: a transport whose messages a CUDA device moves, also those in host memory. `check_device()` is called
/// before each call on values in host memory, and throws `invalid_argument` unless this device is the current one.
/// `make_current()` returns an object during whose lifetime this device is the current one. `wait_until_idle()` is
/// called before memory is allocated or freed, and waits until the device works on no message of this rank: otherwise
/// CUDA might wait for messages of other ranks, which may wait for this one. Without these functions, the transport
/// must not use a device.
template <class Net>
concept device_bound_transport = transport<Net> && requires(Net& net) {
  net.check_device();
  net.make_current();
  { net.wait_until_idle() } noexcept;
};

/// A transport for calls on values in device memory. `work()` is the place of these values, and the work on them (see
/// `channel::work`); `host()` is the transport of messages in host memory.
template <class Net>
concept values_on_device = requires(Net& net) {
  net.work();
  net.host();
};

namespace detail {

/// What control messages, aborts and reports of errors need of a transport. Their code exists once for all types of
/// transports.
class control_port {
 public:
  template <transport Net>
  control_port(Net& net) noexcept : net_(&net), node_(&net.node()), functions_(&functions_of<Net>) {}

  [[nodiscard]] const void* transport_address() const noexcept { return net_; }
  [[nodiscard]] endpoint& node() const noexcept { return *node_; }
  [[nodiscard]] rank_t rank() const noexcept { return node_->rank(); }
  [[nodiscard]] rank_t size() const noexcept { return node_->size(); }
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return node_->scheduler(); }
  void post(const control_message& note, rank_t peer) const { functions_->post(net_, note, peer); }
  void progress(bool block) const { functions_->progress(net_, block); }
  [[nodiscard]] double now() const { return functions_->now(net_); }

 private:
  struct functions {
    void (*post)(void* net, const control_message& note, rank_t peer);
    void (*progress)(void* net, bool block);
    double (*now)(void* net);
  };
  template <class Net>
  static constexpr functions functions_of{
      [](void* net, const control_message& note, rank_t peer) { static_cast<Net*>(net)->post(note, peer); },
      [](void* net, bool block) { static_cast<Net*>(net)->progress(block); },
      [](void* net) { return static_cast<Net*>(net)->now(); }};

  void* net_;
  endpoint* node_;
  const functions* functions_;
};

/// Sends `text` to `peer`, in as many control messages as needed.
[[gnu::cold]] void send_text(const control_port& net, control_message::purpose what, std::string_view text,
                             rank_t peer);

/// Sends `text` to all other ranks.
[[gnu::cold]] void broadcast_text(const control_port& net, control_message::purpose what, std::string_view text);

} // namespace detail

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/transport_concept-inl.hpp>
#endif
