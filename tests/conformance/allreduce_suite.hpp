// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The conformance suite of stream allreduces: any algorithm, element and index type, on every in-process transport,
// against a reference in double precision or 64-bit integers. A file that includes this instantiates it for its
// combinations.
//
// The files together cover every algorithm with every element type, and each algorithm with both index types; every
// combination runs on both transports with buffered and with synchronous sends, at every number of ranks, with every
// shape of input; the quick set combines each number of ranks with two of the four modes.
#pragma once

#include "support/allreduce_program.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace spar_test {

template <class Algorithm, spar::element T, spar::index_type Index>
struct combination {
  using algorithm = Algorithm;
  using value = T;
  using index = Index;
};

namespace detail {

template <class... Entries, class... Schedules, std::size_t... I>
auto in_turn(std::tuple<Entries...> entries, std::tuple<Schedules...>, std::index_sequence<I...>)
    -> std::tuple<combination<Schedules, decltype(std::get<I % sizeof...(Entries)>(entries).first),
                              decltype(std::get<I % sizeof...(Entries)>(entries).second)>...>;

} // namespace detail

/// Each schedule of streams with one of the `Entries` in turn, pairs of a value type and an index type.
template <class... Entries>
using in_turn = decltype(detail::in_turn(std::tuple<Entries...>(), stream_schedules(),
                                         std::make_index_sequence<std::tuple_size_v<stream_schedules>>()));

template <class Combination>
class allreduce : public testing::Test {
 public:
  using algorithm = typename Combination::algorithm;
  using value = typename Combination::value;
  using index = typename Combination::index;

  static void check(mode where) {
    for (std::size_t i = 0; i < all_ranks.size(); ++i) {
      if (!runs_case(2, i, position_of(where))) continue;
      const spar::rank_t ranks = all_ranks[i];
      const auto p = static_cast<std::uint64_t>(ranks);
      auto cases = make_cases<value, index>(ranks, {0, 1, 3, p - 1, p, 100, 1000},
                                            {std::begin(all_patterns), std::end(all_patterns)}, exact_value<value>);
      // Messages too large to be buffered, and enough entries for each strategy of merging.
      for (auto& large : make_cases<value, index>(ranks, {20'000}, {pattern::random, pattern::disjoint, pattern::mixed},
                                                  exact_value<value>))
        cases.push_back(std::move(large));
      run_and_check(where, ranks, cases, algorithm{}, spar::sum{});
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  static void check_many_ranks() {
    for (const spar::rank_t ranks : many_ranks()) {
      std::vector<pattern> shapes{pattern::random, pattern::disjoint};
      if (ranks == 64) shapes.push_back(pattern::some_empty);
      auto cases = make_cases<value, index>(
          ranks, {300}, shapes, [](std::mt19937_64& random) { return static_cast<value>(random() % 2 + 1); });
      run_and_check(mode::sim, ranks, cases, algorithm{}, spar::sum{});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
};

TYPED_TEST_SUITE_P(allreduce);

TYPED_TEST_P(allreduce, sums_on_threads) { this->check(mode::threads); }
TYPED_TEST_P(allreduce, sums_on_threads_with_synchronous_sends) { this->check(mode::threads_synchronous); }
TYPED_TEST_P(allreduce, sums_in_the_simulator) { this->check(mode::sim); }
TYPED_TEST_P(allreduce, sums_in_the_simulator_with_synchronous_sends_in_random_order) {
  this->check(mode::sim_synchronous);
}
TYPED_TEST_P(allreduce, sums_over_many_ranks) { this->check_many_ranks(); }

REGISTER_TYPED_TEST_SUITE_P(allreduce, sums_on_threads, sums_on_threads_with_synchronous_sends, sums_in_the_simulator,
                            sums_in_the_simulator_with_synchronous_sends_in_random_order, sums_over_many_ranks);

} // namespace spar_test
