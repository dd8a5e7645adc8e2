// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of doubles.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations =
    joined<testing::Types, in_turn<std::pair<double, std::uint32_t>, std::pair<double, std::uint64_t>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_double, allreduce, combinations);

} // namespace spar_test
