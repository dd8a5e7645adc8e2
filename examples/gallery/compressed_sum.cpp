// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce of dense values that travel in 16, 8 and 4 bits: how many bytes a rank sends, and how large the error
// is.
#include <spar/spar.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

constexpr std::size_t n = 100'000;

std::vector<float> values_of(spar::rank_t rank) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
  return x;
}

/// Sums with a codec, and compares the result with the exact sum.
template <class Codec>
void sum(spar::threads& net, std::span<const float> exact, const Codec& codec) {
  std::vector<float> x = values_of(net.rank());
  spar::allreduce(net, std::span(x), spar::compose(codec, spar::ring{}));

  double error = 0;
  for (std::size_t i = 0; i < n; ++i) error = std::max<double>(error, std::abs(x[i] - exact[i]));
  // Each encoding of a partial sum adds at most its relative error to what it encodes; no sum exceeds the size of net.
  const auto encodings = static_cast<double>(spar::ring::encodings(net.size()));
  const double bound = (std::pow(1 + codec.template relative_error<float>(), encodings) - 1) * net.size();
  if (!(error <= bound)) throw spar::error("the error is too large");

  const spar::statistics& call = net.last_call();
  if (net.rank() == 0) {
    std::printf("%-8.*s %6u bytes sent, %.2f times fewer; largest error %.4f, bound %.4f\n",
                static_cast<int>(Codec::name.size()), Codec::name.data(), static_cast<unsigned>(call.bytes_sent),
                call.compression_ratio(), error, bound);
  }
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    std::vector<float> exact = values_of(net.rank());
    spar::allreduce(net, std::span(exact), spar::ring{});

    sum(net, exact, spar::storage::as_bfloat16{});
    sum(net, exact, spar::storage::qsgd<8>{}); // 8 bits, and a scale for each 1024 values
    sum(net, exact, spar::storage::qsgd<4>{});
  });
}
