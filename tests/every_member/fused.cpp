// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused sums as a user's program makes them: in a function that the compiler can inline, with two kinds of sums.
#include <spar/spar.hpp>

#include <cstddef>
#include <vector>

namespace every_member {

void fuse(spar::threads& net) {
  std::vector<std::size_t> sizes(10, 100);
  spar::fused_allreduce<spar::threads, float> sums(net, sizes);
  spar::fused_allreduce<spar::threads, float, spar::sparcml, spar::average> means(net, sizes);
  sums.wait();
  means.wait();
}

} // namespace every_member
