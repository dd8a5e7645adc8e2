// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/any.hpp>

#include <vector>

int main() {
  spar::any_group ranks = spar::any_group::threads(4);
  ranks.run([](spar::any_transport& net) {
    spar::any_feedback<float> reduce("ok_topk:0.01");
    std::vector<float> gradient(1000, 1.0F);
    reduce(net, gradient); // in place
  });
}
