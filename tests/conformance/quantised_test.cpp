// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stochastic rounding in the second phase of an allreduce is repeatable, unbiased, and different in each block and each
// call.
#include "support/compositions.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace spar_test {

namespace {

constexpr spar::rank_t ranks = 4;
constexpr std::size_t block = 256;
constexpr std::size_t n = ranks * block;
using vectors = std::vector<std::vector<float>>;

/// Reduces the same dense stream on every rank many times; keeps the results of rank 0.
template <class Algorithm>
struct repeated_calls {
  const std::vector<float>* x;
  vectors* results;
  Algorithm algorithm{};
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    for (auto& result : *results) {
      auto pending = spar::start_allreduce(net, spar::dense_view(*x), algorithm);
      const auto sum = co_await std::move(pending);
      if (net.rank() == 0) result.assign(sum.values().begin(), sum.values().end());
    }
  }
};

/// The same values in each block; the largest value of each block is 1.
std::vector<float> periodic_values() {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>((i % block * 37) % block + 1) / static_cast<float>(block);
  return x;
}

template <int Bits>
vectors sums(mode where, const std::vector<float>& x, std::size_t calls, std::uint64_t seed) {
  vectors results(calls, std::vector<float>(n));
  using algorithm = quantised_split<Bits>;
  run(where, ranks, repeated_calls<algorithm>{&x, &results, {.store = {.blocks = {.bucket = 128, .seed = seed}}}});
  return results;
}

TEST(quantised_allreduce, is_repeatable_on_every_transport) {
  const auto x = periodic_values();
  const auto first = sums<4>(mode::sim, x, 3, 5);
  for (const mode where : all_modes) EXPECT_EQ(sums<4>(where, x, 3, 5), first) << where;
  EXPECT_NE(sums<4>(mode::sim, x, 3, 6), first) << "another seed must give other bits";
}

TEST(quantised_allreduce, rounds_differently_in_each_block_and_each_call) {
  const auto results = sums<4>(mode::sim, periodic_values(), 3, 0);
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[1], results[2]);
  const auto part = [&](std::size_t b) {
    return std::vector<float>(results[0].begin() + static_cast<std::ptrdiff_t>(b * block),
                              results[0].begin() + static_cast<std::ptrdiff_t>((b + 1) * block));
  };
  for (std::size_t a = 0; a < static_cast<std::size_t>(ranks); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(part(a), part(b)) << "blocks " << a << " and " << b;
}

template <int Bits>
void expect_unbiased() {
  const auto x = periodic_values();
  constexpr std::size_t calls = 400;
  const auto results = sums<Bits>(mode::sim, x, calls, 1);
  constexpr double level = static_cast<double>(ranks) / ((1 << (Bits - 1)) - 1); // the largest sum is P
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double mean = 0;
    for (const auto& result : results) mean += result[i] / static_cast<double>(calls);
    const double exact = static_cast<double>(x[i]) * ranks;
    // A value between two levels has a standard deviation of at most half a level.
    EXPECT_NEAR(mean, exact, 5 * level / 2 / std::sqrt(static_cast<double>(calls))) << Bits << " bits, index " << i;
    total += mean - exact;
  }
  EXPECT_NEAR(total / n, 0, 4 * level / 2 / std::sqrt(static_cast<double>(calls * n))) << Bits << " bits";
}

TEST(quantised_allreduce, is_unbiased) {
  expect_unbiased<2>();
  expect_unbiased<4>();
  expect_unbiased<8>();
}

} // namespace
} // namespace spar_test
