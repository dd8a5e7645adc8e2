// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/any.hpp>

#include <span>
#include <vector>

int main() {
  spar::any_group ranks = spar::any_group::threads(4);
  ranks.run([](spar::any_transport& net) {
    std::vector<float> x(1000, 1.0F);
    spar::any_allreduce<float> reduce;
    reduce(net, std::span(x)); // dense, in place
  });
}
