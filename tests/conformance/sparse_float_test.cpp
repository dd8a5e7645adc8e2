// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of floats.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations = testing::Types<
    combination<spar::recursive_doubling, float, std::uint32_t>, combination<spar::ring, float, std::uint32_t>,
    combination<spar::rabenseifner, float, std::uint64_t>, combination<spar::ssar_split, float, std::uint32_t>,
    combination<spar::dsar_split, float, std::uint64_t>, combination<spar::sparcml, float, std::uint32_t>,
    combination<spar::split_allgather<>, float, std::uint32_t>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_float, allreduce, combinations);

} // namespace spar_test
