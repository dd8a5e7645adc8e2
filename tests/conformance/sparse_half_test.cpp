// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of the 16-bit floating-point types that the compiler supports.
#include "allreduce_suite.hpp"

namespace spar_test {

#ifdef SPAR_HAS_HALF
using half_combinations =
    joined<testing::Types, in_turn<std::pair<spar::half, std::uint32_t>, std::pair<spar::half, std::uint64_t>>,
           std::tuple<combination<quantised_split<8>, spar::half, std::uint32_t>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(half, allreduce, half_combinations);
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(allreduce);
TEST(sparse_half, the_compiler_has_no_half) { EXPECT_FALSE(spar::element<long double>); }
#endif

#ifdef SPAR_HAS_BFLOAT16
using bfloat16_combinations =
    joined<testing::Types, in_turn<std::pair<spar::bfloat16, std::uint32_t>, std::pair<spar::bfloat16, std::uint64_t>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(bfloat16, allreduce, bfloat16_combinations);
#endif

} // namespace spar_test
