// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface over MPI.
#include "arguments.hpp"
#include "communicator.hpp"

#include <spar/spar_mpi.h>

#include <spar/any_mpi.hpp>

#include <memory>

namespace spar::inline v0_1::c {

namespace {

void check_mpi_is_open() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0)
    raise<invalid_argument>({"MPI is finalised already: free 'comm' and make no calls with it after MPI_Finalize"});
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

int spar_comm_from_mpi(MPI_Comm mpi, spar_comm* comm) {
  return guarded(__func__, nullptr, [&] {
    begin_output(comm, "comm");
    *comm = handle_for<spar_comm>(std::make_shared<communicator>(spar::any_mpi(mpi), check_mpi_is_open));
  });
}

int spar_comm_from_mpi_fint(MPI_Fint mpi, spar_comm* comm) { return spar_comm_from_mpi(MPI_Comm_f2c(mpi), comm); }

} // extern "C"
