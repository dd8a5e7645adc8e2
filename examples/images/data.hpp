// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads images and their classes from gzipped IDX files (Fashion-MNIST or MNIST).
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace images {

inline constexpr std::size_t side = 28, pixels = side * side, classes = 10;

/// Images of `pixels` bytes each, and the class of each image.
struct image_set {
  std::vector<std::uint8_t> images, labels;

  std::size_t size() const { return labels.size(); }
};

/// Reads an IDX file of bytes. `rest` gives the dimensions after the first; the function reads at most `limit` items of
/// the first dimension. Throws std::runtime_error if the file is missing, damaged, or has other dimensions.
inline std::vector<std::uint8_t> read_idx(const std::string& path, std::vector<std::size_t> rest, std::size_t limit) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error(path + " cannot be read (Debian package dataset-fashion-mnist)");
  const auto read = [&](std::vector<std::uint8_t>& bytes) {
    if (gzread(file.get(), bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size())) return;
    throw std::runtime_error(path + " is damaged or truncated");
  };
  const auto number = [&] {
    std::vector<std::uint8_t> bytes(4);
    read(bytes);
    return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 | bytes[3];
  };
  if (number() != 0x800 + 1 + rest.size()) { // IDX magic number: type byte, number of dimensions
    throw std::runtime_error(fmt::format("{} is not an IDX file of bytes with {} dimensions", path, 1 + rest.size()));
  }
  std::size_t size = std::min(number(), limit);
  for (const std::size_t due : rest) {
    if (const std::size_t found = number(); found != due) {
      throw std::runtime_error(fmt::format("{} has {} rows or columns, expected {}", path, found, due));
    }
    size *= due;
  }
  std::vector<std::uint8_t> bytes(size);
  read(bytes);
  return bytes;
}

/// Reads the training images (`part` is "train") or the test images ("t10k") from a directory. Throws
/// std::runtime_error if a file is missing or invalid.
inline image_set read_images(const std::string& directory, const std::string& part, std::size_t limit) {
  image_set set;
  set.images = read_idx(directory + "/" + part + "-images-idx3-ubyte.gz", {side, side}, limit);
  set.labels = read_idx(directory + "/" + part + "-labels-idx1-ubyte.gz", {}, limit);
  if (set.images.size() != set.size() * pixels) {
    throw std::runtime_error(fmt::format("{} has {} images of the part {}, but {} labels", directory,
                                         set.images.size() / pixels, part, set.size()));
  }
  for (const unsigned label : set.labels) {
    if (label >= classes)
      throw std::runtime_error(fmt::format("{} has an image of class {}, expected a class below 10", directory, label));
  }
  return set;
}

} // namespace images
