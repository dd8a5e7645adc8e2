// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One type for the ranks of all transports, and groups of ranks in one process. This header compiles in a fraction of
// the time of the other headers. Most functions are in the compiled library; transport/any.hpp has them for programs
// without the library.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/statistics.hpp>

#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

class any_port;
class pool;
struct network_model;

namespace detail {

class any_rank;
class group_object;
struct any_access;

/// What the constructor of any_transport takes: a communicator or a transport.
template <class Net>
concept has_ranks = requires(Net& net) { net.rank(), net.size(), net.now(); };

} // namespace detail

/// A rank of `threads`, `mpi`, `ucx` or `sim`, whose type does not depend on the transport. Code that takes an
/// `any_transport&` is compiled once and runs on every transport; in return, each send and each receive costs a few
/// calls by pointer. A decorator may wrap an any_transport, but an any_transport cannot wrap a decorator. To pass an
/// any_transport to a collective that is a template, such as `spar::allreduce`, include `<spar/transport/any.hpp>`;
/// `any_allreduce` and the other types of `<spar/any.hpp>` need no other header.
///
/// An any_transport without a rank can only be tested, be assigned to and be destroyed.
class any_transport {
 public:
  using port_type = any_port; ///< the transport on which collectives run

  /// Refers to the rank `net`, which must outlive this object. Needs `<spar/transport/any.hpp>`.
  template <detail::has_ranks Net>
  explicit any_transport(Net& net);
  /// Takes over the rank of `other`, which then has none. Calls in flight continue.
  any_transport(any_transport&& other) noexcept : rank_(std::exchange(other.rank_, nullptr)) {}
  /// Ends all calls in flight on this rank, and takes over the rank of `other`, as in `net = net.shrink()`.
  any_transport& operator=(any_transport&& other) noexcept {
    any_transport before(std::move(*this));
    rank_ = std::exchange(other.rank_, nullptr);
    return *this;
  }
  /// Ends all calls in flight on this rank.
  ~any_transport();

  /// Whether this object has a rank, as in `if (any_transport wider = net.grow())`: not after another object has taken
  /// over the rank, nor what `grow` returns if no process has joined.
  [[nodiscard]] explicit operator bool() const noexcept { return rank_ != nullptr; }

  /// This rank's number, from 0 to size() - 1.
  [[nodiscard]] rank_t rank() const noexcept;
  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept;
  /// Seconds since an arbitrary start; virtual time in the simulator.
  [[nodiscard]] double now() noexcept;
  /// The rank's pool, from which streams and buffers take their memory.
  [[nodiscard]] pool& memory() const noexcept;

  /// Advances the calls in flight, as `communicator_rank::progress` does, and throws what that function throws. With
  /// `block`, waits until something has happened.
  void progress(bool block);

  /// The statistics of the call that ended last.
  [[nodiscard]] const spar::statistics& last_call() const noexcept;
  /// The total of the statistics of all calls that have ended.
  [[nodiscard]] const spar::statistics& statistics() const noexcept;

  /// Sets the number of seconds for which a call waits for a message before the call ends in `timeout`. Throws
  /// `invalid_argument` if `seconds` is negative or NaN.
  void set_deadline(double seconds = __builtin_inf());
  /// The deadline in seconds (see `set_deadline`).
  [[nodiscard]] double deadline() const noexcept;

  /// Turns checksums on or off, as `communicator_rank::set_checksums` does.
  void set_checksums(bool on);
  /// Whether checksums are on.
  [[nodiscard]] bool checksums() const noexcept;

  /// A collective call, which sets the network model on all ranks to rank 0's `network` (see
  /// `communicator_rank::set_network`). Throws `invalid_argument` if a number is negative, infinite or NaN, and may
  /// throw the \ref call_errors.
  void set_network(const network_model& network);
  /// The network model by which spar chooses algorithms, equal on all ranks.
  [[nodiscard]] const network_model& network() const noexcept;

