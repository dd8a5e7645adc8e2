// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Average and a user-defined operation in every algorithm for streams.
#include "support/allreduce_program.hpp"

namespace spar_test {

namespace {

template <class T, class Index, class Algorithm, class Op, class Value>
void check_operation(Algorithm algorithm, Op op, Value value) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8, 13}) {
    auto cases = make_cases<T, Index>(ranks, {3, 100, 1000}, {std::begin(all_patterns), std::end(all_patterns)}, value);
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      run_and_check(where, ranks, cases, algorithm, op);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Algorithm>
class average_and_own : public testing::Test {};

using algorithms = joined<testing::Types, stream_schedules>;
TYPED_TEST_SUITE(average_and_own, algorithms);

TYPED_TEST(average_and_own, average) {
  check_operation<float, std::uint32_t>(TypeParam{}, spar::average{}, exact_value<float>);
  if constexpr (compiles_all_cases)
    check_operation<std::int32_t, std::uint64_t>(TypeParam{}, spar::average{}, exact_value<std::int32_t>);
}

TYPED_TEST(average_and_own, of_the_user) {
  check_operation<std::int64_t, std::uint32_t>(TypeParam{}, greatest_divisor{}, positive_value<std::int64_t>);
}

} // namespace
} // namespace spar_test
