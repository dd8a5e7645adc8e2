// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A multilayer perceptron whose weights, gradient and mini-batch are in device memory. All its weights are one vector,
// and so is its gradient, so that one call reduces all of it.
#pragma once

#include "kernels.cuh"
#include "memory.hpp"

#include <spar/cuda/device_span.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace images_on_gpu {

/// The loss of images that the model has seen, and how many of them it classified correctly.
struct score {
  double loss = 0;
  std::uint64_t right = 0;
};

/// Three layers of neurons, with max(x, 0) between them. A layer's matrix has a row for each of its neurons, with the
/// bias as last weight; the values that come into a layer have a row for each image, with 1 as last value. A layer is
/// thus one product of matrices. Functions without a result put their work into the stream and do not wait.
class perceptron {
 public:
  static constexpr unsigned layers = 3;
  using widths = std::array<std::uint32_t, layers + 1>; // pixels, neurons of the hidden layers, classes

  /// Initialises the weights randomly after He et al. (2015); the same seed gives the same weights.
  perceptron(const widths& sizes, std::uint32_t batch, std::uint64_t seed, cudaStream_t stream)
      : sizes_(sizes), batch_(batch), stream_(stream) {
    std::mt19937_64 random(seed);
    std::vector<float> initial;
    for (unsigned l = 0; l < layers; ++l) {
      std::normal_distribution<float> weight(0, std::sqrt(2 / static_cast<float>(sizes[l])));
      for (std::uint32_t neuron = 0; neuron < sizes[l + 1]; ++neuron) {
        for (std::uint32_t i = 0; i < sizes[l]; ++i) initial.push_back(weight(random));
        initial.push_back(0);
      }
    }
    upload(weights_, initial);
    gradient_.reserve(size());
    for (unsigned l = 0; l <= layers; ++l) {
      upload(values_[l], std::vector<float>(std::size_t{batch} * (sizes[l] + 1), 1));
      errors_[l].reserve(std::uint64_t{batch} * sizes[l]);
    }
    losses_.reserve(batch);
    right_.reserve(batch);
    forget_score();
  }

  /// The number of weights.
  [[nodiscard]] std::uint64_t size() const { return begin(layers); }

  /// Computes the outputs for `count` images, at most a batch, from `first` in their order, and compares them with the
  /// labels.
  void forward(const image_span& images, std::uint32_t first, std::uint32_t count) {
    count_ = count;
    start_load(images, first, values(0), stream_);
    for (unsigned l = 0; l + 1 < layers; ++l)
      start_multiply(inputs(l), weights(l).transposed(), values(l + 1), stream_, positive_part{});
    start_multiply(inputs(layers - 1), weights(layers - 1).transposed(), values(layers), stream_);
    start_judge(images, first, values(layers), errors(layers), losses_.data(), right_.data(), stream_);
  }

  /// Computes the gradient of the mean loss of the images of the last `forward`, by back-propagation.
  void backward() {
    for (unsigned l = layers; l-- > 0;) {
      start_multiply(errors(l + 1).transposed(), inputs(l), matrix_at(gradient_.data(), l), stream_);
      if (l == 0) break;
      const matrix without_bias = weights(l).part(sizes_[l + 1], sizes_[l]);
      start_multiply(errors(l + 1), without_bias, errors(l), stream_, where_positive{values(l)});
    }
  }
  [[nodiscard]] spar::device_span<float> gradient() { return {gradient_.data(), size(), stream_}; }

  /// Makes a step against the gradient.
  void descend(float rate) { start_descend(weights_.data(), gradient_.data(), size(), rate, stream_); }

  /// The score of all images since the last call. Waits for the stream.
  score take_score() {
    const auto losses = download(losses_, batch_, stream_);
    const auto right = download(right_, batch_, stream_);
    forget_score();
    return {std::accumulate(losses.begin(), losses.end(), 0.0),
            std::accumulate(right.begin(), right.end(), std::uint64_t{0})};
  }

  /// These wait for the stream, too.
  [[nodiscard]] std::vector<float> read_weights() const { return download(weights_, size(), stream_); }
  [[nodiscard]] std::vector<float> read_gradient() const { return download(gradient_, size(), stream_); }

 private:
  [[nodiscard]] std::uint64_t begin(unsigned layer) const {
    std::uint64_t at = 0;
    for (unsigned l = 0; l < layer; ++l) at += (std::uint64_t{sizes_[l]} + 1) * sizes_[l + 1];
    return at;
  }
  /// A layer's matrix in a vector of all weights.
  matrix matrix_at(float* all, unsigned layer) const {
    return {all + begin(layer), sizes_[layer + 1], sizes_[layer] + 1, sizes_[layer] + 1};
  }
  matrix weights(unsigned layer) { return matrix_at(weights_.data(), layer); }
  /// The values that come into a layer, with the ones; without the ones, those that the layer before computes.
  matrix inputs(unsigned layer) { return {values_[layer].data(), count_, sizes_[layer] + 1, sizes_[layer] + 1}; }
  matrix values(unsigned layer) { return inputs(layer).part(count_, sizes_[layer]); }
  /// The derivatives of the mean loss by these values, before max(x, 0).
  matrix errors(unsigned layer) { return {errors_[layer].data(), count_, sizes_[layer], sizes_[layer]}; }

  void forget_score() {
    spar::detail::clear(losses_.data(), batch_ * sizeof(float), stream_);
    spar::detail::clear(right_.data(), batch_ * sizeof(std::uint32_t), stream_);
  }

  widths sizes_;
  std::uint32_t batch_, count_ = 0;
  cudaStream_t stream_;
  device_array<float> weights_, gradient_;
  std::array<device_array<float>, layers + 1> values_, errors_;
  device_array<float> losses_; // sums over the images in the same row of all batches
  device_array<std::uint32_t> right_;
};

} // namespace images_on_gpu
