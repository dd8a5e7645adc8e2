// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who waits for late ranks? A hyperplane in 8,192 dimensions, found by SGD on all ranks, of which one is late in each
// step: with collectives that wait for everyone, and with those that go on. docs/training.md says what comes out.
#include "data.hpp"
#include "optimizers.hpp"
#include "options.hpp"
#include "report.hpp"
#include "training.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <string>

using namespace hyperplane;

/// Trains with each participation, and reports. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;

  spar::mpi world(MPI_COMM_WORLD);
  const points all(chosen.dimension, chosen.seed);
  nlohmann::json rows;
  bool ranks_agree = true;
  for (const std::string& name : chosen.participation) {
    const training job = train(world, participation_of(name, world.size()), all, chosen);
    rows.push_back(row_of(name, job, chosen));
    ranks_agree = ranks_agree && job.ranks_agree;
  }
  if (my_rank() == 0) report(rows, chosen);
  if (my_rank() == 0 && !ranks_agree) fmt::print(stderr, "hyperplane: the ranks' weights are no longer the same\n");
  return ranks_agree ? 0 : 1;
}

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
