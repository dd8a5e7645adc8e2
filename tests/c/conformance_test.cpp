// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface over threads has the results, messages and bytes of the interface of C++.
#include "conformance.hpp"

#include <vector>

TEST(conformance_of_c, threads) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    std::vector<spar_comm> comms(static_cast<std::size_t>(ranks));
    ASSERT_EQ(spar_comm_from_threads(ranks, comms.data()), SPAR_SUCCESS);
    spar::thread_group group(ranks);
    group.run(
        [&](spar::threads& net) { c_test::compare_with_c(net, comms[static_cast<std::size_t>(net.rank())], 60); });
    for (spar_comm& comm : comms) EXPECT_EQ(spar_comm_free(&comm), SPAR_SUCCESS);
  }
}
