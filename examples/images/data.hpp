// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads images and their classes from gzipped IDX files (Fashion-MNIST or MNIST).
#pragma once

#include "image_set.hpp"

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
    throw std::runtime_error(path + " is not an IDX file of bytes with " + std::to_string(1 + rest.size()) +
                             " dimensions");
  }
  std::size_t size = std::min(number(), limit);
  for (const std::size_t due : rest) {
    if (const std::size_t found = number(); found != due) {
      throw std::runtime_error(path + " has " + std::to_string(found) + " rows or columns, expected " +
                               std::to_string(due));
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
    throw std::runtime_error(directory + " has " + std::to_string(set.images.size() / pixels) + " images of the part " +
                             part + ", but " + std::to_string(set.size()) + " labels");
  }
  for (const unsigned label : set.labels) {
    if (label >= classes) {
      throw std::runtime_error(directory + " has an image of class " + std::to_string(label) +
                               ", expected a class below 10");
    }
  }
  return set;
}

} // namespace images
