// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory over NCCL and MPI, on a double of NCCL: see nccl_mpi_double.cpp.
#include "on_processes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using cuda_double::device_array, cuda_double::stream;

const auto entries = spar::compose(spar::selector::exact_topk{.k = 1200}, spar::recursive_doubling{});

/// Calls on host memory and on device memory, of which all are in flight, and which ranks end in different orders.
TEST(nccl_over_mpi, has_the_bits_of_mpi) {
  on_host::put = cuda_double::put;
  spar::mpi control(meeting());
  constexpr std::size_t n = 3000;
  const auto by = spar::compose(spar::selector::exact_topk{.k = 400}, spar::split_allgather{});
  std::vector<float> dense = values_of(control.rank(), n), sparse = dense;
  spar::allreduce(control, std::span(dense), spar::ring{});
  spar::allreduce(control, std::span(sparse), by);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    cuda_double::reset(seed);
    spar::nccl net(control, {.eager_bytes = seed % 3 * 1000});
    spar::on_device gpu(net);
    using device_handle = spar::pending_on_device<decltype(gpu)::port_type>;
    std::vector<float> z = values_of(net.rank(), n);
    const stream work;
    const device_array<float> x(z), y(z);
    {
      auto first = spar::start_allreduce(net, std::span(z), spar::ring{});
      std::list<device_handle> others;
      others.push_back(spar::start_allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{}));
      others.push_back(spar::start_allreduce(gpu, spar::device_span(y.data(), n, work), by));
      if (net.rank() % 2 == 0) first.wait();
      if (net.rank() % 3 == 0) others.reverse();
      for (device_handle& call : others) call.wait();
      first.wait();
    }
    EXPECT_EQ(z, dense);
    EXPECT_EQ(x.read(work), dense);
    EXPECT_EQ(y.read(work), sparse);
  }
  on_host::put = nullptr;
}

struct library_nccl {
  static void reset(std::uint64_t seed) { nccl_double::reset(seed); }
  static void end_run() { nccl_double::receive_what_is_left(); } // also waits for all ranks
};

TEST(nccl_over_mpi, fails_on_all_ranks_if_it_fails_on_one) {
  on_host::put = cuda_double::put;
  const auto calls = [](spar::mpi& control, auto x, auto done) {
    spar::nccl net(control, {.eager_bytes = 1000});
    make_calls(net, x, done);
  };
  using nccl_double::of_this_thread;
  const int least = number_of_processes() > 1 ? 15 : 2;
  EXPECT_GE(
      fail_everywhere<library_nccl>(
          " failed: a planned error of NCCL", &nccl_double::fail_at, +[] { return of_this_thread().calls; }, calls),
      least);
  EXPECT_GE(fail_everywhere<library_nccl>(
                " failed: a planned error of a transfer", &nccl_double::fail_later_at,
                +[] { return of_this_thread().polls; }, calls),
            least);
  EXPECT_GE(fail_everywhere<library_nccl>(by_cuda, &cuda_double::fail_at, &cuda_double::calls, calls), least);
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(of_this_thread().aborts + of_this_thread().destroys, of_this_thread().joins);
  on_host::put = nullptr;
}

/// Transfers that NCCL damages or loses.
template <class Algorithm>
void expect_right_end_over_nccl(const Algorithm& by, accident what, bool checksums) {
  const auto run = [&](accident happens, std::uint64_t transfer) {
    cuda_double::reset(transfer);
    nccl_double::reset(transfer);
    two_ends ends;
    spar::mpi control(meeting());
    {
      spar::nccl net(control, {.eager_bytes = 0});
      net.set_deadline(happens == accident::lost ? 0.3 : 20);
      net.set_checksums(checksums);
      const auto happen = [&] {
        if (happens == accident::lost)
          nccl_double::lose(transfer);
        else if (happens != accident::none)
          nccl_double::damage(transfer, damaged_byte(happens));
      };
      ends = make_two_calls(net, 12'000, by, happen, [] { return nccl_double::of_this_thread().receives; });
    }
    nccl_double::receive_what_is_left(); // also a barrier, messages to a failed rank stay in memory until it destroys
                                         // the communicator
    return ends;
  };
  expect_right_end(what, checksums, run, [&](std::uint64_t) { return what; });
  EXPECT_EQ(nccl_double::communicators(), 0U);
}

TEST(device_accidents_over_nccl_and_mpi, end_as_among_threads) {
  if (number_of_processes() < 2) return;
  expect_right_end_over_nccl(entries, accident::entry, false);
  expect_right_end_over_nccl(spar::ring{}, accident::value, false);
  expect_right_end_over_nccl(spar::ring{}, accident::value, true);
  expect_right_end_over_nccl(spar::ring{}, accident::lost, false);
  expect_right_end_over_nccl(entries, accident::lost, true);
  constexpr spar::storage::coded<> coded{.fast = true};
  expect_right_end_over_nccl(spar::compose(spar::selector::exact_topk{.k = 3000}, coded, spar::recursive_doubling{}),
                             accident::code, false);
}

} // namespace
} // namespace spar_test
