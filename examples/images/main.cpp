// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a perceptron that classifies images, on all ranks at once, with several systems: some sum the whole gradient,
// others only the largest hundredth of its entries. docs/guide/training.md gives the results.
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

/// Reads the images, trains with each system and each seed, and prints the results. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;
  image_set to_learn, to_test;
  const bool good = on_all_ranks([&] {
    to_learn = read_images(chosen.data, "train", chosen.limit);
    to_test = read_images(chosen.data, "t10k", chosen.limit);
    if (to_learn.size() < chosen.batch * number_of_ranks()) {
      throw std::runtime_error(fmt::format("{} training images are too few for one batch of {} on each of {} ranks",
                                           to_learn.size(), chosen.batch, number_of_ranks()));
    }
  });
  if (!good) return 2;

  spar::mpi world(MPI_COMM_WORLD);
  std::deque<training> jobs;
  for (std::uint64_t seed = 1; seed <= chosen.seeds; ++seed) {
    const std::size_t first = jobs.size();
    for (const std::string& name : chosen.systems) jobs.emplace_back(world, system_of(name), chosen, seed);
    if (first == 0) jobs.front().gradients_file = chosen.gradients;
    // All systems start from the same weights and train in turn, so that other programs on the machine disturb all
    // alike.
    for (unsigned test = 0; test < chosen.epochs * chosen.tests; ++test) {
      for (std::size_t j = first; j < jobs.size(); ++j) {
        train(world, jobs[j], to_learn, chosen);
        examine(jobs[j], to_test);
        print_test(jobs[j], chosen);
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
  if (my_rank() == 0 && !ranks_agree) fmt::print(stderr, "images: the weights differ between ranks\n");
  return ranks_agree ? 0 : 1;
}

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
