// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks over MPI that go on after a failure, by mpi::shrink. All processes live; killed_program.cpp is for
// processes that end.
#include <spar/mpi.hpp>
#include <spar/rendezvous/tcp_store.hpp>
#include <spar/transport/mpi_shrink.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::rank_t;

/// Where the processes meet: rank 0 serves the store. The first call is collective.
const spar::rendezvous& job() {
  static const spar::rendezvous meeting = [] {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    spar::rendezvous_options where;
    where.address = "127.0.0.1";
    where.deadline = 60;
    std::shared_ptr<spar::rendezvous_store> store;
    if (rank == 0) {
      auto server = std::make_shared<spar::tcp_store_server>(where);
      where.port = server->port();
      store = server;
    }
    MPI_Bcast(&where.port, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank != 0) store = std::make_shared<spar::tcp_store>(where);
    return spar::rendezvous(store, rank, size, where);
  }();
  return meeting;
}

/// The rendezvous of the ranks of `net` for its next shrink.
spar::rendezvous meeting_of(const std::string& group, const spar::mpi& net) {
  return job().among(group, net.rank(), net.size());
}

std::uint64_t bit(rank_t r) { return std::uint64_t{1} << r; }

/// The sum of 2^id over all ranks, by short and long messages.
std::uint64_t members(spar::mpi& net, rank_t id) {
  double sum = 0;
  for (const std::size_t n : {10U, 50'000U}) {
    std::vector<double> x(n, static_cast<double>(bit(id)));
    spar::allreduce(net, std::span(x), spar::ring{});
    sum = x[n - 1];
  }
  return static_cast<std::uint64_t>(sum);
}

TEST(mpi_shrink, survivors_go_on_without_each_rank) {
  const rank_t ranks = job().size();
  for (rank_t lost = 0; lost < ranks && ranks > 1; ++lost) {
    {
      spar::mpi world;
      world.set_deadline(45);
      const rank_t id = world.rank();
      EXPECT_EQ(members(world, id), bit(ranks) - 1);
      MPI_Barrier(MPI_COMM_WORLD); // a rank that fails also ends the last call of slower ones
      if (id == lost) {
        spar::abort(world, "the disk is full");
      } else {
        EXPECT_THROW(members(world, id), spar::peer_failed);
        spar::mpi rest = world.shrink(meeting_of("lost" + std::to_string(lost), world));
        EXPECT_EQ(rest.deadline(), 45);
        EXPECT_EQ(rest.size(), ranks - 1);
        EXPECT_EQ(rest.rank(), id < lost ? id : id - 1);
        EXPECT_EQ(members(rest, id), (bit(ranks) - 1) & ~bit(lost));
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(mpi_shrink, twice) {
  const rank_t ranks = job().size(), id = job().rank();
  if (ranks < 3) return;
  [&] {
    spar::mpi world;
    if (id == 1) return;
    const spar::rendezvous first = meeting_of("first", world);
    spar::mpi rest = world.shrink(first);
    if (id == 0) return;
    EXPECT_THROW(members(rest, id), spar::peer_failed);
    spar::mpi last = rest.shrink(first.among("next", rest.rank(), rest.size()));
    EXPECT_EQ(members(last, id), (bit(ranks) - 1) & ~bit(0) & ~bit(1));
  }();
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(mpi_shrink, nobody_is_lost) {
  spar::mpi world;
  spar::mpi rest = world.shrink(meeting_of("nobody", world));
  EXPECT_EQ(members(rest, world.rank()), bit(world.size()) - 1);
}

TEST(mpi_shrink, a_silent_rank_is_a_stranger_later) {
  const rank_t ranks = job().size();
  if (ranks < 2) return;
  spar::mpi world;
  world.set_deadline(1);
  const spar::rendezvous meeting = meeting_of("silent", world);
  if (world.rank() == ranks - 1) {
    MPI_Barrier(MPI_COMM_WORLD); // the others are here when they have gone on
    EXPECT_THROW((void)world.shrink(meeting), spar::peer_failed);
  } else {
    spar::mpi rest = world.shrink(meeting);
    EXPECT_EQ(rest.size(), ranks - 1);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(mpi_shrink, a_rendezvous_of_other_ranks_is_refused) {
  spar::mpi net;
  try {
    (void)net.shrink(job().among("others", 0, net.size() + 1));
    ADD_FAILURE() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_EQ(std::string(e.what()), "rank " + std::to_string(net.rank()) + " of " + std::to_string(net.size()) +
                                         " calls shrink with the rendezvous of rank 0 of " +
                                         std::to_string(net.size() + 1) + "; expected that of its communicator");
  }
  EXPECT_FALSE(net.dead());
}

} // namespace
} // namespace spar_test
