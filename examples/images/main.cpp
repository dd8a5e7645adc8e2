// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is on an image? A perceptron trained on all ranks at once, by one system after the other: with all of the
// gradient, and with the hundredth of it that matters most. docs/training.md says what comes out.
#include "data.hpp"
#include "options.hpp"
#include "report.hpp"
#include "training.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <vector>

using namespace images;

/// Reads, trains with each system from each seed, and reports. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;
  image_set to_learn, to_test;
  const bool good = on_all_ranks([&] {
    to_learn = read_images(chosen.data, "train", chosen.limit);
    to_test = read_images(chosen.data, "t10k", chosen.limit);
    if (to_learn.size() < chosen.batch * number_of_ranks()) {
      throw std::runtime_error(fmt::format("{} images are too few for one batch of {} on each of {} ranks",
                                           to_learn.size(), chosen.batch, number_of_ranks()));
    }
  });
  if (!good) return 2;

  spar::mpi world(MPI_COMM_WORLD);
  std::deque<training> jobs;
  for (std::uint64_t seed = 1; seed <= chosen.seeds; ++seed) {
    const std::size_t first = jobs.size();
    for (const std::string& name : chosen.systems) jobs.emplace_back(world, system_of(name), chosen, seed);
    // From the same start, and taking turns, so that whatever else the machine does disturbs all.
    for (unsigned epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::size_t j = first; j < jobs.size(); ++j) {
        train(world, jobs[j], to_learn, chosen);
        examine(jobs[j], to_test);
        print_epoch(jobs[j], chosen);
      }
    }
  }

  nlohmann::json rows;
  bool ranks_agree = true;
  for (std::size_t s = 0; s < chosen.systems.size(); ++s) {
    std::vector<const training*> runs;
    for (std::size_t j = s; j < jobs.size(); j += chosen.systems.size()) runs.push_back(&jobs[j]);
    rows.push_back(row_of(runs, chosen));
    ranks_agree = ranks_agree && rows.back()["ranks_agree"].get<bool>();
  }
  if (my_rank() == 0) report(rows, chosen);
  if (my_rank() == 0 && !ranks_agree) fmt::print(stderr, "images: the ranks' weights are no longer the same\n");
  return ranks_agree ? 0 : 1;
}

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
