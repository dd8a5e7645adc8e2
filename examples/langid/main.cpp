// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a classifier that identifies the language of a word, on all ranks at once, with MPI_Allreduce and with spar.
// docs/tutorial.md walks through this file; SparCML (SC'19), section 8.2, trains such classifiers on URLs and web
// pages.
#include "corpus.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

using namespace langid;

/// The baseline: MPI sums the whole vector, including zeros. Returns the seconds inside the call; no barrier precedes
/// the call, so the seconds include waiting for the slowest rank, as in step_with_spar.
double step_with_mpi(gradient& step, classifier& model) {
  const int n = spar::checked_cast<int>(step.dense.size());
  const double start = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, step.dense.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - start;

  for (std::size_t i = 0; i < step.dense.size(); ++i) model.weights[i] -= std::exchange(step.dense[i], 0.0f);
  return seconds;
}

/// The same step with spar, which sends and subtracts only the rows that some rank's batch touched.
double step_with_spar(spar::mpi& world, gradient& step, classifier& model) {
  std::vector<std::uint32_t> indices;
  std::vector<row> values;
  step.move_to(indices, values);

  const double start = MPI_Wtime();
  const auto sum = spar::allreduce(world, spar::sparse_view(step.dense.size() / width, indices, values),
                                   spar::compose(spar::storage::coded<7>{}, spar::split_allgather{}));
  const double seconds = MPI_Wtime() - start;

  spar::descend(spar::rows<width>(model.weights), sum); // weights -= sum
  return seconds;
}

/// One epoch of mini-batch SGD. In each step, a rank computes the gradient of its own batch, and `exchange` subtracts
/// the sum of all ranks' gradients from the weights; the weights thus stay the same on all ranks.
template <class Exchange>
void train(training& job, const corpus& words, const options& chosen, Exchange exchange) {
  // A rank that runs out of words contributes an empty gradient, so that all ranks make the same number of steps.
  const std::size_t mine = words.training.size(), most = static_cast<std::size_t>(over_ranks(mine, MPI_MAX));
  const std::size_t batch = std::min<std::size_t>(chosen.batch, most), steps = (most + batch - 1) / batch;
  double communication = 0;
  const double start = MPI_Wtime();
  for (std::size_t s = 0; s < steps; ++s) {
    const double left = 1 - static_cast<double>(job.epochs * steps + s) / static_cast<double>(chosen.epochs * steps);
    const auto rate = static_cast<float>(chosen.rate * left / static_cast<double>(batch * number_of_ranks()));
    for (std::size_t w = s * batch; w < std::min((s + 1) * batch, mine); ++w) {
      job.step.add(job.model, words.training[w], rate);
    }
    communication += exchange(job.step, job.model);
    if (chosen.progress) print_progress(job, s, steps);
  }
  job.seconds += over_ranks(MPI_Wtime() - start, MPI_MAX);
  job.communication += over_ranks(communication, MPI_MAX);
  job.accuracy = over_ranks(job.model.right(words.test), MPI_SUM) / over_ranks(words.test.size(), MPI_SUM);
  job.epochs += 1;
  job.steps += steps;
  print_epoch(job, chosen);
}

/// Reads the word lists, trains with MPI and with spar, prints the results, and classifies the words on the command
/// line. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;
  corpus words;
  if (!on_all_ranks([&] { words = read_corpus(chosen.lists, chosen.limit); })) return 2;
  if (!on_all_ranks([&] { check(words, chosen.lists); })) return 2;

  spar::mpi world(MPI_COMM_WORLD);
  const auto step_with_spar_in_world = [&](gradient& step, classifier& model) {
    return step_with_spar(world, step, model);
  };
  // Both start from the same weights and train in turn, so that other programs on the machine disturb both alike.
  training with_mpi("MPI", chosen), with_spar("spar", chosen);
  for (unsigned epoch = 0; epoch < chosen.epochs; ++epoch) {
    train(with_mpi, words, chosen, step_with_mpi);
    train(with_spar, words, chosen, step_with_spar_in_world);
  }

  // MPI does not report its bytes. This is the minimum that an allreduce of a dense vector sends, on average over
  // ranks.
  const double P = number_of_ranks(), n = static_cast<double>(with_mpi.step.dense.size());
  with_mpi.bytes_a_step = 2 * n * (P - 1) / P * sizeof(float);
  const spar::statistics sent = world.statistics();
  const double bytes = over_ranks(sent.bytes_sent + sent.header_bytes_sent, MPI_MAX);
  with_spar.bytes_a_step = bytes / static_cast<double>(with_spar.steps);
  if (my_rank() == 0) report(with_mpi, with_spar, chosen);
  return 0;
}

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8"); // for std::towlower
  return run_over_mpi(argc, argv, run);
}
