// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The codec that sends the fewest bytes while the error of a sum stays within a tolerance, and the bound on its error.
#include <spar/spar.hpp>
#include <spar/tolerance.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

constexpr std::size_t n = 100'000;

std::vector<float> values_of(spar::rank_t rank) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
  return x;
}

/// Sums within `tolerance` times the sum of the ranks' largest magnitudes, and compares the result with the exact sum.
void sum(spar::threads& net, std::span<const double> exact, double tolerance) {
  const spar::recursive_doubling schedule;
  const auto codec = spar::codec_for(tolerance, net.size(), n, schedule);
  const auto algorithm = spar::compose(codec, schedule);
  std::vector<float> x = values_of(net.rank());
  spar::allreduce(net, x, algorithm);

  const double bound = spar::error_bound(algorithm, net.size(), 1.0); // no value exceeds 1
  double error = 0;
  for (std::size_t i = 0; i < n; ++i) error = std::max(error, std::abs(static_cast<double>(x[i]) - exact[i]));
  if (!(error <= bound)) throw spar::error("the error is too large");
  if (net.rank() == 0) {
    std::printf("tolerance %-7g %-40s %7u bytes sent, error %.1e, bound %.1e\n", tolerance,
                spar::description_of(codec).c_str(), static_cast<unsigned>(net.last_call().bytes_sent), error, bound);
  }
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const std::vector<float> own = values_of(net.rank());
    std::vector<double> exact(own.begin(), own.end());
    spar::allreduce(net, exact);

    for (const double tolerance : {0.5, 0.05, 0.01, 0.005, 1e-6}) sum(net, exact, tolerance);
    try {
      sum(net, exact, 1e-8);
      throw spar::error("no sum of floats is so exact");
    } catch (const spar::invalid_argument& e) {
      if (net.rank() == 0) std::printf("%s\n", e.what());
    }
  });
}
