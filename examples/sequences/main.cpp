// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains an LSTM on sequences whose lengths differ as those of videos do, by eager-SGD: a rank with long sequences is
// late, and partial collectives do not wait for it (eager-SGD, section 6.3). docs/guide/training.md describes the
// program.
#include "../eager.hpp"
#include "learner.hpp"
#include "options.hpp"
#include "report.hpp"
#include "training.hpp"

#include <spar/mpi.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace sequences;

/// Trains with each participation, and prints the results. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;

  spar::mpi world(MPI_COMM_WORLD);
  problem given(chosen);
  nlohmann::json rows;
  bool ranks_agree = true;
  for (const std::string& name : chosen.participation) {
    const auto ranks = static_cast<spar::rank_t>(chosen.simulate > 0 ? chosen.simulate : number_of_ranks());
    const participation who = participation_of(name, ranks);
    std::vector<training> jobs;
    for (std::uint64_t seed = chosen.seed; seed < chosen.seed + chosen.seeds; ++seed) {
      jobs.push_back(chosen.simulate > 0 ? simulate(who, given, chosen, seed) : train(world, who, given, chosen, seed));
      ranks_agree = ranks_agree && jobs.back().ranks_agree;
    }
    rows.push_back(row_of(name, jobs, chosen));
  }
  if (my_rank() == 0) report(rows, chosen);
  if (my_rank() == 0 && !ranks_agree) fmt::print(stderr, "sequences: the weights differ between ranks\n");
  return ranks_agree ? 0 : 1;
}

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
