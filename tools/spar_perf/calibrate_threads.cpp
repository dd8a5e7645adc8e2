// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calibration with ranks that are threads of this process.
#include "calibrate_ranks.hpp"
#include "run.hpp"

namespace perf {

spar::network_model calibrate_threads(const options& o) {
  spar::network_model network;
  spar::thread_group group(o.ranks > 0 ? o.ranks : 2);
  group.run([&](spar::threads& net) {
    const spar::network_model measured = calibrate(net, o);
    if (net.rank() == 0) network = measured;
  });
  return network;
}

} // namespace perf
