// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces whose second phase is quantised: the error is at most one level.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations = testing::Types<
#if SPAR_ALL_CASES
    combination<quantised_split<8>, float, std::uint32_t>, combination<quantised_split<2>, float, std::uint64_t>,
    combination<quantised_sparcml<8>, double, std::uint32_t>,
#endif
    combination<quantised_split<4>, double, std::uint64_t>, combination<quantised_sparcml<4>, float, std::uint32_t>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_quantised, allreduce, combinations);

} // namespace spar_test
