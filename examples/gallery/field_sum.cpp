// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sum of a smooth field of three dimensions over four ranks, encoded by libzfp: without loss, and with an error
// that the program sets. Link it with -lzfp.
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/spar.hpp>
#include <spar/storage/zfp_field.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int ranks = 4;
constexpr std::size_t nx = 64, ny = 64, nz = 64;

std::vector<float> field_of(int rank) {
  std::vector<float> field(nx * ny * nz);
  for (std::size_t i = 0; i < field.size(); ++i) {
    const double x = static_cast<double>(i % nx) / nx, y = static_cast<double>(i / nx % ny) / ny,
                 z = static_cast<double>(i / (nx * ny)) / nz;
    field[i] = static_cast<float>(std::sin(6 * x + rank) * std::cos(5 * y) * std::exp(-z));
  }
  return field;
}

void sum(spar::threads& net, const char* what, const std::vector<double>& exact,
         const spar::storage::zfp_field& codec) {
  std::vector<float> x = field_of(net.rank());
  spar::allreduce(net, x, spar::compose(codec, spar::two_shot{}));
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error = std::max(error, std::abs(x[i] - exact[i]));
  const spar::statistics call = net.last_call();
  if (net.rank() == 0)
    std::printf("%-14s %7.0f bytes sent, %4.1f times fewer; largest error %.6f\n", what,
                static_cast<double>(call.bytes_sent), call.compression_ratio(), error);
  if (error > ranks * codec.accuracy + 1e-5) throw spar::error("the error exceeds the bound");
}

int main() {
  std::vector<double> exact(nx * ny * nz);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> x = field_of(rank);
    for (std::size_t i = 0; i < x.size(); ++i) exact[i] += x[i];
  }
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    sum(net, "no error", exact, {.shape = {nx, ny, nz}});
    sum(net, "error 0.0001", exact, {.shape = {nx, ny, nz}, .accuracy = 0.0001});
    sum(net, "error 0.01", exact, {.shape = {nx, ny, nz}, .accuracy = 0.01});
  });
}
