// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A classifier of sequences: one layer of LSTM (Hochreiter & Schmidhuber, 1997), whose last state a linear layer maps
// to classes.
#pragma once

#include "data.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace sequences {

/// The weights of the classifier are one vector of T: the matrix of the gates, (4 units) x (channels + units + 1),
/// whose last column is the bias, then the matrix of the classes, classes x (units + 1).
template <class T>
class lstm {
  using matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

 public:
  explicit lstm(std::size_t units) : units_(static_cast<Eigen::Index>(units)) {}

  std::size_t weights() const { return static_cast<std::size_t>(gate_weights() + classes * (units_ + 1)); }

  /// Random weights. The biases of the forget gates make the units remember for 1 to `longest` frames (Tallec &
  /// Ollivier, 2018: chrono initialisation).
  std::vector<T> initial(std::uint64_t seed, T longest) const {
    std::vector<T> all(weights());
    std::mt19937_64 random(seed);
    std::normal_distribution<T> of_gate(0, 1 / std::sqrt(static_cast<T>(units_)));
    for (T& w : all) w = of_gate(random);
    Eigen::Map<matrix> gates(all.data(), 4 * units_, inputs());
    std::uniform_real_distribution<T> memory(1, longest - 1);
    gates.col(inputs() - 1).setZero();
    for (Eigen::Index u = 0; u < units_; ++u) {
      const T bias = std::log(memory(random));
      gates(forget * units_ + u, inputs() - 1) = bias;
      gates(input * units_ + u, inputs() - 1) = -bias;
    }
    return all;
  }

  /// Writes the gradient of the mean cross-entropy over the batch to `out`, and returns the cross-entropy.
  double gradient(std::span<const T> weights, const batch& data, std::span<T> out) {
    forward(weights, data);
    const Eigen::Map<const matrix> gates(weights.data(), 4 * units_, inputs());
    const Eigen::Map<const matrix> read(weights.data() + gate_weights(), classes, units_ + 1);
    Eigen::Map<matrix> gates_slope(out.data(), 4 * units_, inputs());
    Eigen::Map<matrix> read_slope(out.data() + gate_weights(), classes, units_ + 1);
    const auto size = static_cast<Eigen::Index>(data.size());

    // The softmax: the slope of the scores is the probabilities less 1 for the right class.
    double loss = 0;
    matrix slope = probabilities(read);
    for (Eigen::Index s = 0; s < size; ++s) {
      const auto right = static_cast<Eigen::Index>(data.classes[static_cast<std::size_t>(s)]);
      loss -= std::log(std::max(slope(right, s), T(1e-30)));
      slope(right, s) -= 1;
    }
    slope /= static_cast<T>(size);
    read_slope.leftCols(units_).noalias() = slope * last_.transpose();
    read_slope.col(units_) = slope.rowwise().sum();

    // Backwards in time. The slopes of states and cells begin with those of the longest sequences.
    const matrix of_last = read.leftCols(units_).transpose() * slope;
    matrix of_state = of_last, of_cell = matrix::Zero(units_, size);
    for (std::size_t t = data.steps(); t-- > 0;) {
      const Eigen::Index from = data.first[t], n = data.active(t);
      const auto gate = [&](Eigen::Index g) { return gates_.block(g * units_, from, units_, n).array(); };
      const auto slope_of = [&](Eigen::Index g) { return slopes_.block(g * units_, from, units_, n).array(); };
      const auto bent = bent_.middleCols(from, n).array();
      auto cell = of_cell.leftCols(n).array();
      const auto state = of_state.leftCols(n).array();
      cell += state * gate(output) * (1 - bent.square());
      slope_of(output) = state * bent * gate(output) * (1 - gate(output));
      slope_of(input) = cell * gate(candidate) * gate(input) * (1 - gate(input));
      slope_of(candidate) = cell * gate(input) * (1 - gate(candidate).square());
      if (t == 0) {
        slope_of(forget) = 0;
        break;
      }
      slope_of(forget) = cell * cells_.middleCols(data.first[t - 1], n).array() * gate(forget) * (1 - gate(forget));
      of_state.leftCols(n).noalias() = gates.middleCols(channels, units_).transpose() * slopes_.middleCols(from, n);
      cell *= gate(forget);
    }
    gates_slope.noalias() = slopes_.leftCols(data.frames.cols()) * inputs_.leftCols(data.frames.cols()).transpose();
    return loss / static_cast<double>(size);
  }

