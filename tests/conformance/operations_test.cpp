// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Product, minimum and maximum in every algorithm for streams.
#include "support/allreduce_program.hpp"

namespace spar_test {

namespace {

template <class T, class Index, class Algorithm, class Op, class Value>
void check_operation(Algorithm algorithm, Op op, Value value) {
  std::size_t position = 0;
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8, 13}) {
    ++position;
    auto cases = make_cases<T, Index>(ranks, {3, 100, 1000}, {std::begin(all_patterns), std::end(all_patterns)}, value);
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      if (!runs_case(2, position, position_of(where) / 2)) continue;
      run_and_check(where, ranks, cases, algorithm, op);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Algorithm>
class operations : public testing::Test {};

using algorithms = joined<testing::Types, stream_schedules>;
TYPED_TEST_SUITE(operations, algorithms);

TYPED_TEST(operations, product) {
  check_operation<float, std::uint32_t>(TypeParam{}, spar::product{}, factor_value<float>);
}

TYPED_TEST(operations, minimum) {
  check_operation<double, std::uint32_t>(TypeParam{}, spar::minimum{}, real_value<double>);
}

TYPED_TEST(operations, maximum) {
  check_operation<std::int32_t, std::uint32_t>(TypeParam{}, spar::maximum{}, exact_value<std::int32_t>);
}

TYPED_TEST(operations, integers_wrap_around) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  std::vector<allreduce_case<std::int32_t, std::uint32_t>> cases(1);
  cases[0].n = 4;
  cases[0].inputs.assign(3, {4, {1}, {largest}, false});
  cases[0].results.resize(3);
  run(mode::sim, 3, allreduce_program<std::int32_t, std::uint32_t, TypeParam, spar::sum>{&cases});
  for (const auto& result : cases[0].results) {
    std::vector<std::int32_t> dense(4);
    result.to_dense(dense, spar::sum{});
    EXPECT_EQ(dense, (std::vector<std::int32_t>{0, largest - 2, 0, 0})); // 3 (2^31 - 1) = 2^32 + 2^31 - 3
  }
}

} // namespace
} // namespace spar_test
