// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators from which spar::mpi is made, and those that it frees.
#include <spar/mpi.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

TEST(mpi_communicator, no_communicator) {
  try {
    const spar::mpi net{MPI_COMM_NULL};
    ADD_FAILURE() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("MPI_COMM_NULL"), std::string::npos);
  }
}

TEST(mpi_communicator, an_intercommunicator_is_refused) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return; // each of the two groups needs a rank
  MPI_Comm local = MPI_COMM_NULL, inter = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 1 ? 0 : 1, rank, &local);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank < 1 ? 1 : 0, 0, &inter);
  try {
    const spar::mpi net{inter};
    ADD_FAILURE() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("intercommunicator"), std::string::npos) << e.what();
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&local);
}

int freed = 0; // communicators with the attribute of the next test

/// MPI calls the function of an attribute when it frees the communicator.
TEST(mpi_communicator, failed_communicators_are_freed) {
  int key = MPI_KEYVAL_INVALID;
  const auto count = [](MPI_Comm, int, void*, void*) {
    ++freed;
    return MPI_SUCCESS;
  };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count, &key, nullptr);
  constexpr int communicators = 6;
  for (int i = 0; i < communicators; ++i) {
    spar::mpi net{MPI_COMM_WORLD};
    MPI_Comm_set_attr(net.communicator(), key, nullptr);
    if (i % 3 == 0) {
      spar::abort(net, "enough");
    } else { // calls that some ranks end early, with messages in flight
      std::vector<float> x(i % 2 == 0 ? 10U : 500'000U, 1.0F);
      if (net.rank() == 0) x.resize(x.size() - 1);
      try {
        spar::allreduce(net, std::span(x));
      } catch (const spar::error&) {
      }
    }
  }
  for (int least = 0, attempt = 0; least < communicators && attempt < 1000; ++attempt) {
    const spar::mpi later{MPI_COMM_WORLD}; // its constructor receives the last messages of the others
    MPI_Allreduce(&freed, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  }
  EXPECT_EQ(freed, communicators);
  MPI_Comm_free_keyval(&key);
}

TEST(mpi_communicator, does_not_disturb_the_communicator_it_was_made_from) {
  spar::mpi net{MPI_COMM_WORLD};
  std::vector<float> x(1000, 1.0F);
  auto pending = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
  int sum = net.rank();
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, net.size() * (net.size() - 1) / 2);
  pending.wait();
  EXPECT_EQ(x[999], static_cast<float>(net.size()));
}

} // namespace
} // namespace spar_test
