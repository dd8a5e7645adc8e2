// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms for streams of floats.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations = joined<testing::Types, in_turn<std::pair<float, std::uint64_t>, std::pair<float, std::uint32_t>>,
                            std::tuple<combination<spar::split_allgather<>, float, std::uint32_t>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_float, allreduce, combinations);

} // namespace spar_test
