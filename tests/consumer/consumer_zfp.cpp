// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program that links spar::zfp.
#include <spar/spar.hpp>
#include <spar/storage/zfp_field.hpp>

#include <vector>

int main() {
  int right = 0;
  spar::thread_group group(1);
  group.run([&](spar::threads& net) {
    std::vector<float> x(60, 1);
    spar::allreduce(net, x, spar::compose(spar::storage::zfp_field{.shape = {3, 4, 5}}, spar::ring{}));
    right = x[59] == 1 ? 1 : 0;
  });
  return right == 1 ? 0 : 1;
}
