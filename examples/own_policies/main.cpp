// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A selector, a storage and a collective of one's own, in the slots of spar's. Needs nothing but the headers.
#include "policies.hpp"

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

int main() {
  constexpr spar::rank_t ranks = 4;
  constexpr std::size_t n = 1000;
  const auto gradient = [](spar::rank_t rank) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i * static_cast<std::size_t>(rank + 1)));
    return x;
  };

  // What must come out: the sum of the entries of at least 0.9, which is what the selector takes.
  std::vector<float> expected(n);
  for (spar::rank_t r = 0; r < ranks; ++r) {
    const auto x = gradient(r);
    for (std::size_t i = 0; i < n; ++i) expected[i] += std::abs(x[i]) >= 0.9F ? x[i] : 0;
  }

  double worst_star = 0;
  double worst_bfloat = 0;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    // An own selector before an own collective ...
    auto x = gradient(net.rank());
    spar::allreduce(net, std::span(x), spar::collective<own::at_least, own::star>{{.threshold = 0.9F}, {}});
    // ... and before one of spar's with an own storage.
    auto y = gradient(net.rank());
    using quantised = spar::with_storage<spar::dsar_split, own::truncated>;
    spar::allreduce(net, std::span(y), spar::collective<own::at_least, quantised>{{.threshold = 0.9F}, {}});
    if (net.rank() != 0) return;
    for (std::size_t i = 0; i < n; ++i) {
      worst_star = std::max(worst_star, std::abs(static_cast<double>(x[i]) - static_cast<double>(expected[i])));
      worst_bfloat = std::max(worst_bfloat, std::abs(static_cast<double>(y[i]) - static_cast<double>(expected[i])));
    }
  });
  std::printf("largest error: star %.2g, values truncated to 16 bits %.2g\n", worst_star, worst_bfloat);
  return worst_star < 1e-5 && worst_bfloat < 4.0 / 128 ? 0 : 1;
}
