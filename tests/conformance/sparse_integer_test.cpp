// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of integers.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations = testing::Types<combination<spar::recursive_doubling, std::int32_t, std::uint32_t>,
                                    combination<spar::ring, std::int64_t, std::uint32_t>,
                                    combination<spar::rabenseifner, std::int64_t, std::uint64_t>,
                                    combination<spar::ssar_split, std::int32_t, std::uint64_t>,
                                    combination<spar::dsar_split, std::int64_t, std::uint32_t>,
                                    combination<spar::sparcml, std::int32_t, std::uint32_t>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_integer, allreduce, combinations);

} // namespace spar_test
