// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks of a test program that runs over MPI and over UCX: each is a process.
#pragma once

#ifdef SPAR_WITH_MPI
#include <spar/mpi.hpp>

#include <mpi.h>
#else
#include "support/ucx_ranks.hpp"
#endif

#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace spar_test {

#ifdef SPAR_WITH_MPI

using communicator = spar::mpi;
constexpr bool over_mpi = true;

/// Where the ranks of this program meet: `communicator net(meeting())` has all of them.
inline MPI_Comm meeting() { return MPI_COMM_WORLD; }

inline spar::rank_t rank_of_process() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline spar::rank_t number_of_processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Waits until all ranks call it, without spar.
inline void wait_for_all() { MPI_Barrier(MPI_COMM_WORLD); }
/// Lets the library below spar receive from other ranks for a moment, without spar.
inline void serve_others() {
  int flag = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/// Replaces `values` by those of the rank `root`, without spar. Each rank has as many.
template <class T, std::size_t N>
void take_from(spar::rank_t root, std::span<T, N> values) {
  MPI_Bcast(values.data(), static_cast<int>(values.size_bytes()), MPI_BYTE, root, MPI_COMM_WORLD);
}

inline std::vector<spar::rank_t> hosts_of_all(const communicator&) { return spar::hosts_of(MPI_COMM_WORLD); }

#else

using communicator = spar::ucx;
constexpr bool over_mpi = false;

inline spar::rank_t rank_of_process() { return meeting().rank(); }
inline spar::rank_t number_of_processes() { return meeting().size(); }

template <class T, std::size_t N>
void take_from(spar::rank_t root, std::span<T, N> values) {
  const std::string own(reinterpret_cast<const char*>(values.data()),
                        rank_of_process() == root ? values.size_bytes() : 0);
  const std::string its = meeting().exchange(own)[static_cast<std::size_t>(root)];
  if (!its.empty()) std::memcpy(values.data(), its.data(), values.size_bytes());
}

inline void serve_others() { usleep(1000); } // the system receives

inline std::vector<spar::rank_t> hosts_of_all(const communicator& net) { return spar::hosts_of(net); }

#endif

inline double now() { return spar::endpoint::now(); }

/// The ending of a call that cannot succeed: the text of its error, and the seconds until then.
template <class Call>
std::pair<std::string, double> ending_of(Call call) {
  const double start = now();
  std::string text = "no error";
  try {
    call();
  } catch (const std::exception& e) {
    text = e.what();
  }
  return {text, now() - start};
}

} // namespace spar_test
