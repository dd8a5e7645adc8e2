// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over UCX, which needs no MPI: one rank of a group of processes.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/rendezvous/environment.hpp>
#include <spar/rendezvous/joiners.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/tcp_store.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/transport/patience.hpp>
#include <spar/transport/ucx/founders.hpp>
#include <spar/transport/ucx/port.hpp>

#include <cstdint>
#include <memory>
#include <string>
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
  /// a way that no rank of this version does. If UCX fails on one rank, the others get `peer_failed`.
  explicit ucx(const rendezvous& meeting = rendezvous::from_environment(), const ucx_options& options = {})
      : ucx(detail::ucx_founders::meet(meeting), options, network_model{}) {}

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
    detail::refuse_growth(meeting().meeting(), growth_prefix(), "a rank has called shrink"); // which nobody leads now
    detail::patience_of<ucx_port> with(port());
    return ucx(port().shrink(with), port().options(), heritage());
  }
  /// Lets processes join that have called `join`: returns a communicator of the ranks of this one, in their order, and
  /// behind them those processes, with the options, and rank 0's network model, deadline and checksums, of this
  /// communicator; null if nobody asks to join. This communicator remains as it is. Collective over this communicator:
  /// without a joiner, it takes the time of a broadcast, and rank 0 asks the store of the rendezvous once. A joiner
  /// that does not answer within 5 s, or half the deadline if that is shorter, is left out, and may ask again. Returns
  /// null also if a joiner gives up while the ranks grow, because its own deadline has passed. Throws
  /// `peer_failed` on all ranks if one of them fails meanwhile, after which nobody has joined, and `shrink` goes on
  /// without that rank. May throw the \ref call_errors, `invalid_argument` if this rank has called `leave` or in a
  /// coroutine that has waited for a call, and `transport_error` if UCX fails or the store cannot be reached. Needs
  /// `<spar/system/ucx_grow.hpp>`, which
  /// `<spar/ucx.hpp>` includes.
  [[nodiscard]] std::unique_ptr<ucx> grow();
  /// Joins the ranks of a job, which run already, when they call `grow` next: returns the communicator that `grow`
  /// returns to them. The job meets where `meeting` and the variables of the environment say, of which those that name
  /// a rank are not read; `options` are those of this rank. Throws what the constructor of `tcp_store` throws,
  /// `invalid_argument` if variables are missing or malformed, `timeout` if the ranks have not called `grow` and
  /// decided within `meeting.deadline`, `mismatch` if the job runs another version of spar, `corrupt_message` if other
  /// programs write into the store, and `transport_error` if UCX fails or the job ends meanwhile.
  [[nodiscard]] static ucx join(const rendezvous_options& meeting = {}, const ucx_options& options = {}) {
    const rendezvous_options where = detail::job_to_join(meeting);
    return join(std::make_shared<tcp_store>(where), where, options);
  }
  /// The same for a job that meets in `store`, a store that the program brings, with the `options` of this rank. Of
  /// `meeting`, only the deadline and the network interface count. Throws `invalid_argument` also if `store` is null,
  /// the same `timeout`, `mismatch`, `corrupt_message` and `transport_error`, and `peer_failed` if the job refuses this
  /// process.
  [[nodiscard]] static ucx join(const std::shared_ptr<rendezvous_store>& store, const rendezvous_options& meeting = {},
                                const ucx_options& options = {}) {
    auto [all, given] = detail::ucx_founders::join(rendezvous(store, 0, 1, meeting));
    return ucx(std::move(all), options, given);
  }
  /// Where the ranks of this communicator have met.
  [[nodiscard]] const rendezvous& meeting() const noexcept { return port().meeting(); }

 private:
  ucx(detail::ucx_founders&& all, const ucx_options& options, const network_model& network)
      : communicator_rank(std::move(all), options, network) {}
  ucx(detail::ucx_founders&& all, const ucx_options& options, const detail::ucx_heritage& from)
      : ucx(std::move(all), options, from.network) {
    set_deadline(from.deadline);
    set_checksums(from.checksums != 0);
    next_place_ = from.next_place;
  }
  [[nodiscard]] detail::ucx_heritage heritage() const {
    return {network(), deadline(), checksums() ? std::uint64_t{1} : 0, next_place_};
  }
  /// The beginning of the keys in the store of the next `grow` with a joiner.
  [[nodiscard]] std::string growth_prefix() const { return meeting().key(sentence("grow/", growths_, "/")); }

  std::uint64_t next_place_ = 0; // on rank 0: where processes that join the job ask next, as far as this rank knows
  std::uint64_t growths_ = 0;    // how often processes have asked to join this communicator
};

/// Returns, for each rank r of `net`, the lowest rank on the same host. The result is an argument of `tree_of_hosts`.
inline std::vector<rank_t> hosts_of(const ucx& net) { return net.port().hosts(); }

} // namespace spar::inline v0_1
