// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The size of the segments into which a large payload is cut for MPI, so that both directions of a link stay busy.
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

/// Options of `mpi`.
struct mpi_options {
  /// Size in bytes of the segments in which a large payload is sent. 0 means 1 GiB between ranks of one host and 16 KiB
  /// between hosts, the most that two ranks can send each other at the same time over TCP. On networks that do not
  /// queue like TCP, a larger size may be faster. If ranks give different sizes, the smallest one other than 0 applies.
  std::size_t segment_bytes = 0;
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource(); ///< upstream of the rank's pool
};

namespace detail {

/// The segment size for each peer, the same on both ranks of a pair: the smallest size that any rank was given,
/// otherwise a size that depends on whether the two ranks share a host.
class mpi_segments {
 public:
  /// The size within a host, where smaller segments gain nothing. Larger ones are impossible: MPI counts with an int.
  static constexpr std::size_t largest = std::size_t{1} << 30;
  /// A size that Open MPI and MPICH send over TCP without a handshake. For longer messages, the handshake queues behind
  /// the data that flows in the same direction, so the two directions of a link take turns.
  static constexpr std::size_t between_hosts = 16384;
  /// Segments of a message in flight at once: enough to bridge the time until the next segments are posted.
  static constexpr std::size_t window = 32;
  /// One segment in this many completes only when it is received. The others complete when MPI has taken the data:
  /// without a limit, MPI would buffer the whole message of a sender that is ahead of its receiver.
  static constexpr std::size_t confirmed = 16;

  /// Collective over `comm`. `wanted` is the size that this rank was given, or 0 for none. Throws `mismatch` if a rank
  /// has an older version of the wire format, or if this machine is big-endian and the machine of another rank is
  /// little-endian.
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

  /// Returns the smallest wish of all ranks. One number per rank is compared: the wish in the low 32 bits, above them
  /// the byte order and the version of the wire format, so that the smallest number belongs to a rank with the oldest
  /// version. Version 1 sent the wish alone.
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
      raise<mismatch>(
          {"ranks run on machines of different byte orders, but spar needs the same byte order on all ranks"});
    }
    return least & ((std::int64_t{1} << order_at) - 1);
  }

  [[nodiscard]] std::size_t operator[](rank_t peer) const noexcept {
    return is_far_.empty() || !is_far_[static_cast<std::size_t>(peer)] ? near_ : far_;
  }

 private:
  std::size_t near_ = largest;
  std::size_t far_ = between_hosts;
  std::vector<bool> is_far_; // empty if all ranks are on one host
};

} // namespace detail

} // namespace spar
