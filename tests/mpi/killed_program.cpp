// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks over MPI that go on after the processes of other ranks have been killed. Needs an MPI library with ULFM, and a
// launcher that does not end the job: Open MPI 5, `mpiexec --with-ft mpi`. Each survivor prints a line for each error
// and for its last sum.
#include <spar/mpi.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/transport/mpi_shrink.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Makes calls on `net` until one fails or `calls` have succeeded.
bool fails(spar::mpi& net, int rank, int calls) {
  std::vector<double> x(20'000);
  try {
    for (int i = 0; i < calls; ++i) {
      x.assign(x.size(), 1.0);
      spar::allreduce(net, std::span(x), spar::ring{});
    }
    std::printf("%d: %d ranks, sum %g\n", rank, static_cast<int>(net.size()), x.back());
  } catch (const spar::peer_failed& error) {
    std::printf("%d: %s\n", rank, error.what());
    return true;
  }
  return false;
}

/// The processes of the ranks `lost`, as numbered in MPI_COMM_WORLD, end one after another; the others go on. For the
/// number -1, all go on.
void go_on(spar::mpi& net, const spar::rendezvous& meeting, int rank, std::span<char*> lost) {
  net.set_deadline(20);
  fails(net, rank, 1);
  if (lost.empty()) return;
  const int dead = std::atoi(lost[0]);
  if (rank == dead) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // until the messages of its last call have left
    std::raise(SIGKILL);
  }
  if (dead >= 0 && !fails(net, rank, 1'000'000)) return;
  spar::mpi rest = net.shrink(meeting);
  go_on(rest, meeting.among("rest", rest.rank(), rest.size()), rank, lost.subspan(1));
}

} // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  {
    spar::mpi world;
    go_on(world, spar::rendezvous::from_environment(), world.rank(), {argv + 1, argv + argc});
  }
  std::fflush(stdout);
  std::_Exit(0); // MPI_Finalize of Open MPI 5.0 may wait for processes that have ended
}
