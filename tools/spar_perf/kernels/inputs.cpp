// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "inputs.hpp"

#include "../units.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

namespace spar::perf {

namespace {

constexpr std::size_t run = 64;

} // namespace

std::vector<float> input_vector(input_kind kind, std::size_t n, int step, const std::vector<float>& gradients) {
  if (kind == input_kind::gradients) return {gradients.begin(), gradients.begin() + static_cast<std::ptrdiff_t>(n)};
  std::vector<float> x(n);
  std::mt19937 random(7);
  if (kind == input_kind::uniform) {
    std::uniform_real_distribution<float> value(-1, 1);
    for (float& v : x) v = value(random);
  } else if (kind == input_kind::heavy) {
    std::student_t_distribution<float> value(2);
    for (float& v : x) v = value(random);
  } else {
    std::normal_distribution<float> value;
    for (float& v : x) v = value(random);
  }
  if (kind == input_kind::drift) {
    std::normal_distribution<float> change;
    for (int s = 0; s < step; ++s) {
      for (float& v : x) v = 0.9F * v + 0.1F * change(random);
    }
  }
  if (kind == input_kind::runs) {
    for (std::size_t begin = 0; begin < n; begin += run) {
      if (random() % 16 != 0)
        std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(begin), std::min(run, n - begin), 0.0F);
    }
  }
  return x;
}

std::vector<std::uint32_t> input_indices(bool runs, std::size_t n, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  const std::size_t length = runs ? std::min({run, n, count}) : 1;
  std::vector<std::uint32_t> indices;
  if (length == 0) return indices;
  for (std::size_t r = 0; r < count / length; ++r) {
    const auto begin = static_cast<std::uint32_t>(random() % (n - length + 1));
    for (std::size_t i = 0; i < length; ++i) indices.push_back(begin + static_cast<std::uint32_t>(i));
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

std::vector<float> read_gradients(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || !std::filesystem::is_regular_file(path)) throw usage_error("--gradients: cannot read " + path);
  const auto bytes = static_cast<std::size_t>(file.tellg());
  if (bytes == 0 || bytes % sizeof(float) != 0) {
    throw usage_error("--gradients: " + path + " has " + std::to_string(bytes) +
                      " bytes; expected values of 4 bytes each, and at least one");
  }
  std::vector<float> values(bytes / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file) throw usage_error("--gradients: could not read all of " + path);
  return values;
}

} // namespace spar::perf