  /// The number of sequences whose most probable class is right.
  std::size_t right(std::span<const T> weights, const batch& data) {
    forward(weights, data);
    const matrix p = probabilities(Eigen::Map<const matrix>(weights.data() + gate_weights(), classes, units_ + 1));
    std::size_t count = 0;
    for (Eigen::Index s = 0; s < p.cols(); ++s) {
      Eigen::Index most = 0;
      p.col(s).maxCoeff(&most);
      if (static_cast<std::size_t>(most) == data.classes[static_cast<std::size_t>(s)]) ++count;
    }
    return count;
  }

 private:
  static constexpr Eigen::Index input = 0, forget = 1, output = 2, candidate = 3; // the blocks of rows of the gates
  static constexpr Eigen::Index channels = source::channels, classes = source::classes;

  Eigen::Index inputs() const { return channels + units_ + 1; }
  Eigen::Index gate_weights() const { return 4 * units_ * inputs(); }

  /// Computes the gates, cells and states of all frames, and the last state of each sequence.
  void forward(std::span<const T> weights, const batch& data) {
    const Eigen::Map<const matrix> gates(weights.data(), 4 * units_, inputs());
    const Eigen::Index frames = data.frames.cols();
    if (frames > gates_.cols()) {
      inputs_.resize(inputs(), frames), gates_.resize(4 * units_, frames), slopes_.resize(4 * units_, frames);
      cells_.resize(units_, frames), bent_.resize(units_, frames);
    }
    inputs_.topLeftCorner(channels, frames) = data.frames.template cast<T>();
    inputs_.row(inputs() - 1).setOnes();
    inputs_.block(channels, 0, units_, data.active(0)).setZero();
    last_.resize(units_, static_cast<Eigen::Index>(data.size()));
    for (std::size_t t = 0; t < data.steps(); ++t) {
      const Eigen::Index from = data.first[t], n = data.active(t);
      const auto gate = [&](Eigen::Index g) { return gates_.block(g * units_, from, units_, n).array(); };
      gates_.middleCols(from, n).noalias() = gates * inputs_.middleCols(from, n);
      auto sigmoids = gates_.block(0, from, 3 * units_, n).array();
      sigmoids = (1 + (sigmoids / 2).tanh()) / 2;
      gate(candidate) = gate(candidate).tanh();
      auto cell = cells_.middleCols(from, n).array();
      cell = gate(input) * gate(candidate);
      if (t > 0) cell += gate(forget) * cells_.middleCols(data.first[t - 1], n).array();
      bent_.middleCols(from, n) = cell.tanh();
      const Eigen::Index next = t + 1 < data.steps() ? data.active(t + 1) : 0; // the other sequences end here
      const auto state = (gate(output) * bent_.middleCols(from, n).array()).matrix();
      if (next > 0) inputs_.block(channels, from + n, units_, next) = state.leftCols(next);
      last_.middleCols(next, n - next) = state.rightCols(n - next);
    }
  }

  /// The probability of each class, for each sequence.
  matrix probabilities(const Eigen::Ref<const matrix>& read) const {
    matrix p = (read.leftCols(units_) * last_).colwise() + read.col(units_);
    for (auto column : p.colwise()) {
      column = (column.array() - column.maxCoeff()).exp();
      column /= column.sum();
    }
    return p;
  }

  Eigen::Index units_;
  // Of each frame: what the gates see (the frame, the state before it, and 1), the gates and their slopes, the cells,
  // and their hyperbolic tangents.
  matrix inputs_, gates_, slopes_, cells_, bent_;
  matrix last_; // the last state of each sequence
};

} // namespace sequences
