// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of host memory of a rank fails, whichever it is, with values in device memory and over NCCL: the rank
// gets std::bad_alloc, the other ranks get this reason, and nothing leaks.
#include "places.hpp" // the first header that includes kernels

#include "support/memory_programs.hpp"
#include "support/watchdog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::rank_t, spar::threads;

/// A dense and a sparse call on values in device memory.
template <class Net>
struct device_calls {
  explicit device_calls(Net& net) : gpu(net) { wait_for_all(net.size()); }
  const cuda_double::stream work;
  const cuda_double::device_array<float> x{ones(1000)}, y{ones(1000)};
  spar::on_device<Net> gpu;

  void operator()() {
    spar::allreduce(gpu, spar::device_span(x.data(), x.size(), work), spar::ring{});
    const auto entries = spar::compose(spar::selector::exact_topk{.k = 100}, spar::recursive_doubling{});
    spar::allreduce(gpu, spar::device_span(y.data(), y.size(), work), entries);
  }
  void check(float ranks) const {
    const auto dense = x.read(work), sparse = y.read(work);
    EXPECT_EQ(std::count(dense.begin(), dense.end(), ranks), 1000);
    EXPECT_EQ(std::count(sparse.begin(), sparse.end(), ranks), 100);
    EXPECT_EQ(std::count(sparse.begin(), sparse.end(), 0.0F), 900);
  }
};

/// A call whose values travel to the host and back.
template <class Net>
struct staged_calls {
  explicit staged_calls(Net& net) : gpu(net) { wait_for_all(net.size()); }
  const cuda_double::stream work;
  const cuda_double::device_array<float> x{ones(1000)};
  spar::staged<Net> gpu;

  void operator()() { spar::allreduce(gpu, spar::device_span(x.data(), x.size(), work), spar::ring{}); }
  void check(float ranks) const {
    const auto sum = x.read(work);
    EXPECT_EQ(std::count(sum.begin(), sum.end(), ranks), 1000);
  }
};

/// The construction of a rank, whose messages travel through the host or by NCCL.
template <class Net>
struct construction_through_the_host {
  explicit construction_through_the_host(Net& its) : net(its) {}
  Net& net;

  void operator()() const { const spar::on_device gpu(net); }
  static void check(float) {}
};
template <class Net>
struct construction_by_nccl {
  explicit construction_by_nccl(Net& its) : control(its) {}
  Net& control;

  void operator()() const {
    spar::nccl net(control);
    const spar::on_device gpu(net);
  }
  static void check(float) {}
};

/// Calls `run(control, number)` on each of 3 ranks, where the allocation `number` of one rank fails, for each number.
template <class Run>
void each_allocation_fails(Run run, bool peers_reach_each_other = false) {
  watchdog guard(60);
  on_host::put = cuda_double::put;
  cuda_double::let_peers_reach_each_other(peers_reach_each_other);
  for (const rank_t failing : {0, 2}) {
    bool failed = true;
    std::uint64_t number = 0;
    while (failed) {
      const std::string which = "allocation " + std::to_string(++number) + " of rank " + std::to_string(failing);
      guard.watch(which);
      SCOPED_TRACE(which);
      cuda_double::reset(number);
      nccl_double::reset(number);
      spar::thread_group group(3);
      std::vector<memory_outcome> ended(3);
      group.run([&](threads& control) {
        cuda_double::set_device(control.rank());
        ended[static_cast<std::size_t>(control.rank())] = run(control, control.rank() == failing ? number : 0);
      });
      const memory_outcome& first = ended[static_cast<std::size_t>(failing)];
      failed = first.failed;
      for (rank_t r = 0; r < 3; ++r) {
        expect_right_end(ended[static_cast<std::size_t>(r)], r, failing, first.dead);
        EXPECT_EQ(group.rank(r).memory().live(), 0U);
      }
      EXPECT_EQ(nccl_double::communicators(), 0U);
      EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
      EXPECT_EQ(cuda_double::device_allocations(), 0U);
      if (testing::Test::HasFailure()) break;
    }
    EXPECT_GT(number, 5U);
  }
  on_host::put = nullptr;
}

/// As `run_without_memory`, over NCCL.
template <template <class> class Program>
memory_outcome run_by_nccl(threads& control, std::uint64_t number) {
  spar::nccl net(control, {.eager_bytes = 0});
  wait_for_all(net.size());
  return run_without_memory<Program>(net, number);
}

TEST(no_memory, in_construction) {
  each_allocation_fails(&run_without_memory<construction_through_the_host, threads>);
  each_allocation_fails(&run_without_memory<construction_by_nccl, threads>);
}
TEST(no_memory, in_calls_that_lend) { each_allocation_fails(&run_without_memory<device_calls, threads>, true); }
TEST(no_memory, in_calls_through_the_host) { each_allocation_fails(&run_without_memory<device_calls, threads>); }
TEST(no_memory, in_calls_by_nccl) { each_allocation_fails(&run_by_nccl<device_calls>); }
TEST(no_memory, in_calls_on_values_on_the_host_by_nccl) { each_allocation_fails(&run_by_nccl<nonblocking_calls>); }
TEST(no_memory, in_staged_calls) {
  each_allocation_fails(&run_without_memory<staged_calls, threads>);
  each_allocation_fails(&run_by_nccl<staged_calls>);
}

} // namespace
} // namespace spar_test
