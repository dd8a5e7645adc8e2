// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/allreduce.hpp>
#include <spar/transport/threads.hpp>

#include <span>
#include <vector>

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    std::vector<float> x(1000, 1.0F);
    spar::allreduce(net, std::span(x)); // dense, in place
  });
}
