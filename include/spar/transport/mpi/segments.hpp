// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How long the messages are that a large payload is cut into for MPI, so that both directions of a link are busy.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/transport/mpi/check.hpp>
#include <spar/transport/mpi/hosts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace spar {

struct mpi_options {
  /// A large payload goes out in segments of so many bytes. 0: of 1 GiB among the ranks of a host, and of 16 KiB
  /// between hosts, which over TCP is what two ranks can send each other at the same time; on networks that do not
  /// queue like TCP more may be better. Where ranks differ, the least counts.
  std::size_t segment_bytes = 0;
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource(); ///< what the rank's pool takes from
};

namespace detail {

/// The same on both ends of every pair of ranks: the smallest size that any rank was given, else by where the two are.
class mpi_segments {
 public:
  /// On one host there is nothing to gain, but MPI counts with an int.
  static constexpr std::size_t largest = std::size_t{1} << 30;
  /// What Open MPI and MPICH send over TCP without asking the receiver first. What they ask and answer for a longer
  /// message queues behind the data that flows the same way, and so a link's two directions take turns.
  static constexpr std::size_t between_hosts = 16384;
  /// How many of a message are under way at once: enough to cover the time until the next are posted.
  static constexpr std::size_t window = 32;
  /// Every so many segments one ends only when it is received. The others end when MPI has taken them: without a limit
  /// it would hold the whole message of a sender that is ahead of its receiver.
  static constexpr std::size_t confirmed = 16;

  /// Collective. `wanted` bytes, or 0 for no wish. Throws `mismatch` where a rank has an older wire format, or, on a
  /// machine of little-endian order where this one is big-endian, another byte order.
  mpi_segments(MPI_Comm comm, std::size_t wanted) {
    constexpr auto none = static_cast<std::int64_t>(largest) + 1;
    const std::int64_t least = agree(comm, wanted > 0 ? static_cast<std::int64_t>(std::min(wanted, largest)) : none);
    if (least != none) {
      near_ = far_ = static_cast<std::size_t>(least);
      return;
    }
    const std::vector<rank_t> host = hosts_of(comm);
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    const rank_t own = host[static_cast<std::size_t>(rank)];
    if (std::all_of(host.begin(), host.end(), [=](rank_t h) { return h == own; })) return;
    for (const rank_t h : host) is_far_.push_back(h != own);
  }

  /// The least wish of all ranks. One number goes around: above the wish, of 32 bits, the byte order and the version of
  /// the wire format, so that the least number is one of the oldest version. Version 1 sent the wish alone.
  static std::int64_t agree(MPI_Comm comm, std::int64_t wish, std::int64_t version = header::current_version) {
    constexpr std::int64_t big_endian = std::endian::native == std::endian::big ? 1 : 0;
    constexpr int order_at = 32, version_at = 33;
    std::int64_t least = version << version_at | big_endian << order_at | wish;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN, comm), "MPI_Allreduce");
    const std::int64_t oldest = std::max<std::int64_t>(least >> version_at, 1);
    if (oldest != version) {
      raise<mismatch>({"ranks have different versions of spar: one has version ", oldest,
                       " of the wire format, this rank has version ", version});
    }
    if ((least >> order_at & 1) != big_endian) {
      raise<mismatch>({"ranks run on machines of different byte orders, of which spar needs one"});
    }
    return least & ((std::int64_t{1} << order_at) - 1);
  }

  [[nodiscard]] std::size_t operator[](rank_t peer) const noexcept {
    return is_far_.empty() || !is_far_[static_cast<std::size_t>(peer)] ? near_ : far_;
  }

 private:
  std::size_t near_ = largest;
  std::size_t far_ = between_hosts;
  std::vector<bool> is_far_; // empty where all ranks are on one host
};

} // namespace detail

} // namespace spar
