// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sum whose values keep an error bound, with the same bits from different algorithms. Needs no MPI:
// g++ -std=c++20 -pthread -Iinclude examples/gallery/bound_sum.cpp -o bound_sum && ./bound_sum
#include <spar/collective/compressed/bound.hpp>
#include <spar/spar.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

constexpr std::size_t n = 100000;

/// The contribution of a rank: a wave with noise, of magnitudes up to 1.
std::vector<float> values_of(int rank) {
  std::vector<float> x(n);
  unsigned state = 12345 + static_cast<unsigned>(rank);
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525 + 1013904223; // a linear congruential generator
    const double noise = state / 4294967296.0 - 0.5;
    x[i] = static_cast<float>(0.9 * std::sin(0.001 * static_cast<double>(i)) + 0.2 * noise);
  }
  return x;
}

/// Sums by a schedule, and compares the result with the exact sum.
template <class Schedule>
std::vector<float> sum(spar::threads& net, const std::vector<double>& exact, double error, const Schedule& by) {
  std::vector<float> x = values_of(net.rank());
  spar::allreduce(net, x, spar::compose(spar::storage::bound{.error = error}, by));

  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i] - exact[i]));
  const double bound = net.size() * error;
  if (!(largest <= bound)) throw spar::error("the error is too large");
  const spar::statistics& call = net.last_call();
  if (net.rank() == 0) {
    std::printf("error %-6g, %-18.*s %6u bytes sent, %5.2f times fewer; largest error %.6f, bound %.6f\n", error,
                static_cast<int>(Schedule::name.size()), Schedule::name.data(), static_cast<unsigned>(call.bytes_sent),
                call.compression_ratio(), largest, bound);
  }
  return x;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const std::vector<float> mine = values_of(net.rank());
    std::vector<double> exact(mine.begin(), mine.end());
    spar::allreduce(net, exact);

    for (const double error : {0.01, 0.0001}) {
      const std::vector<float> around = sum(net, exact, error, spar::ring{});
      if (sum(net, exact, error, spar::recursive_doubling{}) != around) throw spar::error("the sums differ");
    }
  });
}
