// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the share of a core that a rank's progress thread uses while a partial allreduce waits for a call: in the
// first second and later, and the same again after each round.
#if SPAR_WITH_MPI
#include <spar/mpi.hpp>

#include <mpi.h>
#else
#include <spar/spar.hpp>
#endif
#include <spar/system/partial_allreduce.hpp>

#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <time.h>
#include <unistd.h>

namespace {

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Sleeps, and returns the share of a core that the process uses meanwhile, which is that of its progress threads.
double share_of_a_core(unsigned seconds) {
  const double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  const double begin = seconds_of(CLOCK_MONOTONIC);
  while (seconds_of(CLOCK_MONOTONIC) - begin < seconds) usleep(100'000);
  return (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before) / (seconds_of(CLOCK_MONOTONIC) - begin);
}

template <class Net>
void measure(Net& net, spar::rank_t ranks_in_process) {
  const spar::progress_thread progress(net);
  auto reduce = spar::partial_allreduce<float>(net, 1000);
  std::vector<float> x(1000, 1.0F);
  for (int round = 0; round < 3; ++round) {
    const double first = 100 * share_of_a_core(1) / ranks_in_process;
    share_of_a_core(1);
    const double later = 100 * share_of_a_core(5) / ranks_in_process;
    if (net.rank() == 0) std::printf("%.3f %% of a core in the first second, %.3f %% later\n", first, later);
    reduce(std::span(x));
  }
  reduce.drain(std::span(x));
}

} // namespace

#if SPAR_WITH_MPI
int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    spar::mpi world(MPI_COMM_WORLD);
    measure(world, 1);
  }
  MPI_Finalize();
}
#else
int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) { measure(net, 4); });
}
#endif
