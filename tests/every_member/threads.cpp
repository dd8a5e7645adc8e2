// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every call over threads, of floats.
#include "calls.hpp"

namespace every_member {

template void sum_values(spar::threads&, std::vector<float>&, const spar::tree_plans&, const spar::flex_plan&);
template void sum_streams(spar::threads&, const spar::sparse_stream<float>&, const spar::tree_plans&);
template void call_others(spar::threads&, std::vector<float>&, const spar::sparse_stream<float>&);
template double ask(spar::threads&);

void run(spar::thread_group& ranks, std::vector<float>& x) {
  ranks.run([&](spar::threads& net) {
    const spar::progress_thread background(net);
    if (spar::start_allreduce(net, x).wait_for(1)) spar::allreduce(net.shrink(), x);
  });
}

} // namespace every_member
