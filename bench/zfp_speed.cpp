// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the coders of zfp blocks against libzfp on one core: zfp_speed [ROUNDS]. Each round measures all coders one
// after the other, so that other work on the machine disturbs all of them alike.
#include "support/libzfp.hpp"

#include <spar/storage/kernel/zfp/coder.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

using spar::kernel::detail::zfp_coder;

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string family;
  for (std::string line; std::getline(in, line);) {
    const auto value = [&] { return line.substr(line.find(':') + 2); };
    if (line.starts_with("cpu family")) family = " (family " + value();
    if (line.starts_with("model\t")) family += ", model " + value() + ")";
    if (line.starts_with("model name")) return value() + family;
  }
  return "unknown";
}

template <class F>
double seconds(const F& f) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

/// Gaussian noise, or a sum of three waves.
template <class T>
std::vector<T> values(bool is_smooth, std::size_t n) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<T> x(n);
  const double step = 0.001 + 1e-5 * static_cast<double>(random() % 1000), begin = static_cast<double>(random() % 1000);
  for (std::size_t i = 0; i < n; ++i) {
    const double at = begin + step * static_cast<double>(i);
    x[i] =
        static_cast<T>(is_smooth ? std::sin(at) + 0.3 * std::sin(7.3 * at) + 0.01 * std::cos(41 * at) : normal(random));
  }
  return x;
}

/// The times of a coder in each round, and what is printed of them.
struct times {
  std::vector<double> encode{}, decode{};
};
void print(const char* name, double bytes, const times& of, const times& reference) {
  std::printf(" %s", name);
  for (const auto member : {&times::encode, &times::decode}) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < (of.*member).size(); ++r) ratios.push_back((reference.*member)[r] / (of.*member)[r]);
    std::sort(ratios.begin(), ratios.end());
    const double best = *std::min_element((of.*member).begin(), (of.*member).end());
    std::printf(" | %.2f | %.1f (%.1f to %.1f)", 1e-9 * bytes / best, ratios[ratios.size() / 2],
                ratios[ratios.size() / 10], ratios[ratios.size() - 1 - ratios.size() / 10]);
  }
  std::printf(" |\n");
}

template <class T>
void compare(const char* type, int rounds) {
  constexpr std::size_t n = std::size_t{1} << 16; // in the cache
  struct named {
    const char* name;
    zfp_coder<T> coder;
    times took{};
  };
  std::vector<named> coders{{"portable", spar::kernel::detail::zfp_portable<T>}};
#if defined(__x86_64__)
  if (spar::kernel::detail::has_zfp_avx2()) coders.push_back({"AVX2", spar::kernel::detail::zfp_avx2<T>});
  if (spar::kernel::detail::has_zfp_avx512()) coders.push_back({"AVX-512", spar::kernel::detail::zfp_avx512<T>});
#endif
  for (const bool is_smooth : {false, true}) {
    for (const unsigned rate : {4U, 8U, 16U}) {
      const std::vector<T> x = values<T>(is_smooth, n);
      std::vector<T> y(n);
      std::vector<std::uint64_t> words(n * rate / 64 + 2);
      auto* const bytes = reinterpret_cast<std::byte*>(words.data());
      times reference;
      for (auto& c : coders) c.took = {};
      for (int r = 0; r < rounds; ++r) {
        reference.encode.push_back(seconds([&] {
          spar_test::libzfp<T> stream(words, 4 * rate);
          for (std::size_t i = 0; i < n; i += 4) stream.encode_block(x.data() + i, 4);
          stream.flush();
        }));
        reference.decode.push_back(seconds([&] {
          spar_test::libzfp<T> stream(words, 4 * rate);
          for (std::size_t i = 0; i < n; i += 4) stream.decode_block(y.data() + i, 4);
        }));
        for (auto& c : coders) {
          c.took.encode.push_back(
              seconds([&] { spar::kernel::detail::zfp_encode_by(c.coder, x.data(), n, 4 * rate, bytes); }));
          c.took.decode.push_back(
              seconds([&] { spar::kernel::detail::zfp_decode_by(c.coder, bytes, n, 4 * rate, y.data()); }));
        }
      }
      const auto row = [&](const char* name, const times& took) {
        std::printf("| %s | %s | %u |", type, is_smooth ? "smooth" : "noise", rate);
        print(name, static_cast<double>(n * sizeof(T)), took, reference);
      };
      row("libzfp", reference);
      for (const auto& c : coders) row(c.name, c.took);
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  std::printf(
      "%s, one core, n = 65536, %d rounds. GB/s: the best round. Times libzfp's speed: the median of the rounds, "
      "and the range of the middle 80 %% of them.\n\n",
      processor().c_str(), rounds);
  std::printf("| type | values | rate | coder | encode, GB/s | times libzfp | decode, GB/s | times libzfp |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  compare<float>("float", rounds);
  compare<double>("double", rounds);
}
