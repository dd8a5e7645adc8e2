// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory over an MPI library that takes pointers to device memory, on doubles: see mpi_double.cpp.
#include "mpi_double.hpp"
#include "runtime_double.hpp"

#include "on_host.hpp"

#include <spar/mpi.hpp>
#include <spar/on_device.cuh>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;

std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank)) % 1000) / 7;
  return x;
}

/// Compares two calls in device memory with two calls on the host.
template <class Algorithm>
void compare(spar::mpi& net, std::size_t n, const Algorithm& algorithm) {
  SCOPED_TRACE(testing::Message() << n << " values");
  std::vector<float> expected = values_of(net.rank(), n);
  for (int call = 0; call < 2; ++call) spar::allreduce(net, std::span(expected), algorithm);
  const stream work;
  const device_array<float> x(std::vector<float>(n, 1));
  spar::on_device gpu(net);
  EXPECT_FALSE(gpu.lends());
  x.write(work, values_of(net.rank(), n));
  for (int call = 0; call < 2; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm);
  EXPECT_EQ(x.read(work), expected);
}

/// Makes calls with small messages, which are part of an envelope, and with large ones, which travel in segments.
void run(bool takes_device_memory, bool checksums, bool allowed = true) {
  on_host::put = cuda_double::put;
  mpi_double::takes_device_memory = takes_device_memory;
  spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 6000, .device_memory = allowed});
  net.set_checksums(checksums);
  const bool in_place = takes_device_memory && allowed && !checksums && net.size() > 1;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    cuda_double::reset(seed);
    mpi_double::sent = mpi_double::received = 0;
    compare(net, 100, spar::ring{});
    compare(net, 500, spar::recursive_doubling{});
    EXPECT_EQ(mpi_double::sent + mpi_double::received, 0);
    compare(net, 4000, spar::ring{});
    // Two calls of 2 (P - 1) messages, each of 16000 / P bytes in segments of 6000.
    const int segments = net.size() == 1 ? 0 : (16000 / net.size() + 5999) / 6000;
    EXPECT_EQ(mpi_double::sent, in_place ? 2 * 2 * (net.size() - 1) * segments : 0);
    EXPECT_EQ(mpi_double::received, mpi_double::sent);
    compare(net, 6001, spar::recursive_doubling{});
    compare(net, 6001, spar::compose(spar::storage::bfloat16{}, spar::ring{.piece = 3000}));
    mpi_double::sent = 0;
    const spar::selector::exact_topk select{.k = 3000};
    compare(net, 5000, spar::compose(select, spar::recursive_doubling{}));
    EXPECT_EQ(mpi_double::sent > 0, in_place); // pieces of 3000 indices and 3000 values
    compare(net, 5000, spar::compose(select, spar::balanced_owners{}));
  }
  on_host::put = nullptr;
}

/// Each rank decides for its own memory, also for parts of the communicator.
TEST(on_device_mpi, lets_ranks_differ) {
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  mpi_double::takes_device_memory = true;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  spar::mpi world(MPI_COMM_WORLD, {.segment_bytes = 1 << 20, .device_memory = rank % 2 == 0});
  spar::mpi net = world.split(0, rank);
  mpi_double::sent = mpi_double::received = 0;
  compare(net, 2000 * static_cast<std::size_t>(net.size()), spar::ring{});
  const int messages = rank % 2 == 0 ? 2 * 2 * (net.size() - 1) : 0; // two calls
  EXPECT_EQ(mpi_double::sent, messages);
  EXPECT_EQ(mpi_double::received, messages);
  on_host::put = nullptr;
}

/// A decorator that only observes leaves large messages in device memory, one that reads payloads does not.
TEST(on_device_mpi, sends_from_device_memory_below_counting_and_tracing) {
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  mpi_double::takes_device_memory = true;
  spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 1 << 20});
  const std::size_t n = 2000 * static_cast<std::size_t>(net.size());
  const auto messages = static_cast<std::uint64_t>(2 * (net.size() - 1));
  const auto call = [&](auto& decorated) {
    const stream work;
    const device_array<float> x(values_of(net.rank(), n));
    spar::on_device gpu(decorated);
    mpi_double::sent = mpi_double::received = 0;
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    return x.read(work);
  };
  spar::counting counted(net);
  spar::tracing traced(counted);
  const auto got = call(traced);
  EXPECT_EQ(counted.sent(), (spar::counted_traffic{.messages = messages, .bytes = messages * 8000}));
  EXPECT_EQ(counted.received(), counted.sent());
  EXPECT_EQ(mpi_double::sent, static_cast<int>(messages));
  EXPECT_EQ(mpi_double::received, static_cast<int>(messages));
  spar::faulty reads_payloads(net, {});
  EXPECT_EQ(call(reads_payloads), got);
  EXPECT_EQ(mpi_double::sent + mpi_double::received, 0);
  on_host::put = nullptr;
}

TEST(on_device_mpi, sends_large_messages_from_device_memory) { run(true, false); }
TEST(on_device_mpi, copies_messages_to_the_host_if_mpi_cannot_take_them) { run(false, false); }
TEST(on_device_mpi, copies_messages_to_the_host_if_the_program_says_so) { run(true, false, false); }
TEST(on_device_mpi, copies_messages_to_the_host_for_their_checksums) { run(true, true); }

} // namespace
