// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the execution of kernels on the host finds: threads that miss a barrier, and results that depend on the order.
#include "on_host.hpp"

#include <spar/cuda/kernel/block.cuh>

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr unsigned threads = 64;

void reverse(const int* in, int* out) {
  auto& shared = spar::detail::block_memory<int[threads]>();
  const unsigned t = threadIdx.x;
  shared[t] = in[blockIdx.x * threads + t];
  __syncthreads();
  out[blockIdx.x * threads + t] = shared[threads - 1 - t];
}

void reverse_without_barrier(const int* in, int* out) {
  auto& shared = spar::detail::block_memory<int[threads]>();
  const unsigned t = threadIdx.x;
  shared[t] = in[blockIdx.x * threads + t];
  out[blockIdx.x * threads + t] = shared[threads - 1 - t];
}

void leave_before_the_barrier(int) {
  if (threadIdx.x == 5) return;
  __syncthreads();
}

void wait_for_ever(int) {
  while (threadIdx.x == 0 && blockIdx.x == 0) spar::detail::spin();
  __syncthreads();
}

void read_beyond_local_memory(const int* index, int* out) {
  int local[4] = {};
  const int* const begin = local;
  __syncthreads();
  out[threadIdx.x] = begin[*index];
}

void sums(std::uint64_t* out) {
  auto& shared = spar::detail::block_memory<spar::detail::block_sum<threads>>();
  std::uint32_t total = 0;
  const unsigned t = threadIdx.x;
  const std::uint32_t before = shared.exclusive(3 * t + 1, total);
  out[t] = before * 1'000'000ULL + total;
  if (t < spar::detail::warp_size) out[threads + t] = spar::detail::warp_sum<std::uint64_t>(1ULL << 40 | t);
}

void order(std::vector<unsigned>* all) { all->push_back(blockIdx.x * threads + threadIdx.x); }

TEST(on_host, runs_blocks_with_their_own_memory) {
  std::vector<int> in(5 * threads), out(in.size()), expected(in.size());
  std::iota(in.begin(), in.end(), 0);
  for (unsigned i = 0; i < in.size(); ++i)
    expected[i] = static_cast<int>(i / threads * threads + threads - 1 - i % threads);
  spar::detail::launch(reverse, 5, threads, threads * sizeof(int), nullptr, in.data(), out.data());
  EXPECT_EQ(out, expected);
  spar::detail::launch(reverse_without_barrier, 5, threads, threads * sizeof(int), nullptr, in.data(), out.data());
  EXPECT_NE(out, expected);
}

TEST(on_host, reports_a_barrier_that_a_thread_does_not_reach) {
  try {
    spar::detail::launch(leave_before_the_barrier, 1, threads, 0, nullptr, 0);
    FAIL() << "no error";
  } catch (const on_host::kernel_error& error) {
    EXPECT_NE(std::string(error.what()).find("block 0 has 63 threads at a barrier, 0 in a warp operation, 1 that have"),
              std::string::npos)
        << error.what();
  }
}

TEST(on_host, reports_a_loop_without_end) {
  on_host::machine::most_switches = 10'000;
  EXPECT_THROW(spar::detail::launch(wait_for_ever, 1, threads, 0, nullptr, 0), on_host::kernel_error);
}

#ifdef SPAR_SANITIZES_ADDRESSES
TEST(on_host, does_not_hide_a_wrong_access_after_a_barrier_from_the_sanitizer) {
  std::vector<int> out(threads);
  const auto read = [&](int index) {
    for (int launch = 0; launch < 2; ++launch) // the second one has the stacks of the first one
      spar::detail::launch(read_beyond_local_memory, 5, threads, 0, nullptr, &index, out.data());
  };
  read(3);
  EXPECT_DEATH(read(4), "stack-buffer-overflow");
}
#endif

TEST(on_host, computes_the_sums_of_blocks_and_warps) {
  std::vector<std::uint64_t> out(threads + spar::detail::warp_size);
  spar::detail::launch(sums, 1, threads, sizeof(spar::detail::block_sum<threads>), nullptr, out.data());
  for (std::uint64_t t = 0; t < threads; ++t)
    EXPECT_EQ(out[t], (3 * t * (t - 1) / 2 + t) * 1'000'000 + 3 * threads * (threads - 1) / 2 + threads);
  for (unsigned lane = 0; lane < spar::detail::warp_size; ++lane)
    EXPECT_EQ(out[threads + lane], (1ULL << 45) + 31 * 32 / 2);
}

TEST(on_host, has_another_order_of_threads_for_each_seed) {
  std::set<std::vector<unsigned>> orders;
  for (on_host::machine::seed = 1; on_host::machine::seed <= 10; ++on_host::machine::seed) {
    std::vector<unsigned> all;
    spar::detail::launch(order, 2, threads, 0, nullptr, &all);
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), 2 * threads);
    orders.insert(all);
  }
  EXPECT_EQ(orders.size(), 10U);
}

} // namespace
