// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages that spar passes to MPI: up to 4 KiB of payload one message with its header; beyond, separate messages.
#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

namespace {

std::vector<int> sent; // bytes of each message passed to MPI_Isend

} // namespace

// MPI's profiling interface: the program's definition replaces the library's.
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

/// A short stream travels in one message with the ranks' agreement on the largest number of entries. A long one follows
/// an agreement without a stream.
TEST(physical_messages, of_sparcml) {
  spar::mpi net{MPI_COMM_WORLD};
  const auto reduce = [&](std::size_t count) {
    std::vector<std::uint32_t> indices(count);
    std::iota(indices.begin(), indices.end(), 0U);
    const std::vector<float> values(count, 1.0F);
    return sent_by([&] { spar::allreduce(net, spar::sparse_view(1'000'000, indices, values)); });
  };
  EXPECT_EQ(reduce(2), (std::vector<int>{64 + 16 + 16 + 16}));
  EXPECT_EQ(reduce(508), (std::vector<int>{64 + 2032 + 2032 + 16}));
  EXPECT_EQ(reduce(513), (std::vector<int>{64 + 16, 64, 2052, 2052}));
}

/// The sender destroys its transport before the receiver receives: memory of messages that MPI has not sent yet must
/// not be reused.
TEST(physical_messages, outlive_the_transport_that_sent_them) {
  for (const std::size_t count : {100U, 1000U, 1024U}) {
    std::vector<float> x(count, 0.0F);
    {
      spar::mpi net{MPI_COMM_WORLD};
      if (net.rank() == 0)
        x.assign(count, 1.0F);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      spar::broadcast(net, std::span<float>(x), 0);
    }
    std::vector<std::vector<unsigned char>> other; // memory that may have belonged to the transport
    for (std::size_t size = 4096; size < 200'000; size += 4096) {
      other.emplace_back(size, static_cast<unsigned char>(0x7F));
    }
    EXPECT_EQ(x, std::vector<float>(count, 1.0F)) << count;
  }
}

/// Sends more messages than the transport keeps in flight without being asked: none is lost, and all have left at the
/// end.
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
