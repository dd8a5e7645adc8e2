// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The size of the segments in which payloads of more than 4 KiB are sent over MPI, chosen so that both directions of a
// link stay busy.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/transport/mpi/check.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/hosts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Options of the transport `mpi`.
struct mpi_options {
  /// Size in bytes of the segments in which a payload of more than 4 KiB is sent. 0 means 1 GiB between ranks of one
  /// host and 16 KiB between hosts. Open MPI and MPICH send messages of up to 16 KiB over TCP without a handshake. The
  /// handshake of a longer message would queue behind data. On networks where a handshake does not queue behind data, a
  /// larger size may be faster. If ranks pass different sizes, the smallest size other than 0 applies to all ranks.
  std::size_t segment_bytes = 0;
  /// Upstream resource of the rank's memory pool.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  /// Whether `on_device` may pass pointers to device memory to the MPI library, if the library says that it takes them.
  /// Ranks may differ.
  bool device_memory = true;
};

namespace detail {

/// The segment size in bytes for each peer, equal on both ranks of a pair: the smallest `segment_bytes` that any rank
/// has set or, if none has, a size that depends on whether the two ranks share a host.
class mpi_segments {
 public:
  /// The segment size in bytes between ranks of one host, where smaller segments are not faster. Twice this size is
  /// impossible, because MPI counts bytes with an int.
  static constexpr std::size_t largest = std::size_t{1} << 30;
  /// The segment size in bytes between hosts. Open MPI and MPICH send messages of up to this size over TCP without a
  /// handshake. The handshake of a longer message would queue behind the data that flows in the same direction, so that
  /// the two directions of a link would take turns.
  static constexpr std::size_t between_hosts = 16384;
  /// The number of segments of a message that are in flight at the same time, enough to keep the link busy until this
  /// rank posts the next segments.
  static constexpr std::size_t window = 32;
  /// One segment in 16 is sent by MPI_Issend, which completes only after the peer has begun to receive the segment. All
  /// other segments are sent by MPI_Isend, which completes when MPI has taken the data. If all segments were sent by
  /// MPI_Isend, MPI could buffer the whole message of a sender that is ahead of its receiver.
  static constexpr std::size_t confirmed = 16;

  /// Takes the memory that `agree` needs on `ranks` ranks.
  explicit mpi_segments(rank_t ranks) : hosts_(static_cast<std::size_t>(ranks)) {}

  /// Sets the sizes; collective over `comm`. `wanted` is the option `segment_bytes` of this rank, which may be 0. Takes
  /// no memory. Throws what `least_of` throws.
  void agree(MPI_Comm comm, std::size_t wanted) {
    constexpr auto none = static_cast<std::int64_t>(largest) + 1;
    const std::int64_t least = least_of(comm, wanted > 0 ? static_cast<std::int64_t>(std::min(wanted, largest)) : none);
    if (least != none) {
      near_ = far_ = static_cast<std::size_t>(least);
      return;
    }
    find_hosts(comm, hosts_);
    own_host_ = hosts_[static_cast<std::size_t>(rank_of(comm))];
    far_ = between_hosts;
  }

  /// Returns the smallest `wish` of all ranks; `wish` is a segment size in bytes. MPI_Allreduce computes the minimum of
  /// one number per rank. The low 32 bits of the number hold `wish`; the bits above hold the byte order and the version
  /// of the wire format, so that the minimum comes from a rank with the oldest version. Ranks with version 1 of the
  /// wire format send `wish` alone. Throws `peer_failed` if a rank has called `decline`, and `mismatch` if another rank
  /// has an older version than `version`, or is little-endian while this rank is big-endian.
  static std::int64_t least_of(MPI_Comm comm, std::int64_t wish, std::int64_t version = header::current_version) {
    constexpr std::int64_t big_endian = std::endian::native == std::endian::big ? 1 : 0;
    constexpr int order_at = 32, version_at = 33;
    std::int64_t least = version << version_at | big_endian << order_at | wish;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN, comm), "MPI_Allreduce");
    if (least < 0)
      raise<peer_failed>({"rank ", -1 - least, " has failed to make its communicator, so this rank has none either"});
    const std::int64_t oldest = std::max<std::int64_t>(least >> version_at, 1);
    if (oldest != version) {
      raise<mismatch>({"ranks have different versions of spar: one has version ", oldest,
                       " of the wire format, this rank has version ", version});
    }
    if ((least >> order_at & 1) != big_endian) {
      raise<mismatch>({"this rank is on a big-endian machine and another rank on a little-endian one; spar needs the "
                       "same byte order on all ranks"});
    }
    return least & ((std::int64_t{1} << order_at) - 1);
  }
  /// Called instead of `least_of` by a rank that fails to construct its transport.
  static void decline(MPI_Comm comm) noexcept {
    std::int64_t failed = -1 - std::int64_t{rank_of(comm)};
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT64_T, MPI_MIN, comm);
  }

  [[nodiscard]] std::size_t operator[](rank_t peer) const noexcept {
    return hosts_[static_cast<std::size_t>(peer)] == own_host_ ? near_ : far_;
  }

 private:
  static rank_t rank_of(MPI_Comm comm) noexcept {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return rank;
  }

  std::size_t near_ = largest; // segment size for peers on this rank's host
  std::size_t far_ = largest;  // segment size for peers on other hosts
  std::vector<rank_t> hosts_;  // of each rank: the lowest rank on its host
  rank_t own_host_ = 0;
};

/// The ranks of a communicator that construct their transports. Each rank first takes all its memory. It then calls
/// `join`, duplicates the communicator for control messages, and calls `mpi_segments::agree`: older versions of spar do
/// so in this order. If a rank fails before `join`, the destructor takes these steps instead, so that `agree` fails on
/// the other ranks, which would otherwise wait for this rank forever.
class mpi_founders {
 public:
  explicit mpi_founders(owned_communicator&& comm) noexcept : comm_(std::move(comm)) {}
  ~mpi_founders() {
    if (comm_.get() == MPI_COMM_NULL) return;
    try {
      const owned_communicator of_control_messages = owned_communicator::duplicate(comm_.get());
      mpi_segments::decline(comm_.get());
    } catch (...) { // MPI has failed
    }
  }
  [[nodiscard]] rank_t rank() const noexcept { return comm_.rank(); }
  [[nodiscard]] rank_t size() const noexcept { return comm_.size(); }
  [[nodiscard]] owned_communicator join() noexcept { return std::move(comm_); }

 private:
  owned_communicator comm_;
};

} // namespace detail

} // namespace spar::inline v0_1
