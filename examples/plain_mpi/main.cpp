// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data-parallel training with MPI_Allreduce, like any MPI program: this program does not use spar. scripts/preload runs
// it with spar's preloaded library.
#include "../images/model.hpp"
#include "../output.hpp"
#include "../ranks.hpp"
#include "options.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using examples::my_rank;
using examples::number_of_ranks;
using plain_mpi::options;

/// One SGD step with the mean of all ranks' gradients, summed by MPI.
void step(images::perceptron& model, std::vector<float>& gradient, float rate) {
  MPI_Allreduce(MPI_IN_PLACE, gradient.data(), static_cast<int>(gradient.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const float scale = rate / static_cast<float>(number_of_ranks());
  for (std::size_t i = 0; i < gradient.size(); ++i) model.weights[i] -= scale * gradient[i];
}

double accuracy(const images::perceptron& model, const images::image_set& tests) {
  std::vector<std::uint32_t> mine;
  for (std::size_t i = my_rank(); i < tests.size(); i += number_of_ranks())
    mine.push_back(static_cast<std::uint32_t>(i));
  return examples::over_ranks(model.right(tests, mine), MPI_SUM) / static_cast<double>(tests.size());
}

bool same_weights(const images::perceptron& model) {
  const double sum = std::accumulate(model.weights.begin(), model.weights.end(), 0.0);
  return examples::over_ranks(sum, MPI_MIN) == examples::over_ranks(sum, MPI_MAX);
}

int train(const options& chosen) {
  const auto images = images::read_images(chosen.data, "train", chosen.images);
  const auto tests = images::read_images(chosen.data, "t10k", chosen.tested);
  images::perceptron model({256, 128}, chosen.seed);
  std::vector<float> gradient(model.weights.size());
  std::vector<std::uint32_t> order(images.size());
  const std::size_t steps = images.size() / (chosen.batch * number_of_ranks());
  nlohmann::json history = nlohmann::json::array();
  double seconds = 0;
  for (std::size_t epoch = 1; epoch <= chosen.epochs; ++epoch) {
    std::iota(order.begin(), order.end(), 0U);
    std::mt19937_64 random(chosen.seed << 32 | epoch);
    std::shuffle(order.begin(), order.end(), random);
    const double start = MPI_Wtime();
    for (std::size_t s = 0; s < steps; ++s) {
      const std::size_t first = (s * number_of_ranks() + my_rank()) * chosen.batch;
      model.gradient(images, std::span<const std::uint32_t>(order).subspan(first, chosen.batch), gradient);
      step(model, gradient, chosen.rate);
    }
    seconds += examples::over_ranks(MPI_Wtime() - start, MPI_MAX);
    const double right = accuracy(model, tests);
    history.push_back({{"epoch", epoch}, {"accuracy", right}, {"seconds", seconds}});
    if (my_rank() == 0) {
      fmt::print("epoch {}: {:.2f} % of the test images correct after {:.2f} s\n", epoch, 100 * right, seconds);
      std::fflush(stdout);
    }
  }
  const bool agree = same_weights(model);
  if (my_rank() == 0) {
    if (!agree) fmt::print(stderr, "plain_mpi: the weights differ between ranks\n");
    examples::write_json(chosen.json, nlohmann::json{{"ranks", number_of_ranks()}, {"history", history}});
  }
  return agree ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  options chosen;
  if (const int status = plain_mpi::parse(argc, argv, chosen); status >= 0) return status;
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = train(chosen);
  } catch (const std::exception& e) {
    fmt::print(stderr, "plain_mpi: {}\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
