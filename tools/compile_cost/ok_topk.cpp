// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/topk.hpp>
#include <spar/transport/threads.hpp>

#include <vector>

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    spar::ok_topk<float> reduce({{.density = 0.01}});
    std::vector<float> gradient(1000, 1.0F);
    reduce(net, gradient); // in place
  });
}
