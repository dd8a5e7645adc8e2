// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that have ended, where the MPI library tells: Open MPI from version 5 on, by User-Level Failure Mitigation
// (ULFM), if mpiexec starts the job with `--with-ft mpi`. Other libraries, or their launchers, end the job.
#pragma once

#include <spar/core/address.hpp>
#include <spar/transport/mpi/check.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

namespace spar::inline v0_1::detail {

/// Owns a group of MPI, which the destructor frees.
struct owned_group {
  owned_group() = default;
  owned_group(const owned_group&) = delete;
  ~owned_group() {
    if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
  }
  MPI_Group group = MPI_GROUP_NULL;
};

#ifdef OMPI_HAVE_MPIX_COMM_GET_FAILED

/// Whether an MPI function has returned `code` because a process has ended.
inline bool tells_of_lost_process(int code) noexcept {
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  return kind == MPI_ERR_PROC_FAILED || kind == MPI_ERR_PROC_FAILED_PENDING;
}

/// The ranks of `comm` whose processes have ended, as far as MPI knows. From now on, receives from any rank of `comm`
/// do not fail because of them.
inline std::vector<rank_t> lost_processes(MPI_Comm comm) {
  owned_group failed, all;
  check_mpi(MPIX_Comm_get_failed(comm, &failed.group), "MPIX_Comm_get_failed");
  check_mpi(MPI_Comm_group(comm, &all.group), "MPI_Comm_group");
  int size = 0, acknowledged = 0;
  MPI_Group_size(failed.group, &size);
  std::vector<int> positions, ranks(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) positions.push_back(i);
  MPI_Group_translate_ranks(failed.group, size, positions.data(), all.group, ranks.data());
  check_mpi(MPIX_Comm_ack_failed(comm, size, &acknowledged), "MPIX_Comm_ack_failed");
  return {ranks.begin(), ranks.end()};
}

/// A communicator of the processes in `group`, of whom all call this function with the same `number`, which tells this
/// call from another one for an equal group at the same time. Processes outside the group may have ended, which
/// MPI_Comm_create_group does not allow. MPI_Comm_create_from_group is not supported by Open MPI 5.0 if messages travel
/// by UCX (issue 12566 of Open MPI), or without mpiexec.
inline int create_among(MPI_Comm comm, MPI_Group group, std::uint64_t number, MPI_Comm* created) {
  const int code =
      MPI_Comm_create_from_group(group, sentence("spar", number).c_str(), MPI_INFO_NULL, MPI_ERRORS_RETURN, created);
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  return kind == MPI_ERR_UNSUPPORTED_OPERATION ? MPI_Comm_create_group(comm, group, 0, created) : code;
}

#else

inline bool tells_of_lost_process(int) noexcept { return false; }
inline std::vector<rank_t> lost_processes(MPI_Comm) { return {}; }
inline int create_among(MPI_Comm comm, MPI_Group group, std::uint64_t, MPI_Comm* created) { // `comm` is in one call
  return MPI_Comm_create_group(comm, group, 0, created);
}

#endif

} // namespace spar::inline v0_1::detail
