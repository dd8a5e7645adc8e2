// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calibration over MPI.
#include "calibrate_ranks.hpp"
#include "run.hpp"

#include <spar/mpi.hpp>

namespace perf {

spar::network_model calibrate_mpi(const options& o) {
  spar::mpi net{MPI_COMM_WORLD};
  return calibrate(net, o);
}

} // namespace perf
