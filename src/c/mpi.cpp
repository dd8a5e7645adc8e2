// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface over MPI.
#include "arguments.hpp"
#include "communicator.hpp"

#include <spar/spar_mpi.h>

#include <spar/transport/any.hpp>
#include <spar/transport/mpi.hpp>
#include <spar/transport/mpi/hosts.hpp>

#include <memory>

namespace spar::inline v0_1::c {

namespace {

class mpi_communicator final : public communicator {
 public:
  explicit mpi_communicator(MPI_Comm comm) : mpi_(comm), net_(mpi_) { set_hosts(hosts_of(mpi_.communicator())); }
  mpi_communicator(mpi& whole, int colour, int key) : mpi_(whole.split(colour, key)), net_(mpi_) {
    set_hosts(hosts_of(mpi_.communicator()));
  }

  any_transport& net() noexcept override { return net_; }
  std::shared_ptr<communicator> split(int colour, int key) override {
    return std::make_shared<mpi_communicator>(mpi_, colour, key);
  }
  void check_open() const override {
    if (detail::mpi_is_finalised())
      raise<invalid_argument>({"MPI is finalised already: free 'comm' and make no calls with it after MPI_Finalize"});
  }

 private:
  mpi mpi_;
  any_transport net_;
};

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

int spar_comm_from_mpi(MPI_Comm mpi, spar_comm* comm) {
  return guarded(__func__, nullptr, [&] {
    begin_output(comm, "comm");
    *comm = handle_for<spar_comm>(std::make_shared<mpi_communicator>(mpi));
  });
}

int spar_comm_from_mpi_fint(MPI_Fint mpi, spar_comm* comm) { return spar_comm_from_mpi(MPI_Comm_f2c(mpi), comm); }

} // extern "C"
