// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of sparse vectors whose entries travel as coordinates, in the code of storage::coded, and with rounded values:
// how many bytes a rank sends, and how far the sum is from the exact one.
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

constexpr std::uint32_t length = 1'000'000;

/// One percent of the entries, of which each magnitude is at least 0.01, as behind a threshold.
spar::sparse_stream<float> contribution(spar::threads& net) {
  std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()) + 1);
  std::geometric_distribution<std::uint32_t> gap(0.01);
  std::exponential_distribution<float> above(3);
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  for (std::uint32_t i = gap(random); i < length; i += 1 + gap(random)) {
    indices.push_back(i);
    values.push_back((random() % 2 == 0 ? 0.01F : -0.01F) * std::exp(above(random)));
  }
  return spar::sparse_stream<float>::copy(net.memory(), spar::sparse_view(length, indices, values));
}

template <class Codec>
std::vector<float> sum(spar::threads& net, const char* name, const Codec& codec, std::vector<float> exact) {
  const auto mine = contribution(net);
  const auto total = spar::allreduce(net, mine.view(), spar::compose(codec, spar::ssar_split{}));
  std::vector<float> x(length);
  total.to_dense(x, spar::sum{});
  double error = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) error = std::max<double>(error, std::abs(x[i] - exact[i]));
  if (net.rank() == 0) {
    const auto bytes = static_cast<double>(net.last_call().bytes_sent);
    std::printf("%-16s %7.0f bytes sent; largest error %.6f\n", name, bytes, error);
  }
  return x;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const auto exact = sum(net, "coo", spar::storage::coo{}, {});
    if (sum(net, "coded", spar::storage::coded{}, exact) != exact) throw spar::error("the sums differ");
    sum(net, "coded, 7 bits", spar::storage::coded<7>{}, exact); // the precision of bfloat16
  });
}
