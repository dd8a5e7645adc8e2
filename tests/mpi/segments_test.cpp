// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large payloads in segments: the same results whatever segment sizes the ranks were given, a bounded number of
// requests in flight, the order of messages, and the sizes that the transport chooses by default.
#include "support/compositions.hpp"
#include "support/global_allocations.hpp"
#include "support/streams.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct message {
  MPI_Comm comm;
  int bytes;
};
std::vector<message> sent; // passed to MPI
int most_under_way = 0;    // most requests in one MPI wait

} // namespace

// MPI's profiling interface: the program's definitions replace the library's.
int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  sent.push_back({comm, count}); // all are bytes
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

int MPI_Issend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  sent.push_back({comm, count});
  return PMPI_Issend(buffer, count, type, to, tag, comm, request);
}

int MPI_Testsome(int count, MPI_Request* requests, int* ended, int* which, MPI_Status* statuses) {
  most_under_way = std::max(most_under_way, count);
  return PMPI_Testsome(count, requests, ended, which, statuses);
}

namespace spar_test {

namespace {

using index = std::uint32_t;

// --- the agreement when the transport is created ---

TEST(mpi_wire_version, of_an_older_rank_is_named) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const bool newer : {false, true}) {
    std::string text;
    try {
      if (rank > 0 || newer) { // version 1 sent only the wished size
        spar::detail::mpi_segments::least_of(MPI_COMM_WORLD, 1000, rank > 0 && newer ? 4 : 3);
      } else {
        std::int64_t wish = 1000;
        MPI_Allreduce(MPI_IN_PLACE, &wish, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
      }
    } catch (const spar::mismatch& e) {
      text = e.what();
    }
    const std::string expected = newer ? "ranks have different versions of spar: one has version 3 of the wire format, "
                                         "this rank has version 4"
                                       : "ranks have different versions of spar: one has version 1 of the wire format, "
                                         "this rank has version 3";
    EXPECT_EQ(text, rank > 0 ? expected : "");
  }
  EXPECT_EQ(spar::detail::mpi_segments::least_of(MPI_COMM_WORLD, 1000 + rank), 1000);
}

// --- results ---

template <class Algorithm>
class mpi_segments : public testing::Test {};
using algorithms = joined<testing::Types, dense_schedules>;
TYPED_TEST_SUITE(mpi_segments, algorithms);

TYPED_TEST(mpi_segments, sums_of_dense_values) {
  for (const std::size_t bytes : {100U, 1000U, 4096U}) {
    spar::mpi net{MPI_COMM_WORLD, {.segment_bytes = bytes}};
    const auto p = static_cast<double>(net.size());
    for (const std::size_t n : {600U, 1500U, 100'000U}) {
      if (bytes == 100 && n > 1500) continue;
      std::vector<double> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i) + net.rank();
      spar::allreduce(net, x, TypeParam{});
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], p * static_cast<double>(i) + p * (p - 1) / 2) << i;
    }
  }
}

template <class Algorithm>
class mpi_segments_of_streams : public testing::Test {};
using sparse_algorithms =
    testing::Types<spar::recursive_doubling, spar::ssar_split, spar::dsar_split, quantised_split<8>>;
TYPED_TEST_SUITE(mpi_segments_of_streams, sparse_algorithms);

