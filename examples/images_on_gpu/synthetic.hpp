// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Images made up by random numbers, for machines without image files.
#pragma once

#include "../images/image_set.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace images_on_gpu {

/// Images of so many pixels, in the mean as dark as those of Fashion-MNIST. An image is the mean image of its class, in
/// which pixels have standard deviation `contrast`, plus noise with standard deviation 40. All calls use the same mean
/// images; calls with the same arguments return the same images.
inline images::image_set synthetic_images(std::size_t count, std::size_t pixels, std::size_t classes, float contrast,
                                          std::uint64_t seed) {
  std::mt19937_64 random(0);
  std::normal_distribution<float> normal;
  std::vector<float> means(classes * pixels);
  for (float& x : means) x = 73 + contrast * normal(random);
  random.seed(seed);
  images::image_set set;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = random() % classes;
    set.labels.push_back(static_cast<std::uint8_t>(label));
    for (std::size_t p = 0; p < pixels; ++p) {
      const float x = means[label * pixels + p] + 40 * normal(random);
      set.images.push_back(static_cast<std::uint8_t>(std::clamp(x, 0.0F, 255.0F)));
    }
  }
  return set;
}

} // namespace images_on_gpu
