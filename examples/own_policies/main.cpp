// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uses user-defined policies in compositions with spar's policies, and a user-defined algorithm. Needs only the
// headers.
#include "policies.hpp"

#include <algorithm>
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

  // The expected result: the sum of the entries whose magnitude is at least 0.9, which the selector takes.
  const own::at_least select{.threshold = 0.9F};
  std::vector<float> expected(n);
  for (spar::rank_t r = 0; r < ranks; ++r) {
    const auto x = gradient(r);
    for (std::size_t i = 0; i < n; ++i) expected[i] += std::abs(x[i]) >= select.threshold ? x[i] : 0;
  }
  const auto error_of = [&](const std::vector<float>& x) {
    float worst = 0;
    for (std::size_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(x[i] - expected[i]));
    return worst;
  };

  float by_schedule = 0, by_codec = 0, by_star = 0;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    // A user-defined selector with a user-defined schedule.
    auto x = gradient(net.rank());
    spar::allreduce(net, std::span(x), spar::compose(select, own::there_and_back{}));

    // The selector with a schedule of spar that sends dense blocks with a user-defined codec.
    auto y = gradient(net.rank());
    const spar::storage::then<spar::storage::coo, own::truncated> store;
    spar::allreduce(net, std::span(y), spar::compose(select, store, spar::dsar_split{}));

    // The selector, called directly, before an algorithm that is not a composition.
    auto z = gradient(net.rank());
    const auto selected = spar::select(select, std::span(z), net.memory());
    const auto sum = spar::allreduce(net, selected, own::star{});
    sum.to_dense(z, spar::sum{});

    if (net.rank() == 0) by_schedule = error_of(x), by_codec = error_of(y), by_star = error_of(z);
  });
  std::printf("largest error: own schedule %.2g, values truncated to 16 bits %.2g, star %.2g\n",
              static_cast<double>(by_schedule), static_cast<double>(by_codec), static_cast<double>(by_star));
  return by_schedule < 1e-5F && by_codec < 4.0F / 128 && by_star < 1e-5F ? 0 : 1;
}
