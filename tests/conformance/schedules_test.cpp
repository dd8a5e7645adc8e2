// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random delays in the simulator: whatever the order of arrival, every rank ends with the same bits as when messages
// arrive in order. Runs schedules() seeds of each collective.
#include "support/collectives.hpp"
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

constexpr spar::rank_t most_ranks = 17;
constexpr std::array<std::size_t, 4> lengths{0, 5, 64, 1000};

template <class Collective>
struct recorded {
  const std::vector<input>* inputs;
  std::vector<bits>* results;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const Collective collective;
    const auto rank = static_cast<std::size_t>(net.rank());
    auto result = co_await collective(net, &(*inputs)[rank]);
    (*results)[rank] = std::move(result);
  }
};

std::vector<input> inputs_of(spar::rank_t ranks, std::size_t n) {
  std::vector<input> all;
  for (spar::rank_t r = 0; r < ranks; ++r) all.emplace_back(r, n);
  return all;
}

template <class Collective>
std::vector<bits> run_in(const spar::simulator_options& order, const std::vector<input>& inputs) {
  std::vector<bits> results(inputs.size());
  run_sim(static_cast<spar::rank_t>(inputs.size()), recorded<Collective>{&inputs, &results}, order);
  return results;
}

template <class Collective>
class schedule : public testing::Test {};
TYPED_TEST_SUITE(schedule, collectives);

TYPED_TEST(schedule, of_any_order_gives_the_same_bits) {
  std::map<std::pair<spar::rank_t, std::size_t>, std::pair<std::vector<input>, std::vector<bits>>> in_order;
  for (std::uint64_t seed = 1; seed <= schedules(); ++seed) {
    const auto ranks = static_cast<spar::rank_t>(1 + seed % most_ranks);
    const std::size_t n = lengths[seed / most_ranks % lengths.size()];
    auto [at, added] = in_order.try_emplace({ranks, n});
    auto& [inputs, expected] = at->second;
    if (added) {
      inputs = inputs_of(ranks, n);
      expected = run_in<TypeParam>({}, inputs);
    }
    ASSERT_EQ(run_in<TypeParam>(random_order(seed, seed % 2 == 0), inputs), expected)
        << "seed " << seed << ", P = " << ranks << ", n = " << n;
  }
}

} // namespace
} // namespace spar_test
