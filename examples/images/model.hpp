// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A multilayer perceptron that stores all its weights in one vector, and its gradient in another.
#pragma once

#include "data.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace images {

using matrix = Eigen::MatrixXf; // one column per image of a batch

/// The images with the given numbers as columns, scaled to mean about 0 and standard deviation about 1.
inline matrix columns_of(const image_set& set, std::span<const std::uint32_t> numbers) {
  matrix columns(pixels, static_cast<Eigen::Index>(numbers.size()));
  for (std::size_t c = 0; c < numbers.size(); ++c) {
    const std::uint8_t* const image = set.images.data() + numbers[c] * pixels;
    float* const column = columns.data() + c * pixels;
    for (std::size_t i = 0; i < pixels; ++i) column[i] = static_cast<float>(image[i]) / 90 - 0.81F;
  }
  return columns;
}

/// Two hidden layers and an output layer of 10 neurons, with max(x, 0) between the layers: 235,146 weights if the
/// hidden layers have 256 and 128 neurons.
class perceptron {
 public:
  static constexpr std::size_t layers = 3;
  std::array<std::size_t, layers + 1> sizes;

  /// The position in the vector at which a layer's matrix begins; the layer's bias follows its matrix.
  std::size_t begin(std::size_t layer) const {
    std::size_t at = 0;
    for (std::size_t l = 0; l < layer; ++l) at += (sizes[l] + 1) * sizes[l + 1];
    return at;
  }

  std::vector<float> weights;

  /// The weights from `begin` to `end`, whose gradient is computed at once.
  struct part {
    std::size_t begin, end;
  };
  /// The parts of the gradient in the order in which back-propagation computes them: columns of a layer's matrix, of at
  /// most about `most` values. The last part of a layer also contains its bias.
  std::vector<part> parts(std::size_t most) const {
    std::vector<part> all;
    for (std::size_t l = layers; l-- > 0;) {
      for (std::size_t p = 0; p < parts_of(l, most); ++p) all.push_back(part_of(l, p, parts_of(l, most)));
    }
    return all;
  }

  /// Initialises the weights randomly after He et al. (2015); the same seed gives the same weights.
  perceptron(std::array<std::size_t, 2> hidden, std::uint64_t seed)
      : sizes{pixels, hidden[0], hidden[1], classes}, weights(begin(layers)) {
    std::mt19937_64 random(seed);
    for (std::size_t l = 0; l < layers; ++l) {
      std::normal_distribution<float> weight(0, std::sqrt(2 / static_cast<float>(sizes[l])));
      for (std::size_t i = 0; i < sizes[l] * sizes[l + 1]; ++i) weights[begin(l) + i] = weight(random);
    }
  }

 private:
  // Views of a layer's matrix and bias in the vector of all weights, or in the gradient.
  template <class Float>
  auto matrix_of(std::span<Float> all, std::size_t layer) const {
    using map = Eigen::Map<std::conditional_t<std::is_const_v<Float>, const matrix, matrix>>;
    return map(all.data() + begin(layer), rows(layer), static_cast<Eigen::Index>(sizes[layer]));
  }
  template <class Float>
  auto bias_of(std::span<Float> all, std::size_t layer) const {
    using map = Eigen::Map<std::conditional_t<std::is_const_v<Float>, const Eigen::VectorXf, Eigen::VectorXf>>;
    return map(all.data() + begin(layer + 1) - sizes[layer + 1], rows(layer));
  }
  Eigen::Index rows(std::size_t layer) const { return static_cast<Eigen::Index>(sizes[layer + 1]); }
  std::size_t parts_of(std::size_t layer, std::size_t most) const {
    return std::clamp<std::size_t>((sizes[layer] * sizes[layer + 1] - 1) / most + 1, 1, sizes[layer]);
  }
  /// The first column of part p of a layer's matrix.
  std::size_t column(std::size_t layer, std::size_t p, std::size_t parts) const { return sizes[layer] * p / parts; }
  part part_of(std::size_t layer, std::size_t p, std::size_t parts) const {
    const std::size_t height = sizes[layer + 1];
    return {begin(layer) + height * column(layer, p, parts),
            p + 1 == parts ? begin(layer + 1) : begin(layer) + height * column(layer, p + 1, parts)};
  }

 public:
  /// The number of these images that the model classifies correctly.
  std::size_t right(const image_set& set, std::span<const std::uint32_t> numbers) const {
    matrix x = columns_of(set, numbers);
    for (std::size_t l = 0; l < layers; ++l) x = next(l, x);
    std::size_t found = 0;
    for (std::size_t c = 0; c < numbers.size(); ++c) {
      Eigen::Index best = 0;
      x.col(static_cast<Eigen::Index>(c)).maxCoeff(&best);
      found += best == set.labels[numbers[c]];
    }
    return found;
  }

  /// Writes the gradient of the mean of -log p(class | image) over these images to `out`, by back-propagation.
  void gradient(const image_set& set, std::span<const std::uint32_t> numbers, std::span<float> out) const {
    gradient(set, numbers, out, weights.size(), [](const part&) {});
  }
  /// The same in parts: calls `computed(part)` for each of `parts(most)` as soon as its gradient is in `out`.
  template <class Computed>
  void gradient(const image_set& set, std::span<const std::uint32_t> numbers, std::span<float> out, std::size_t most,
                const Computed& computed) const {
    std::array<matrix, layers + 1> x;
    x[0] = columns_of(set, numbers);
    for (std::size_t l = 0; l < layers; ++l) x[l + 1] = next(l, x[l]);
    matrix error = x[layers].rowwise() - x[layers].colwise().maxCoeff();
    error = error.array().exp();
    error.array().rowwise() /= error.colwise().sum().array().eval();
    for (std::size_t c = 0; c < numbers.size(); ++c) error(set.labels[numbers[c]], static_cast<Eigen::Index>(c)) -= 1;
    error /= static_cast<float>(numbers.size());
    for (std::size_t l = layers; l-- > 0;) {
      bias_of<float>(out, l) = error.rowwise().sum();
      matrix behind(l > 0 ? static_cast<Eigen::Index>(sizes[l]) : 0, error.cols());
      const std::size_t parts = parts_of(l, most);
      for (std::size_t p = 0; p < parts; ++p) {
        const auto first = static_cast<Eigen::Index>(column(l, p, parts));
        const auto count = static_cast<Eigen::Index>(column(l, p + 1, parts)) - first;
        matrix_of<float>(out, l).middleCols(first, count).noalias() = error * x[l].middleRows(first, count).transpose();
        if (l > 0) {
          behind.middleRows(first, count).noalias() =
              matrix_of<const float>(weights, l).middleCols(first, count).transpose() * error;
        }
        computed(part_of(l, p, parts));
      }
      if (l > 0) error = (x[l].array() > 0).select(behind, 0.0F);
    }
  }

 private:
  matrix next(std::size_t layer, const matrix& x) const {
    matrix y = matrix_of<const float>(weights, layer) * x;
    y.colwise() += bias_of<const float>(weights, layer);
    if (layer + 1 < layers) y = y.cwiseMax(0.0F);
    return y;
  }
};

} // namespace images
