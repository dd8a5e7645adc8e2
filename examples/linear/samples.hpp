// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse samples with labels: the part of a data set that a rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace linear {

/// One sample: its label, and the features that are not zero, by ascending indices from 0 on.
struct sample {
  float label;
  std::span<const std::uint32_t> indices;
  std::span<const float> values;
};

/// Samples one after the other, as rows of a sparse matrix (CSR).
struct samples {
  std::vector<float> labels;
  std::vector<std::size_t> ends; // of each sample in the two vectors below
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  std::size_t size() const { return labels.size(); }
  sample operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1], length = ends[i] - begin;
    return {labels[i], std::span(indices).subspan(begin, length), std::span(values).subspan(begin, length)};
  }
  /// Ends the sample whose features were appended to `indices` and `values`.
  void close(float label) {
    labels.push_back(label);
    ends.push_back(indices.size());
  }
};

} // namespace linear
