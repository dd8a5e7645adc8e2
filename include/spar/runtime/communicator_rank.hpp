// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program's interface to one rank of a communicator, the same for every transport.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/statistics.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <concepts>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar {

/// Base of `threads`, `mpi`, `sim` and the decorators. Owns the rank's transport, called the port, on which collectives
/// run. Only one thread at a time may use it, apart from a progress_thread.
template <transport Port>
class communicator_rank {
 public:
  using port_type = Port;

  communicator_rank(const communicator_rank&) = delete;

  /// This rank's number, from 0 to size() - 1.
  [[nodiscard]] rank_t rank() const noexcept { return port_.rank(); }
  [[nodiscard]] rank_t size() const noexcept { return port_.size(); }
  /// Seconds since an arbitrary start; virtual time in the simulator.
  [[nodiscard]] double now() noexcept { return port_.now(); }

  /// The rank's pool, from which streams and buffers take their memory.
  [[nodiscard]] pool& memory() const noexcept { return port_.memory(); }

  /// Advances the calls in flight. With `block`, waits until something may have happened; otherwise does not wait.
  /// Calls that wait make progress themselves.
  void progress(bool block) {
    const detail::rank_lock lock(port_.node().shared());
    port_.progress(block);
  }
  /// For `co_await` in a simulated program: the program computes or idles for `seconds` of virtual time, while its rank
  /// still handles arriving messages.
  auto sleep(double seconds)
    requires requires(Port& simulated) { simulated.sleep(seconds); }
  {
    return port_.sleep(seconds);
  }

  /// Statistics of the call that ended last, and of all calls that have ended. With a progress_thread, read them while
  /// no call is in flight.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return port_.node().calls().last_call(); }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return port_.node().calls().statistics(); }

  /// Sets the number of seconds for which a call waits for a message before it ends in `timeout`: 600 by default,
  /// infinite without the argument. In the simulator the default is infinite.
  void set_deadline(double seconds = std::numeric_limits<double>::infinity()) { port_.node().set_deadline(seconds); }
  [[nodiscard]] double deadline() const noexcept { return port_.node().deadline(); }

  /// Whether messages carry a checksum of their payload, which the receiver verifies, and a number, by which the
  /// receiver detects missing messages. Must be the same on every rank; set it between calls. Off by default.
  void set_checksums(bool on) { port_.node().set_checksums(on); }
  [[nodiscard]] bool checksums() const noexcept { return port_.node().checksums(); }

  /// The network model by which algorithms are chosen, the same on every rank; `spar::set_network` changes it.
  [[nodiscard]] const network_model& network() const noexcept { return port_.node().network(); }

  /// Whether a rank has failed. If so, collectives on this communicator no longer work.
  [[nodiscard]] bool dead() const noexcept { return port_.node().dead(); }
  /// The rank that failed first, as far as this rank knows; -1 while the communicator is alive.
  [[nodiscard]] rank_t failed_rank() const noexcept { return port_.node().failure().failed_rank(); }

  /// The transport, for the library, decorators and tests.
  [[nodiscard]] Port& port() noexcept { return port_; }
  [[nodiscard]] const Port& port() const noexcept { return port_; }

 protected:
  template <class... Args>
  explicit communicator_rank(Args&&... args) : port_(std::forward<Args>(args)...) {}
  ~communicator_rank() = default;

 private:
  Port port_;
};

/// What collectives can be called on: a communicator_rank or a transport.
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

/// Ends every call on the communicator, on all ranks, in `peer_failed` with `reason`; later calls end in the same way.
/// The other ranks get the first 520 characters of `reason`. For a rank that cannot continue; a call that fails aborts
/// on its own. Pending calls of this rank unwind before `abort` returns or, if a coroutine calls `abort`, when that
/// coroutine is suspended. These calls end once no peer reads their send buffers any more.
template <communicates Net>
void abort(Net& net, std::string_view reason) noexcept {
  auto& port = detail::port_of(net);
  const detail::rank_lock lock(port.node().shared());
  detail::abort_and_unwind(port, reason);
}

} // namespace spar
