// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums with rounding: the error stays within P roundings, and the bits are the same on every rank, on every transport
// and for every order of arrival.
#include "support/allreduce_program.hpp"

namespace spar_test {

namespace {

template <class Algorithm>
class rounding : public testing::Test {};

using algorithms = joined<testing::Types, stream_schedules, std::tuple<quantised_split<8>, quantised_sparcml<4>>>;
TYPED_TEST_SUITE(rounding, algorithms);

template <class T, class Index>
std::vector<allreduce_case<T, Index>> rounded_cases(spar::rank_t ranks) {
  return make_cases<T, Index>(ranks, {1, 60, 3000},
                              {pattern::identical, pattern::random, pattern::clustered, pattern::full, pattern::mixed},
                              real_value<T>);
}

TYPED_TEST(rounding, error_is_within_one_rounding_a_rank) {
  for (const spar::rank_t ranks : {2, 5, 8, 13}) {
    auto cases = rounded_cases<float, std::uint32_t>(ranks);
    run(mode::sim, ranks, allreduce_program<float, std::uint32_t, TypeParam, spar::sum>{&cases});
    for (const auto& call : cases) {
      SCOPED_TRACE(testing::Message() << "P = " << ranks << ", n = " << call.n << ", " << call.shape);
      const auto expected = expected_of(call.inputs, spar::sum{});
      double largest = 0;
      for (const double x : expected.weight) largest = std::max(largest, x);
      const double loss = loss_of<TypeParam>::bound(largest);
      expect_result(call.results, expected, spar::sum{},
                    [&](std::size_t i) { return expected.weight[i] * ranks * 0x1p-24 + loss; });
    }
  }
}

TYPED_TEST(rounding, bits_are_the_same_in_every_order_of_arrival) {
  for (const spar::rank_t ranks : {3, 4, 7, 8, 13}) {
    using program = allreduce_program<float, std::uint32_t, TypeParam, spar::sum>;
    auto first = rounded_cases<float, std::uint32_t>(ranks);
    run(mode::sim, ranks, program{&first});
    const auto expect_same = [&](const auto& other, const char* what, std::uint64_t seed) {
      for (std::size_t c = 0; c < first.size(); ++c) {
        for (std::size_t r = 0; r < first[c].results.size(); ++r) {
          ASSERT_TRUE(same_stream(first[c].results[r], other[c].results[r]))
              << what << ' ' << seed << ", P = " << ranks << ", n = " << first[c].n << ", " << first[c].shape
              << ", rank " << r;
        }
      }
    };
    const std::uint64_t seeds = !has_sim ? 0 : is_full() ? 20 : is_shortened ? 2 : 5;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      auto again = rounded_cases<float, std::uint32_t>(ranks);
      run_sim<spar::any_transport>(ranks, program{&again}, random_order(seed, seed % 2 == 0));
      ASSERT_NO_FATAL_FAILURE(expect_same(again, "seed", seed));
    }
    if (depends_on_the_network<TypeParam>) {
      first = rounded_cases<float, std::uint32_t>(ranks);
      run(mode::threads, ranks, program{&first});
    }
    for (const mode where : {mode::threads, mode::threads_synchronous}) {
      auto again = rounded_cases<float, std::uint32_t>(ranks);
      run(where, ranks, program{&again});
      ASSERT_NO_FATAL_FAILURE(expect_same(again, "threads", 0));
    }
  }
}

} // namespace
} // namespace spar_test
