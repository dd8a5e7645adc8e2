// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every call over MPI, of doubles.
#include "calls.hpp"
#include "training.hpp"

#include <spar/mpi.hpp>
#include <spar/transport/mpi_shrink.hpp>

namespace every_member {

template void sum_values(spar::mpi&, std::vector<double>&, const spar::tree_plans&, const spar::flex_plan&);
template void sum_streams(spar::mpi&, const spar::sparse_stream<double>&, const spar::tree_plans&);
template void call_others(spar::mpi&, std::vector<double>&, const spar::sparse_stream<double>&);
template double ask(spar::mpi&);
template std::uint64_t train_eagerly(spar::mpi&, std::vector<double>&, std::vector<double>&);

void run(std::vector<double>& x) {
  spar::mpi net(MPI_COMM_WORLD);
  const spar::progress_thread background(net);
  spar::allreduce(net, x);
  spar::mpi rest = net.shrink(spar::rendezvous::from_environment());
  spar::allreduce(rest, x);
}

} // namespace every_member
