// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same dense allreduce as dense.cpp, by Boost.MPI.
#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>

#include <functional>
#include <vector>

int main() {
  const boost::mpi::environment environment;
  const boost::mpi::communicator world;
  std::vector<float> x(1000, 1.0F);
  boost::mpi::all_reduce(world, boost::mpi::inplace(x.data()), 1000, std::plus<float>());
}
