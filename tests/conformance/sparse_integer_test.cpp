// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of integers.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations =
    joined<testing::Types, in_turn<std::pair<std::int32_t, std::uint32_t>, std::pair<std::int64_t, std::uint32_t>,
                                   std::pair<std::int64_t, std::uint64_t>, std::pair<std::int32_t, std::uint64_t>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_integer, allreduce, combinations);

} // namespace spar_test
