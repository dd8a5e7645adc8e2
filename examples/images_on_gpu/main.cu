// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a classifier of images on ranks that are threads of this process and share a GPU: first with whole gradients,
// then with the largest hundredth of their entries. Compile with nvcc.
#include "../images/data.hpp"
#include "synthetic.hpp"
#include "training.cuh"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace images_on_gpu;

/// Parses the command line. Throws std::runtime_error if an option is invalid.
settings parse(int argc, char** argv, std::string& data) {
  settings chosen;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const int number = std::atoi(value.c_str());
    if (option == "--data" && !value.empty())
      data = value;
    else if (option == "--ranks" && number > 0)
      chosen.ranks = number;
    else if (option == "--epochs" && number > 0)
      chosen.epochs = static_cast<std::uint32_t>(number);
    else
      throw std::runtime_error("usage: images_on_gpu [--ranks N] [--epochs N] [--data DIRECTORY]");
  }
  return chosen;
}

/// Trains with a system, prints a line for each epoch, and returns whether the ranks have the same weights.
template <class System>
bool report(const char* name, const image_set& to_learn, const image_set& to_test, const settings& chosen) {
  const auto of_rank = train_on_ranks<System>(to_learn, to_test, chosen);
  bool same = true;
  for (std::size_t e = 0; e < chosen.epochs; ++e) {
    epoch all{};
    bool same_now = true;
    for (const std::vector<epoch>& epochs : of_rank) {
      all.loss += epochs[e].loss / static_cast<double>(chosen.ranks);
      all.right += epochs[e].right;
      all.bytes += epochs[e].bytes / static_cast<double>(chosen.ranks);
      all.seconds = std::max(all.seconds, epochs[e].seconds);
      same_now = same_now && epochs[e].checksum == of_rank[0][e].checksum;
    }
    std::printf("%-8s %5zu %8.4f %9.2f %% %12.0f %8.3f  %s\n", name, e + 1, all.loss,
                100 * static_cast<double>(all.right) / static_cast<double>(to_test.size()), all.bytes, all.seconds,
                same_now ? "same" : "DIFFERENT");
    same = same && same_now;
  }
  return same;
}

} // namespace

int main(int argc, char** argv) try {
  std::string data;
  const settings chosen = parse(argc, argv, data);
  const std::size_t all = std::numeric_limits<std::size_t>::max();
  const auto synthetic = [](std::size_t count, std::uint64_t seed) {
    return synthetic_images(count, images::pixels, images::classes, 6, seed);
  };
  const image_set to_learn = data.empty() ? synthetic(12000, 1) : images::read_images(data, "train", all);
  const image_set to_test = data.empty() ? synthetic(2000, 2) : images::read_images(data, "t10k", all);
  if (to_learn.size() < chosen.batch * static_cast<std::size_t>(chosen.ranks))
    throw std::runtime_error("the images are too few for one batch on each rank");

  std::printf("%d ranks on one GPU, %zu images%s\n", chosen.ranks, to_learn.size(), data.empty() ? " (synthetic)" : "");
  std::printf("%-8s %5s %8s %11s %12s %8s  weights\n", "", "epoch", "loss", "accuracy", "bytes / step", "seconds");
  const bool same_dense = report<dense>("dense", to_learn, to_test, chosen);
  const bool same_sparse = report<ok_topk>("ok_topk", to_learn, to_test, chosen);
  return same_dense && same_sparse ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "images_on_gpu: %s\n", error.what());
  return 2;
}
