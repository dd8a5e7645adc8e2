// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces whose second phase is quantised: the error is at most one level.
#include "allreduce_suite.hpp"

namespace spar_test {

using combinations =
    testing::Types<combination<spar::with_storage<spar::dsar_split, spar::storage::qsgd<8>>, float, std::uint32_t>,
                   combination<spar::with_storage<spar::dsar_split, spar::storage::qsgd<4>>, double, std::uint64_t>,
                   combination<spar::with_storage<spar::dsar_split, spar::storage::qsgd<2>>, float, std::uint64_t>,
                   combination<spar::with_storage<spar::sparcml, spar::storage::qsgd<4>>, float, std::uint32_t>,
                   combination<spar::with_storage<spar::sparcml, spar::storage::qsgd<8>>, double, std::uint32_t>>;
INSTANTIATE_TYPED_TEST_SUITE_P(sparse_quantised, allreduce, combinations);

} // namespace spar_test
