// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mini-batch SGD on ranks that are threads of this process and share its current GPU. spar averages the gradients.
#pragma once

#include "../images/image_set.hpp"
#include "model.cuh"

#include <spar/cuda/runtime.hpp>
#include <spar/cuda_feedback.cuh>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace images_on_gpu {

using images::image_set;

struct settings {
  spar::rank_t ranks = 4;
  std::uint32_t epochs = 3, batch = 32; // images of a rank in a step
  std::array<std::uint32_t, 2> hidden = {256, 128};
  std::uint32_t classes = images::classes;
  float rate = 0.1F;
  double density = 0.01;
};

/// Averages whole gradients. The ranks share a GPU, so messages stay in device memory.
class dense {
 public:
  dense(spar::threads& net, const settings&) : gpu_(net) {}
  void operator()(spar::device_span<float> gradient) { spar::allreduce(gpu_, gradient, spar::ring{}, spar::average{}); }

 private:
  spar::on_device<spar::threads> gpu_;
};

/// Averages the largest entries of the gradients by Ok-Topk, also in device memory, with what is not sent as residual.
class ok_topk {
 public:
  ok_topk(spar::threads& net, const settings& chosen) : gpu_(net), reduce_({.select = {.density = chosen.density}}) {}
  void operator()(spar::device_span<float> gradient) { reduce_(gpu_, gradient, spar::average{}); }

 private:
  spar::on_device<spar::threads> gpu_;
  spar::device_feedback<float, spar::ok_topk_allreduce<>> reduce_;
};

/// A rank's part of the images, in device memory.
class share {
 public:
  share(const image_set& all, spar::rank_t rank, spar::rank_t ranks) : pixels_(all.images.size() / all.size()) {
    image_set mine;
    for (auto i = static_cast<std::size_t>(rank); i < all.size(); i += static_cast<std::size_t>(ranks)) {
      const auto image = all.images.begin() + static_cast<std::ptrdiff_t>(i * pixels_);
      mine.images.insert(mine.images.end(), image, image + static_cast<std::ptrdiff_t>(pixels_));
      mine.labels.push_back(all.labels[i]);
    }
    upload(images_, mine.images);
    upload(labels_, mine.labels);
    order_.resize(mine.size());
    std::iota(order_.begin(), order_.end(), 0U);
    upload(device_order_, order_);
  }
  /// Only while the stream has no work.
  void shuffle(std::mt19937_64& random) {
    std::shuffle(order_.begin(), order_.end(), random);
    upload(device_order_, order_);
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(order_.size()); }
  operator image_span() const { return {images_.data(), labels_.data(), device_order_.data(), pixels_}; }

 private:
  std::size_t pixels_;
  std::vector<std::uint32_t> order_;
  device_array<std::uint8_t> images_, labels_;
  device_array<std::uint32_t> device_order_;
};

/// What a rank has measured in an epoch.
struct epoch {
  double loss;            // mean over its training images
  std::uint64_t right;    // test images of its part that the model classified correctly
  double bytes;           // sent in a step
  double seconds;         // of the steps
  std::uint32_t checksum; // of the weights after the epoch
};

/// Trains on one rank. In each step, the host only starts kernels and calls spar.
template <class System>
std::vector<epoch> train(spar::threads& net, const image_set& to_learn, const image_set& to_test,
                         const settings& chosen) {
  const spar::detail::device_stream work;
  share learned(to_learn, net.rank(), net.size());
  const share tested(to_test, net.rank(), net.size());
  const auto pixels = static_cast<std::uint32_t>(to_learn.images.size() / to_learn.size());
  perceptron model({pixels, chosen.hidden[0], chosen.hidden[1], chosen.classes}, chosen.batch, 1, work.get());
  System average(net, chosen);

  const std::size_t steps = to_learn.size() / (chosen.batch * static_cast<std::size_t>(net.size()));
  std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()));
  std::vector<epoch> epochs(chosen.epochs);
  for (epoch& now : epochs) {
    learned.shuffle(random);
    const spar::statistics before = net.statistics();
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t s = 0; s < steps; ++s) {
      model.forward(learned, s * chosen.batch, chosen.batch);
      model.backward();
      average(model.gradient());
      model.descend(chosen.rate);
    }
    now.loss = model.take_score().loss / static_cast<double>(steps * chosen.batch); // waits for the steps
    now.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const spar::statistics after = net.statistics();
    const auto sent = after.bytes_sent + after.header_bytes_sent - before.bytes_sent - before.header_bytes_sent;
    now.bytes = static_cast<double>(sent) / static_cast<double>(steps);

    for (std::uint32_t first = 0; first < tested.size(); first += chosen.batch)
      model.forward(tested, first, std::min(chosen.batch, tested.size() - first));
    now.right = model.take_score().right;
    const std::vector<float> weights = model.read_weights();
    now.checksum = spar::crc32c(weights.data(), weights.size() * sizeof(float));
  }
  return epochs;
}

/// Trains on all ranks. Returns for each epoch what the ranks have measured.
template <class System>
std::vector<std::vector<epoch>> train_on_ranks(const image_set& to_learn, const image_set& to_test,
                                               const settings& chosen) {
  std::vector<std::vector<epoch>> of_rank(static_cast<std::size_t>(chosen.ranks));
  spar::thread_group group(chosen.ranks);
  group.run([&](spar::threads& net) {
    of_rank[static_cast<std::size_t>(net.rank())] = train<System>(net, to_learn, to_test, chosen);
  });
  return of_rank;
}

} // namespace images_on_gpu
