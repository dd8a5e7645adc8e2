// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rendezvous of processes that a launcher with PMIx starts; every rank runs every test.
#include <spar/pmix.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

TEST(pmix, ranks_meet_without_a_variable_of_spar) {
  const spar::rendezvous job = spar::pmix_rendezvous({.deadline = 20});
  ASSERT_NE(std::getenv("OMPI_COMM_WORLD_RANK"), nullptr) << "not started by Open MPI's launcher";
  EXPECT_EQ(job.rank(), std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
  EXPECT_EQ(job.size(), std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE")));
  std::vector<std::string> expected;
  for (spar::rank_t r = 0; r < job.size(); ++r) expected.push_back(std::to_string(r));
  EXPECT_EQ(job.exchange(std::to_string(job.rank())), expected);
}

TEST(pmix, a_program_can_meet_again) {
  for (int round = 0; round < 3; ++round) {
    const spar::rendezvous job = spar::pmix_rendezvous({.deadline = 20});
    EXPECT_EQ(job.exchange("x").size(), static_cast<std::size_t>(job.size()));
  }
}

TEST(pmix, an_error_of_rank_0_ends_all_ranks) {
  const bool first = std::string(std::getenv("OMPI_COMM_WORLD_RANK")) == "0";
  const int port = first ? 65536 : 0;
  const auto meet = [&] { (void)spar::pmix_rendezvous({.port = port, .deadline = 20}); };
  if (first)
    EXPECT_THROW(meet(), spar::invalid_argument);
  else
    EXPECT_THROW(meet(), spar::transport_error);
}

} // namespace