  /// For each rank, the lowest rank on the same host: an argument of any_allreduce and any_feedback, which then use the
  /// tree of the hosts. Empty for simulated ranks, and if this object refers to a rank of the program.
  [[nodiscard]] std::span<const rank_t> hosts() const noexcept;

  /// Returns a communicator of the ranks that pass the same `colour`, in ascending order of `key` and then of their old
  /// rank. Collective over this communicator. Throws what the function `split` of the transport throws;
  /// `invalid_argument` also for simulated ranks, and if this object refers to a rank of the program. Between threads,
  /// throws `invalid_argument` if `colour` is negative, and the \ref call_errors.
  [[nodiscard]] any_transport split(int colour, int key);
  /// Returns a communicator of the ranks that go on after a failure: those that call `shrink`. Throws what the function
  /// `shrink` of the transport throws; `invalid_argument` also for a second `shrink`, for simulated ranks, over MPI
  /// without a rendezvous (see `any_mpi`), and if this object refers to a rank of the program.
  [[nodiscard]] any_transport shrink();
  /// Lets processes join that have called `any_ucx_join`: returns a communicator of the ranks of this one and, behind
  /// them, of those processes; an object without a rank if no process has joined. Collective over this communicator,
  /// which remains as it is. Throws what `ucx::grow` throws, and `invalid_argument` unless this is a rank of `any_ucx`
  /// or of `any_ucx_join`, or a part or a successor of one.
  [[nodiscard]] any_transport grow();

  /// Whether a rank of this communicator has failed, as far as this rank knows.
  [[nodiscard]] bool dead() const noexcept;
  /// The rank that failed first, as far as this rank knows; -1 if no rank has failed.
  [[nodiscard]] rank_t failed_rank() const noexcept;
  /// Aborts the communicator: all calls in flight and all later calls, on all ranks, end in `peer_failed` with
  /// `reason`.
  void abort(std::string_view reason) noexcept;
  /// Leaves the communicator together with all other ranks, as the function `spar::leave` does, and throws what that
  /// function throws, such as the \ref call_errors.
  void leave();

  /// The rank's transport. Only spar itself, decorators and tests need the transport.
  [[nodiscard]] any_port& port() noexcept;
  [[nodiscard]] const any_port& port() const noexcept;

 private:
  friend detail::any_access;
  explicit any_transport(detail::any_rank* rank) noexcept : rank_(rank) {}

  detail::any_rank* rank_; // null if this object has no rank
};

/// A group of ranks in one process: each in its own thread, or all simulated on one thread.
class any_group {
 public:
  /// Creates `size` ranks for threads, as `thread_group` does. Throws `invalid_argument` if `size` is less than 1.
  [[nodiscard]] static any_group threads(rank_t size);
  /// Creates `size` ranks of a simulated machine with default options, as `simulator` does. One thread starts the
  /// calls of all ranks before it waits for one of them. Throws `invalid_argument` if `size` is less than 1.
  [[nodiscard]] static any_group simulated(rank_t size);
  /// Takes over the ranks of `other`, which can then only be destroyed.
  any_group(any_group&& other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
  any_group& operator=(any_group&&) = delete;
  ~any_group();

  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept;
  /// The rank `r`, from 0 to size() - 1. Throws `invalid_argument` for any other `r`.
  [[nodiscard]] any_transport& rank(rank_t r);

  /// Runs `program(any_transport&)` for each rank of `threads` in its own thread, and joins the threads; rethrows the
  /// first error of any rank (see `thread_group::run`). Throws `invalid_argument` for simulated ranks.
  template <class Program>
  void run(Program&& program) {
    const auto call = [&program](any_transport& net) { program(net); };
    run_all([](const void* self, any_transport& net) { (*static_cast<const decltype(call)*>(self))(net); }, &call);
  }

 private:
  explicit any_group(detail::group_object* group) noexcept : group_(group) {}
  void run_all(void (*call)(const void* self, any_transport& net), const void* program);

  detail::group_object* group_; // null if another object has taken over the ranks
};

} // namespace spar::inline v0_1
