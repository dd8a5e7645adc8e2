// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Images with their classes, out of gzipped IDX files: Fashion-MNIST, or MNIST itself.
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

/// `pixels` bytes for each image, and its class.
struct image_set {
  std::vector<std::uint8_t> images, labels;

  std::size_t size() const { return labels.size(); }
};

/// The bytes of an IDX file whose dimensions are those given, but for the first, of which at most `limit` are read.
/// Throws std::runtime_error for a file that is missing, damaged or another one.
inline std::vector<std::uint8_t> read_idx(const std::string& path, std::vector<std::size_t> rest, std::size_t limit) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error(path + " cannot be read (Debian package dataset-fashion-mnist)");
  const auto read = [&](std::vector<std::uint8_t>& bytes) {
    if (gzread(file.get(), bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size())) return;
    throw std::runtime_error(path + " is damaged, or ends before it should");
  };
  const auto number = [&] {
    std::vector<std::uint8_t> bytes(4);
    read(bytes);
    return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 | bytes[3];
  };
  if (number() != 0x800 + 1 + rest.size()) { // of bytes, with so many dimensions
    throw std::runtime_error(fmt::format("{} is no IDX file of bytes with {} dimensions", path, 1 + rest.size()));
  }
  std::size_t size = std::min(number(), limit);
  for (const std::size_t due : rest) {
    if (const std::size_t found = number(); found != due) {
      throw std::runtime_error(fmt::format("{} has {} rows or columns where {} are needed", path, found, due));
    }
    size *= due;
  }
  std::vector<std::uint8_t> bytes(size);
  read(bytes);
  return bytes;
}

/// The images to learn from ("train") or those to be tested with ("t10k") of a directory.
inline image_set read_images(const std::string& directory, const std::string& part, std::size_t limit) {
  image_set set;
  set.images = read_idx(directory + "/" + part + "-images-idx3-ubyte.gz", {side, side}, limit);
  set.labels = read_idx(directory + "/" + part + "-labels-idx1-ubyte.gz", {}, limit);
  if (set.images.size() != set.size() * pixels) {
    throw std::runtime_error(fmt::format("{} has {} images for learning or testing ({}), but {} classes of them",
                                         directory, set.images.size() / pixels, part, set.size()));
  }
  for (const unsigned label : set.labels) {
    if (label >= classes) throw std::runtime_error(fmt::format("{} has an image of class {}", directory, label));
  }
  return set;
}

} // namespace images
