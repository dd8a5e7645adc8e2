// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What MPI really gets to send: one message up to 4 KiB of payload, header included, and pieces of their own beyond.
#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace {

std::vector<int> sent; // bytes of each message that MPI_Isend was given

} // namespace

// MPI's own profiling interface: the program's definition comes before the library's.
int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  sent.push_back(count * size);
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

namespace {

std::vector<int> sent_by(auto call) {
  sent.clear();
  call();
  return sent;
}

TEST(physical_messages, of_dense_values) {
  spar::mpi net{MPI_COMM_WORLD};
  const auto reduce = [&](std::size_t count) {
    std::vector<float> x(count, 1.0F);
    return sent_by([&] { spar::allreduce(net, x, spar::recursive_doubling{}); });
  };
  EXPECT_EQ(reduce(0), (std::vector<int>{64}));
  EXPECT_EQ(reduce(2), (std::vector<int>{16 + 8}));
  EXPECT_EQ(reduce(1024), (std::vector<int>{16 + 4096}));
  EXPECT_EQ(reduce(1025), (std::vector<int>{64, 4100}));
}

TEST(physical_messages, of_sparse_streams) {
  spar::mpi net{MPI_COMM_WORLD};
  const auto reduce = [&](std::size_t count) {
    std::vector<std::uint32_t> indices(count);
    std::iota(indices.begin(), indices.end(), 0U);
    const std::vector<float> values(count, 1.0F);
    const auto mine = spar::stream_view<float>::sparse(1'000'000, indices, values);
    return sent_by([&] { spar::allreduce(net, mine, spar::recursive_doubling{}); });
  };
  EXPECT_EQ(reduce(0), (std::vector<int>{64}));
  EXPECT_EQ(reduce(3), (std::vector<int>{64 + 16 + 16})) << "each piece begins at a multiple of 16";
  EXPECT_EQ(reduce(512), (std::vector<int>{64 + 2048 + 2048}));
  EXPECT_EQ(reduce(513), (std::vector<int>{64, 2052, 2052}));
}

/// More messages than the transport keeps on their way unasked; none is lost, and all have left in the end.
TEST(physical_messages, sent_far_ahead_of_the_receiver_arrive) {
  spar::mpi net{MPI_COMM_WORLD};
  std::vector<std::uint64_t> x(1000);
  for (std::uint64_t i = 0; i < x.size(); ++i) {
    x[i] = net.rank() == 0 ? i + 1 : 0;
    spar::broadcast(net, std::span<std::uint64_t>(&x[i], 1), 0);
  }
  for (std::uint64_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], i + 1);
}

} // namespace
