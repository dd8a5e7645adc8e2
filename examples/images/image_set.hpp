// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Images of bytes, and their classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace images {

inline constexpr std::size_t side = 28, pixels = side * side, classes = 10; // of Fashion-MNIST and MNIST

/// Images, one after the other, and the class of each image.
struct image_set {
  std::vector<std::uint8_t> images, labels;

  std::size_t size() const { return labels.size(); }
};

} // namespace images
