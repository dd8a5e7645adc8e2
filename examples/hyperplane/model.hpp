// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A linear model: one weight per coordinate.
#pragma once

#include "data.hpp"

#include <Eigen/Core>

#include <cstddef>
#include <span>

namespace hyperplane {

/// Writes the gradient of half the mean squared error over a batch of points to `out`.
inline void gradient(std::span<const float> weights, const batch& points, std::span<float> out) {
  const auto n = static_cast<Eigen::Index>(weights.size());
  vector error = points.x.transpose() * Eigen::Map<const vector>(weights.data(), n) - points.y;
  error /= static_cast<float>(points.size());
  Eigen::Map<vector>(out.data(), n).noalias() = points.x * error;
}

/// The sums of squared errors over a batch of points, one sum per column of `weights`.
inline Eigen::VectorXd squared_errors(const Eigen::Ref<const matrix>& weights, const batch& points) {
  const matrix error = (points.x.transpose() * weights).colwise() - points.y;
  return error.cast<double>().colwise().squaredNorm().transpose();
}

} // namespace hyperplane
