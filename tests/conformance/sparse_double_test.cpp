// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of doubles.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations = testing::Types<
    combination<spar::recursive_doubling, double, std::uint64_t>, combination<spar::ring, double, std::uint64_t>,
    combination<spar::rabenseifner, double, std::uint32_t>, combination<spar::ssar_split, double, std::uint64_t>,
    combination<spar::dsar_split, double, std::uint32_t>, combination<spar::sparcml, double, std::uint64_t>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_double, allreduce, combinations);

} // namespace spar_test
