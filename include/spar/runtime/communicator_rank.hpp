// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program's interface to one rank of a communicator, the same for every transport.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/statistics.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/end_calls.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <concepts>
#include <exception>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// Base class of `threads`, `mpi`, `sim` and the decorators. A communicator_rank owns the rank's transport, called the
/// port, on which collectives run. Only one thread at a time may use a communicator_rank, apart from a progress_thread.
template <transport Port>
class communicator_rank {
 public:
  using port_type = Port; ///< the transport on which collectives run

  communicator_rank(const communicator_rank&) = delete;

  /// This rank's number, from 0 to size() - 1.
  [[nodiscard]] rank_t rank() const noexcept { return port_.rank(); }
  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return port_.size(); }
  /// Seconds since an arbitrary start; virtual time in the simulator.
  [[nodiscard]] double now() noexcept { return port_.now(); }

  /// The rank's pool, from which streams and buffers take their memory.
  [[nodiscard]] pool& memory() const noexcept { return port_.memory(); }

  /// Advances the calls in flight. If `block` is true, `progress` waits until an operation may have ended; otherwise it
  /// returns at once. A program that waits for a call need not call `progress`, because waiting makes progress. Errors
  /// of calls appear where a program waits for the call. `progress` itself throws `transport_error` if a function of
  /// MPI fails, `deadlock` if it would wait although nothing is in flight, and in the simulator `error` if it would
  /// block.
  void progress(bool block) {
    const detail::rank_lock lock(port_.node().shared());
    port_.progress(block);
  }
  /// Only for programs in the simulator: `co_await net.sleep(seconds)` suspends the program for `seconds` of virtual
  /// time, as if the program were computing or idle. The rank still handles messages that arrive in this time. Throws
  /// `invalid_argument` if `seconds` is negative, infinite or NaN.
  template <simulated_transport P = Port>
  auto sleep(double seconds) {
    return port_.sleep(seconds);
  }

  /// `last_call()` returns the statistics of the call that ended last, and `statistics()` the total of all calls that
  /// have ended. If the rank has a progress_thread, read the statistics only while no call is in flight.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return port_.node().calls().last_call(); }
  /// The total of the statistics of all calls that have ended.
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return port_.node().calls().statistics(); }

  /// Sets the deadline, that is, the number of seconds for which a call waits for a message before the call ends in
  /// `timeout`. Without an argument, the deadline is infinite. Before the first `set_deadline`, the deadline is 600 s,
  /// or infinite in the simulator. Throws `invalid_argument` if `seconds` is negative or NaN.
  void set_deadline(double seconds = std::numeric_limits<double>::infinity()) { port_.node().set_deadline(seconds); }
  /// The deadline in seconds (see `set_deadline`).
  [[nodiscard]] double deadline() const noexcept { return port_.node().deadline(); }

  /// Turns checksums on or off (the default). With checksums, each message contains a checksum of its payload, which
  /// the receiver verifies, and a number, by which the receiver detects missing messages. All ranks must use the same
  /// setting, and change the setting only between calls.
  void set_checksums(bool on) { port_.node().set_checksums(on); }
  /// Whether checksums are on.
  [[nodiscard]] bool checksums() const noexcept { return port_.node().checksums(); }

  /// A collective call, which sets the network model on all ranks to rank 0's `network`; the `network` of the other
  /// ranks is ignored. The model must be the same on all ranks, because `cheapest` and `sparcml` use the model to
  /// choose an algorithm, and `flexreduce` uses the model to decide whether to use a barrier. All ranks must call
  /// `set_network`, between the same two collectives; not for ranks of the simulator, which have the model of their
  /// options. Throws `invalid_argument` on every rank if a parameter of rank 0's `network` is negative, infinite or
  /// NaN, and may throw the \ref call_errors. Needs `<spar/system/set_network.hpp>`, which `<spar/spar.hpp>` includes.
  void set_network(const network_model& network);
  /// The network model by which spar chooses algorithms, equal on all ranks (see `set_network`).
  [[nodiscard]] const network_model& network() const noexcept { return port_.node().network(); }

  /// Whether a rank of this communicator has failed, as far as this rank knows. After a failure, no collective works on
  /// the communicator any more.
  [[nodiscard]] bool dead() const noexcept { return port_.node().dead(); }
  /// The rank that failed first, as far as this rank knows; -1 if no rank has failed.
  [[nodiscard]] rank_t failed_rank() const noexcept { return port_.node().failure().failed_rank(); }

  /// The rank's transport. Only spar itself, decorators and tests need the transport.
  [[nodiscard]] Port& port() noexcept { return port_; }
  [[nodiscard]] const Port& port() const noexcept { return port_; }

 protected:
  /// Passes `args` to the constructor of the port.
  template <class... Args>
  explicit communicator_rank(Args&&... args) : port_(std::forward<Args>(args)...) {}
  ~communicator_rank() {
    if constexpr (std::derived_from<Port, endpoint>) // otherwise the wrapped communicator lives on
      ensure(port_.shared() == nullptr, "a communicator is destroyed before its progress_thread; destroy that first");
    detail::link& handles = port_.node().calls().handles();
    if (&handles.after() != &handles) detail::end_calls(port_);
  }

 private:
  Port port_;
};

/// A type of objects on which collectives can be called: a communicator_rank or a transport. A function that takes a
/// communicator may throw the \ref call_errors, unless it is `noexcept`.
template <class Net>
concept communicates = transport<Net> || requires(Net& net) {
  { net.port() } -> std::same_as<typename Net::port_type&>;
  requires transport<typename Net::port_type>;
};

namespace detail {

template <communicates Net>
[[nodiscard]] auto& port_of(Net& net) noexcept {
  if constexpr (transport<Net>)
    return net;
  else
    return net.port();
}
template <communicates Net>
using port_type_of = std::remove_reference_t<decltype(port_of(std::declval<Net&>()))>;

} // namespace detail

/// Aborts the communicator: all calls in flight and all later calls, on all ranks, end in `peer_failed` with `reason`.
/// The other ranks get the first 516 characters of `reason`. Use `abort` on a rank that cannot continue; a call that
/// fails aborts the communicator by itself. The pending calls of this rank unwind before `abort` returns or, if a
/// coroutine calls `abort`, when this coroutine is suspended. A pending call ends once no peer reads its send buffers
/// any more.
template <communicates Net>
void abort(Net& net, std::string_view reason) noexcept {
  auto& port = detail::port_of(net);
  const detail::rank_lock lock(port.node().shared());
  detail::abort_and_unwind(port, reason);
}

namespace detail {

/// Called with the exception that is being handled, if this rank fails to take part in something that other ranks take
/// part in: aborts the communicator and rethrows the exception: they may wait for this rank. Does not abort
/// for `invalid_argument`, which is thrown before anything is sent. The caller does not hold the lock of the rank.
template <communicates Net>
[[noreturn, gnu::cold]] void fail_to_begin(Net& net) {
  try {
    throw;
  } catch (const invalid_argument&) {
    throw;
  } catch (...) {
    spar::abort(net, message_of(std::current_exception()).view());
    throw;
  }
}

/// Returns `work()`. If it throws, calls `fail_to_begin`.
template <communicates Net, class Work>
auto or_abort(Net& net, const Work& work) {
  try {
    return work();
  } catch (...) {
    fail_to_begin(net);
  }
}

} // namespace detail

} // namespace spar::inline v0_1