TYPED_TEST(mpi_segments_of_streams, the_same_bits_as_whole) {
  spar::mpi whole{MPI_COMM_WORLD, {.segment_bytes = std::size_t{1} << 40}};
  spar::mpi cut{MPI_COMM_WORLD, {.segment_bytes = 1000}};
  const auto rank = static_cast<std::size_t>(whole.rank());
  for (const pattern shape : all_patterns) {
    for (const std::uint64_t n : {1000U, 30'000U}) {
      const auto all = contributions<float, index>(shape, whole.size(), n, n, real_value<float>);
      const auto expected = spar::allreduce(whole, all[rank].view(), TypeParam{});
      const auto sum = spar::allreduce(cut, all[rank].view(), TypeParam{});
      EXPECT_TRUE(same_stream(sum, expected)) << shape << ", n = " << n;
    }
  }
}

// --- sizes ---

/// The sizes of the messages sent on the communicator's data channel. Control messages, which a rank sends to a peer
/// for which it has waited long, use another.
std::vector<int> sizes_on(const spar::mpi& net) {
  std::vector<int> sizes;
  for (const message& m : sent) {
    if (m.comm == net.communicator()) sizes.push_back(m.bytes);
  }
  return sizes;
}

/// Messages that two ranks send each other for 4100 bytes.
std::vector<int> sizes(spar::mpi& net) {
  std::vector<float> x(1025, 1.0F);
  sent.clear();
  spar::allreduce(net, x, spar::recursive_doubling{});
  return sizes_on(net);
}

const std::vector<int> of_a_thousand{64, 1000, 1000, 1000, 1000, 100};

TEST(mpi_segment_sizes, of_groups_are_those_of_the_whole) {
  spar::mpi world{MPI_COMM_WORLD, {.segment_bytes = 1000}};
  spar::mpi pair = world.split(world.rank() / 2, world.rank());
  EXPECT_EQ(sizes(pair), pair.size() == 2 ? of_a_thousand : std::vector<int>{});
}

TEST(mpi_segment_sizes, are_the_least_that_any_rank_was_given) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::array<std::size_t, 3> wishes{0, 1000, 2048}; // the first has no wish, the second the least
  spar::mpi world{MPI_COMM_WORLD, {.segment_bytes = wishes[static_cast<std::size_t>(rank) % 3]}};
  if (world.size() == 2) {
    EXPECT_EQ(sizes(world), of_a_thousand);
  }
  std::vector<std::int32_t> x(50'000, world.rank());
  spar::allreduce(world, x, spar::ring{});
  EXPECT_EQ(x, std::vector<std::int32_t>(50'000, world.size() * (world.size() - 1) / 2));
}

/// One message per piece to a rank on the same host, several to a rank on another host.
TEST(mpi_segment_sizes, depend_on_where_ranks_are) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  spar::mpi net{MPI_COMM_WORLD};
  int first_here = net.rank(); // the lowest rank of this host
  MPI_Bcast(&first_here, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  std::vector<int> hosts(static_cast<std::size_t>(net.size()));
  MPI_Allgather(&first_here, 1, MPI_INT, hosts.data(), 1, MPI_INT, MPI_COMM_WORLD);

  std::vector<float> x(10'000, 1.0F); // 40 000 bytes from rank 0 to each other rank, by a tree
  sent.clear();
  spar::broadcast(net, std::span<float>(x), 0);
  std::vector<int> expected;
  const auto rank = static_cast<std::size_t>(net.rank());
  std::size_t distance = 1;
  while (rank % (2 * distance) == 0 && distance < hosts.size()) distance *= 2;
  for (distance /= 2; distance > 0; distance /= 2) {
    if (rank + distance >= hosts.size()) continue;
    expected.push_back(64);
    if (hosts[rank + distance] == hosts[rank])
      expected.push_back(40'000);
    else
      expected.insert(expected.end(), {16384, 16384, 40'000 - 2 * 16384});
  }
  std::vector<int> found = sizes_on(net);
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

// --- segments in flight ---

TEST(mpi_segments_under_way, are_few_however_large_the_message) {
  spar::mpi net{MPI_COMM_WORLD, {.segment_bytes = 1000}};
  std::vector<float> small(25'000, 1.0F);
  std::vector<float> large(1'000'000, 1.0F);
  most_under_way = 0;
  spar::allreduce(net, small, spar::ring{});
  const int of_small = most_under_way;
  spar::allreduce(net, large, spar::ring{});
  EXPECT_LE(most_under_way, 2 * 32 + 2) << "expected at most one send and one receive, with their envelopes";
  if (net.size() > 1) {
    EXPECT_GT(of_small, 2) << "expected several segments in flight";
  }
}

TEST(mpi_segments_under_way, allocate_nothing) {
  spar::mpi net{MPI_COMM_WORLD, {.segment_bytes = 100}};
  std::vector<float> x(100'000, 1.0F);
  spar::allreduce(net, x, spar::rabenseifner{});
  sent.reserve(1 << 20);
  const std::uint64_t before = global_allocations();
  for (int round = 0; round < 3; ++round) spar::allreduce(net, x, spar::rabenseifner{});
  const std::uint64_t after = global_allocations();
  spar::barrier(net); // a rank that leaves sends a message, for which the others may allocate memory
  EXPECT_EQ(after, before);
}

/// Rank 0 sends rank 1 several messages before it waits for any of them.
struct all_at_once : spar::algorithm_defaults {
  static constexpr std::string_view name = "all_at_once";
  static constexpr std::size_t messages = 5;

  template <spar::transport Net, spar::element T, spar::reduction<T> Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<T> x, Op) const& {
    const std::size_t each = x.size() / messages;
    if (net.rank() == 0) {
      using operation = decltype(net.send(1, spar::view_message<T>(x)));
      std::vector<operation> sending;
      for (std::size_t m = 0; m < messages; ++m) {
        sending.push_back(
            net.send(1, spar::view_message<T>(x.subspan(m * each, m == 2 ? 3 : each)))); // one message is short
      }
      for (auto& one : sending) co_await one;
    } else if (net.rank() == 1) {
      for (std::size_t m = 0; m < messages; ++m) {
        spar::message_buffer in(net.memory());
        in.place(0, x.subspan(m * each, m == 2 ? 3 : each));
        co_await net.receive(0, in);
      }
    }
  }
};

TEST(mpi_segments_under_way, do_not_mix_with_the_next_message) {
  spar::mpi net{MPI_COMM_WORLD, {.segment_bytes = 1000}};
  if (net.size() < 2) return;
  std::vector<std::int32_t> x(all_at_once::messages * 50'000, 0);
  if (net.rank() == 0) std::iota(x.begin(), x.end(), 0);
  spar::allreduce(net, x, all_at_once{});
  if (net.rank() != 1) return;
  for (std::size_t m = 0; m < all_at_once::messages; ++m) {
    for (std::size_t i = m * 50'000; i < m * 50'000 + (m == 2 ? 3 : 50'000); ++i) {
      ASSERT_EQ(x[i], static_cast<std::int32_t>(i));
    }
  }
}

} // namespace
} // namespace spar_test
