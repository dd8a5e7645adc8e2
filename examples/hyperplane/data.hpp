// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Points near a hyperplane, y = a . x + noise, generated on demand from their numbers (eager-SGD, section 6.2.1).
#pragma once

#include <Eigen/Core>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace hyperplane {

using matrix = Eigen::MatrixXf;
using vector = Eigen::VectorXf;

/// A batch of points: column i of `x` holds the coordinates of point i, and y[i] its value.
struct batch {
  matrix x;
  vector y;

  batch(std::size_t dimension, std::size_t points)
      : x(static_cast<Eigen::Index>(dimension), static_cast<Eigen::Index>(points)),
        y(static_cast<Eigen::Index>(points)) {}
  std::size_t size() const { return static_cast<std::size_t>(y.size()); }
};

/// The coefficients a of the hyperplane and all points near it, the same on every rank for the same seed.
class points {
 public:
  static constexpr float noise = 2; // standard deviation; the smallest possible loss is thus about 4

  points(std::size_t dimension, std::uint64_t seed) : a_(static_cast<Eigen::Index>(dimension)), seed_(seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> coefficient;
    for (float& a : a_) a = coefficient(random);
  }

  /// Fills a batch with the points from number `first` on. Coordinates are uniform, with mean 0 and standard deviation
  /// 1.
  void read(std::uint64_t first, batch& into) const {
    const float unit = std::sqrt(3.0F) / 32768;
    for (Eigen::Index c = 0; c < into.x.cols(); ++c) {
      std::mt19937_64 random(seed_ << 32 | (first + static_cast<std::uint64_t>(c) + 1));
      std::uint64_t bits = 0; // 16 bits for each coordinate
      auto x = into.x.col(c);
      for (Eigen::Index i = 0; i < x.size(); ++i, bits >>= 16) {
        if (i % 4 == 0) bits = random();
        x[i] = unit * (static_cast<float>(bits % 65536) - 32767.5F);
      }
      std::normal_distribution<float> off(0, noise);
      into.y[c] = a_.dot(x) + off(random);
    }
  }

 private:
  vector a_;
  std::uint64_t seed_;
};

} // namespace hyperplane
