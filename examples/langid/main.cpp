// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which language is a word of? A classifier trained on all ranks at once, with MPI_Allreduce and then with spar.
// docs/tutorial.md walks through this file; SparCML (SC'19), section 8.2, does the same job on URLs and web pages.
#include "corpus.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

using namespace langid;

/// The baseline: MPI sums the whole vector, zeros and all. Returns the seconds inside the call; there is no barrier
/// before it, so they include waiting for the slowest rank, with spar just the same.
double step_with_mpi(gradient& step, classifier& model) {
  const int n = static_cast<int>(step.dense.size());
  const double start = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, step.dense.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - start;

  for (std::size_t i = 0; i < step.dense.size(); ++i) model.weights[i] -= std::exchange(step.dense[i], 0.0f);
  step.rows.clear();
  return seconds;
}

/// The same with spar: only what some rank's batch touched is sent, and only that is subtracted.
double step_with_spar(spar::mpi& world, gradient& step, classifier& model) {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  step.move_to(indices, values, model.languages);

  const double start = MPI_Wtime();
  const auto sum = spar::allreduce(world, spar::sparse_view(step.dense.size(), indices, values));
  const double seconds = MPI_Wtime() - start;

  sum.for_each([&](auto index, float value) { model.weights[index] -= value; });
  return seconds;
}

/// Mini-batch SGD from zero. In each step a rank adds up the gradient of its own batch, and `exchange` subtracts the
/// sum over all ranks from the weights, which therefore stay the same on every rank.
template <class Exchange>
outcome train(const char* name, const options& chosen, const corpus& words, Exchange exchange) {
  outcome result{.model{.languages = chosen.lists.size(), .bits = chosen.bits}};
  gradient step{.dense = std::vector<float>(result.model.weights.size())};
  const bool speaks = my_rank() == 0;
  // A rank that runs out of words contributes an empty gradient, so that all ranks make the same number of steps.
  const std::size_t mine = words.training.size(), most = static_cast<std::size_t>(over_ranks(mine, MPI_MAX));
  const std::size_t batch = std::min<std::size_t>(chosen.batch, most), steps = (most + batch - 1) / batch;
  for (unsigned epoch = 0; epoch < chosen.epochs; ++epoch) {
    double communication = 0;
    const double start = MPI_Wtime();
    for (std::size_t s = 0; s < steps; ++s, ++result.steps) {
      const double done = static_cast<double>(result.steps) / static_cast<double>(steps * chosen.epochs);
      const double rate = chosen.rate * (1 - done) / static_cast<double>(batch) / number_of_ranks();
      for (std::size_t w = s * batch; w < std::min((s + 1) * batch, mine); ++w) {
        step.add(result.model, words.training[w], static_cast<float>(rate));
      }
      communication += exchange(step, result.model);
      if (speaks && chosen.progress && s % 10 == 0) {
        fmt::print("\r{:4} epoch {} of {}, step {} of {} ", name, epoch + 1, chosen.epochs, s, steps);
        std::fflush(stdout);
      }
    }
    const double seconds = over_ranks(MPI_Wtime() - start, MPI_MAX);
    communication = over_ranks(communication, MPI_MAX);
    result.seconds += seconds / chosen.epochs;
    result.communication += communication / chosen.epochs;
    result.accuracy = over_ranks(result.model.right(words.test), MPI_SUM) / over_ranks(words.test.size(), MPI_SUM);
    if (!speaks) continue;
    fmt::print("{}{:4} epoch {} of {}: {:.2f} % of the test words right; {:.1f} s, {:.2f} s of it communication\n",
               chosen.progress ? "\r" : "", name, epoch + 1, chosen.epochs, 100 * result.accuracy, seconds,
               communication);
    std::fflush(stdout);
  }
  // MPI does not tell what it sends. This is the least that an allreduce of a dense vector can, on average over ranks.
  const double P = number_of_ranks();
  result.bytes = 2 * (P - 1) / P * static_cast<double>(step.dense.size() * sizeof(float));
  return result;
}

/// Reads, trains twice, reports, and classifies the words that were given. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;
  corpus words;
  if (!on_all_ranks([&] { words = read_corpus(chosen.lists, chosen.limit); })) return 2;
  if (!on_all_ranks([&] { check(words, chosen.lists); })) return 2;

  const outcome with_mpi = train("MPI", chosen, words, step_with_mpi);

  spar::mpi world(MPI_COMM_WORLD);
  outcome with_spar = train("spar", chosen, words,
                            [&](gradient& step, classifier& model) { return step_with_spar(world, step, model); });
  const spar::statistics sent = world.statistics();
  with_spar.bytes =
      over_ranks(sent.bytes_sent + sent.header_bytes_sent, MPI_MAX) / static_cast<double>(with_spar.steps);

  if (my_rank() == 0) report(with_mpi, with_spar, chosen);
  return 0;
}

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8"); // for std::towlower
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& error) { // the other ranks may be waiting for this one
    fmt::print(stderr, "langid: rank {}: {}\n", my_rank(), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
