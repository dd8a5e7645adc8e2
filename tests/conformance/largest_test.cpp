// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks' agreement on their largest number: the result for each place of that number, and the cost.
#include "support/ranks.hpp"

#include <spar/collective/basic/largest.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace spar_test;

struct find : spar::algorithm_defaults {
  static constexpr const char* name = "find";
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net, std::uint64_t* mine) const& {
    return spar::find_largest(net, *mine);
  }
};

struct find_each {
  std::vector<std::uint64_t>* numbers;
  std::vector<spar::statistics>* costs;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_collective(
        net, spar::signature_of<std::uint64_t, std::uint32_t, spar::maximum>(1, find{}), find{}, &(*numbers)[rank]);
    co_await std::move(pending);
    (*costs)[rank] = net.last_call();
  }
};

TEST(find_largest, from_any_rank_in_the_fewest_rounds) {
  constexpr std::uint64_t largest = std::uint64_t{1} << 63;
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      std::uint64_t rounds = 0;
      while ((spar::rank_t{1} << rounds) < ranks) ++rounds;
      for (spar::rank_t holder = 0; holder < ranks; ++holder) {
        std::vector<std::uint64_t> numbers(static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r < numbers.size(); ++r) numbers[r] = 7 * r % 5;
        numbers[static_cast<std::size_t>(holder)] = largest;
        std::vector<spar::statistics> costs(numbers.size());
        run(where, ranks, find_each{&numbers, &costs});
        for (std::size_t r = 0; r < numbers.size(); ++r) {
          ASSERT_EQ(numbers[r], largest) << where << ", P = " << ranks << ", from " << holder << " to " << r;
          ASSERT_EQ(costs[r].messages_sent, rounds);
          ASSERT_EQ(costs[r].bytes_sent, 8 * rounds);
        }
      }
    }
  }
}

} // namespace
