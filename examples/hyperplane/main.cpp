// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fits a hyperplane in 8,192 dimensions by SGD on all ranks while ranks are late in each step, with collectives that
// wait for all ranks and with partial collectives that do not. docs/guide/training.md gives the results.
#include "../eager.hpp"
#include "data.hpp"
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

/// Trains with each participation, and prints the results. Returns the exit status.
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
  if (my_rank() == 0 && !ranks_agree) fmt::print(stderr, "hyperplane: the weights differ between ranks\n");
  return ranks_agree ? 0 : 1;
}

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
