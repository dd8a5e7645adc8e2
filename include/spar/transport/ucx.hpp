// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over UCX, which needs no MPI: one rank of a group of processes.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/transport/patience.hpp>
#include <spar/transport/ucx/founders.hpp>
#include <spar/transport/ucx/port.hpp>

#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// One rank of a communicator over UCX, which uses shared memory within a host, and TCP or RDMA between hosts. UCX
/// reads its own settings from the variables UCX_..., such as UCX_TLS. Destruction waits for no other rank, or at most
/// one second: it tells the others that this rank has left, and their calls end in `peer_failed` if they wait for a
/// call that this rank has not made. If the process of a rank ends before, the calls of the others end in `peer_failed`
/// within a second.
class ucx : public communicator_rank<ucx_port> {
 public:
  /// Collective over the ranks that `meeting` names. `options` are those of this rank. Throws what
  /// `rendezvous::exchange` throws, `transport_error` if UCX fails, and `corrupt_message` if a rank describes itself in
  /// a way that no rank of this version does.
  explicit ucx(const rendezvous& meeting = rendezvous::from_environment(), const ucx_options& options = {})
      : ucx(detail::ucx_founders::meet(meeting), options, {}) {}

  /// Returns a communicator of the ranks that pass the same `colour`, in ascending order of `key`, with the options and
  /// network model of this communicator. Collective over this communicator. Throws `invalid_argument` if `colour` is
  /// negative or this rank has called `leave`, `peer_failed` if a rank has failed or left, `timeout` if a rank does not
  /// call `split` before the deadline, and `transport_error` if UCX fails.
  [[nodiscard]] ucx split(int colour, int key) {
    port().check_open();
    if (colour < 0) raise<invalid_argument>({"split was called with the colour ", colour, "; expected 0 or more"});
    const detail::rank_lock lock(port().shared());
    return ucx(port().split(colour, key), port().options(), network());
  }
  /// Returns a communicator of the ranks that go on after a failure: those that call `shrink`, in their old order, with
  /// the options, network model, deadline and checksums of this communicator. They agree by the store of the
  /// rendezvous, which must still be served. Aborts this communicator unless it is dead already, so that the others
  /// learn that they must call `shrink`, too. Waits for each rank until it has left, its process has ended, or it has
  /// been silent for the deadline. A rank that comes later gets `peer_failed`, for the others go on without it. Throws
  /// `invalid_argument` for a second `shrink` of this communicator, or in a coroutine that has waited for a call, and
  /// `transport_error` if UCX fails or the store cannot be reached.
  [[nodiscard]] ucx shrink() {
    detail::end_for_shrink(port());
    detail::patience_of<ucx_port> with(port());
    return ucx(port().shrink(with), *this);
  }
  /// Where the ranks of this communicator have met.
  [[nodiscard]] const rendezvous& meeting() const noexcept { return port().meeting(); }

 private:
  ucx(detail::ucx_founders&& all, const ucx_options& options, const network_model& network)
      : communicator_rank(std::move(all), options, network) {}
  /// With the settings of `other`.
  ucx(detail::ucx_founders&& all, const ucx& other) : ucx(std::move(all), other.port().options(), other.network()) {
    set_deadline(other.deadline());
    set_checksums(other.checksums());
  }
};

/// Returns, for each rank r of `net`, the lowest rank on the same host. The result is an argument of `tree_of_hosts`.
inline std::vector<rank_t> hosts_of(const ucx& net) { return net.port().hosts(); }

} // namespace spar::inline v0_1
