// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on device memory through the host, on a double of the CUDA runtime.
#include "on_ranks.hpp"
#include "refusals.hpp"
#include "runtime_double.hpp"

#include <spar/cuda.hpp>
#if SPAR_ALL_CASES
#include <spar/sim.hpp>
#endif
#include <spar/storage/coded.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;

// Collectives on a communicator reject such values: see compile_failure/device_memory.cpp.
static_assert(spar::detail::in_device_memory<spar::device_span<float>&>);

std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(n));
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

/// Calls an algorithm on the host and on device memory, several times, and compares the bits.
template <class Algorithm>
void compare(spar::rank_t ranks, std::size_t n, const Algorithm& algorithm) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n << " values");
  const auto expected = on_ranks(ranks, [&](spar::threads& net) {
    auto x = values_of(net.rank(), n);
    for (int call = 0; call < 3; ++call) spar::allreduce(net, std::span(x), algorithm);
    return x;
  });
  const auto got = on_ranks(ranks, [&](spar::threads& net) {
    const stream work;
    const device_array<float> x(std::vector<float>(n, -1));
    spar::staged gpu(net);
    x.write(work, values_of(net.rank(), n)); // the collective must wait for it
    for (int call = 0; call < 3; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess); // a check of a kernel launch must not find errors of spar's polling
    return x.read(work);                        // not before the last copy
  });
  EXPECT_EQ(got, expected);
}

TEST(staged, has_the_bits_of_the_host) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    cuda_double::reset(seed);
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      compare(ranks, 1000, spar::sparcml{});
      compare(ranks, 1000, spar::ring{});
      const spar::selector::exact_topk largest{.k = 30};
      compare(ranks, 1000, spar::compose(largest, spar::recursive_doubling{}));
      compare(ranks, 1000, spar::compose(largest, spar::storage::coded<>{}, spar::recursive_doubling{}));
      compare(ranks, 1000, spar::compose(largest, spar::storage::coded<7>{.fast = true}, spar::ssar_split{}));
      compare(ranks, 0, spar::ring{});
      compare(ranks, 1, spar::recursive_doubling{});
    }
  }
}

TEST(staged, runs_any_collective) {
  const std::size_t n = 2000;
  const auto run = [&](bool on_device) {
    return on_ranks(3, [&](spar::threads& net) {
      spar::staged gpu(net);
      spar::ok_topk<float> reduce(spar::ok_topk_allreduce<>{.select = {.k = 40}});
      auto x = values_of(net.rank(), n);
      const device_array<float> on_gpu(x);
      for (int step = 0; step < 4; ++step) {
        if (on_device)
          gpu.on_host(spar::device_span(on_gpu.data(), n), [&](std::span<float> host) { reduce(net, host); });
        else
          reduce(net, std::span(x));
      }
      return on_device ? on_gpu.read(nullptr) : x;
    });
  };
  EXPECT_EQ(run(true), run(false));
}

/// Every rank gets the sums of all rounds, in which each call of each rank is once.
TEST(staged, runs_partial_collectives) {
  constexpr std::size_t n = 300;
  constexpr int calls = 6;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    cuda_double::reset(seed);
    const auto sums = on_ranks(3, [&](spar::threads& net) {
      std::mt19937_64 late(seed * 10 + static_cast<std::uint64_t>(net.rank()));
      const stream work;
      const device_array<float> x(std::vector<float>(n, -1));
      const spar::device_span gradient(x.data(), n, work);
      spar::staged gpu(net);
      auto reduce = spar::partial_allreduce<float>(net, n, spar::solo{}, spar::ring{});
      std::vector<float> all(n);
      const auto add = [&] {
        const auto sum = x.read(work);
        std::transform(all.begin(), all.end(), sum.begin(), all.begin(), std::plus<>());
      };
      for (int call = 0; call < calls; ++call) {
        for (std::uint64_t turns = late() % 3 == 0 ? 200 : 0; turns > 0; --turns) std::this_thread::yield();
        x.write(work, std::vector<float>(n, static_cast<float>(1 + net.rank())));
        gpu.on_host(gradient, [&](std::span<float> values) { reduce(values); });
        add();
      }
      gpu.on_host(gradient, [&](std::span<float> values) { reduce.drain(values); });
      add();
      return all;
    });
    for (const auto& sum : sums) EXPECT_EQ(sum, std::vector<float>(n, calls * (1 + 2 + 3)));
  }
}

/// The result of the first call is still on its way to the device when the second call, in another stream, takes a
/// buffer.
TEST(staged, keeps_the_result_of_a_call_in_another_stream) {
  cuda_double::reset(1);
  const auto got = on_ranks(1, [](spar::threads& net) {
    const stream first, second;
    const device_array<float> x({1, 2}), y({3, 4});
    spar::staged gpu(net);
    gpu.on_host(spar::device_span(x.data(), 2, first), [&](std::span<float> values) {
      values[0] = 5;
      cuda_double::stall(first);
    });
    gpu.on_host(spar::device_span(y.data(), 2, second), [](std::span<float> values) { values[1] = 6; });
    EXPECT_EQ(y.read(second), (std::vector<float>{3, 6}));
    return x.read(first);
  });
  EXPECT_EQ(got[0], (std::vector<float>{5, 2}));
}

TEST(staged, ignores_what_a_function_returns) {
  const auto got = on_ranks(1, [](spar::threads& net) {
    const device_array<float> x({1, 2});
    spar::staged gpu(net);
    std::size_t seen = 0;
    for (const std::uint64_t n : {2U, 0U}) {
      gpu.on_host(spar::device_span(x.data(), n), [&](std::span<float> host) { return seen += 10 + host.size(); });
    }
    return seen;
  });
  EXPECT_EQ(got[0], 22U);
}

TEST(staged, lets_ranks_without_a_gpu_take_part) {
  const auto got = on_ranks(3, [&](spar::threads& net) {
    auto x = values_of(net.rank(), 100);
    if (net.rank() == 1) {
      spar::allreduce(net, std::span(x), spar::ring{});
      return x;
    }
    const device_array<float> on_gpu(x);
    spar::staged gpu(net);
    spar::allreduce(gpu, spar::device_span(on_gpu.data(), 100), spar::ring{});
    return on_gpu.read(nullptr);
  });
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[1], got[2]);
}

#if SPAR_ALL_CASES
/// One thread runs all simulated ranks, so that a call that blocks could not end.
TEST(staged, is_refused_by_the_simulator) {
  spar::simulator engine(2);
  std::string error;
  try {
    engine.run([](spar::sim& net) -> spar::task<void> {
      const device_array<float> x({1, 2});
      spar::staged gpu(net);
      spar::allreduce(gpu, spar::device_span(x.data(), 2), spar::ring{});
      co_return;
    });
  } catch (const spar::error& e) {
    error = e.what();
  }
  EXPECT_NE(error.find(" blocks inside a simulated program"), std::string::npos) << error;
}
#endif

TEST(staged, uses_a_pinned_buffer_again_after_its_copy) {
  cuda_double::reset(1);
  spar::detail::pinned_memory memory;
  const stream work;
  void* first = nullptr;
  {
    auto a = memory.take(100);
    first = a.data();
    EXPECT_NE(memory.take(50).data(), first); // lent
    cuda_double::hold(true);
    a.used_by(work);
  }
  {
    auto a = memory.take(80);
    EXPECT_NE(a.data(), first); // still in use; and the other one has no room
    EXPECT_EQ(memory.count(), 3U);
  }
  cuda_double::hold(false);
  cuda_double::finish(work);
  EXPECT_EQ(memory.take(90).data(), first);
  EXPECT_EQ(memory.count(), 3U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 230U);
}

TEST(staged, frees_pinned_memory) { EXPECT_EQ(cuda_double::pinned_bytes(), 0U); }

TEST(staged, leaves_the_device_unchanged_if_the_call_throws) {
  const auto got = on_ranks(1, [&](spar::threads& net) {
    const std::vector<float> x{1, 2, 3};
    const device_array<float> on_gpu(x);
    spar::staged gpu(net);
    EXPECT_THROW(gpu.on_host(spar::device_span(on_gpu.data(), 3),
                             [](std::span<float> host) {
                               host[0] = 7;
                               throw std::runtime_error("no");
                             }),
                 std::runtime_error);
    return on_gpu.read(nullptr);
  });
  EXPECT_EQ(got[0], (std::vector<float>{1, 2, 3}));
}

TEST(staged, refuses_memory_of_the_host_and_other_devices) {
  on_ranks(3, [](spar::threads& net) {
    spar::staged gpu(net);
    spar_test::refuses_other_devices(3, "spar::staged",
                                     [&](spar::device_span<float> x) { spar::allreduce(gpu, x, spar::ring{}); });
    EXPECT_FALSE(net.dead());
    return 0;
  });
}

/// The calls themselves are on the host, but the program uses CUDA.
TEST(staged, lets_calls_on_the_host_refuse_device_memory) {
  on_ranks(3, [](spar::threads& net) {
    const spar::staged gpu(net);
    spar::ok_topk<float> reduce(spar::ok_topk_allreduce<>{.select = {.k = 40}});
    auto solo = spar::partial_allreduce<float>(net, 3000, spar::solo{}, spar::ring{});
    spar_test::refuses_device_memory(net, reduce, solo);
#if SPAR_ALL_CASES
    const device_array<float> on_gpu({1, 2});
    const std::span<float> there(on_gpu.data(), 2);
    std::vector<float> x{1, 2};
    const std::string expected = std::string("the 2 values of span 1") + spar_test::on_device_0;
    const std::size_t sizes[] = {2, 2};
    spar::fused_allreduce<spar::threads, float> fused(net, sizes);
    EXPECT_EQ(spar_test::refusal_of([&] { fused.ready(0, there); }), expected);
    EXPECT_EQ(spar_test::refusal_of([&] { spar::sgd_step(net, there, x, 1.0F, reduce); }), expected);
    EXPECT_EQ(spar_test::refusal_of([&] { spar::sgd_step(net, there, x, 1.0F, spar::ring{}); }), expected);
    EXPECT_EQ(x, (std::vector<float>{1, 2}));
#endif
    return 0;
  });
}

TEST(staged, refuses_a_plan_for_other_ranks) {
  const spar::tree_plans plans(spar::tree::flat(4));
  on_ranks(3, [&](spar::threads& net) {
    const device_array<float> x({1, 2});
    spar::staged gpu(net);
    EXPECT_EQ(
        spar_test::refusal_of([&] { spar::allreduce(gpu, spar::device_span(x.data(), 2), spar::flexreduce(plans)); }),
        "a plan is for 4 ranks, but the number of ranks is 3");
    EXPECT_EQ(x.read(nullptr), (std::vector<float>{1, 2}));
    spar::allreduce(gpu, spar::device_span(x.data(), 2), spar::ring{});
    EXPECT_EQ(x.read(nullptr), (std::vector<float>{3, 6}));
    return 0;
  });
}

/// Each call of the runtime fails once, on one rank; no rank hangs.
TEST(staged, ends_on_every_rank_if_cuda_fails_on_one) {
  std::uint64_t failed = 0;
  for (std::uint64_t call = 1;; ++call) {
    cuda_double::reset(call);
    std::atomic<bool> reached = false;
    const auto errors = on_ranks(3, [&](spar::threads& net) -> std::string {
      net.set_deadline(20);
      const device_array<float> x(values_of(net.rank(), 500));
      spar::staged gpu(net);
      const std::uint64_t before = cuda_double::calls();
      if (net.rank() == 1) cuda_double::fail_at(call);
      std::string error;
      try {
        for (int round = 0; round < 2; ++round) spar::allreduce(gpu, spar::device_span(x.data(), 500), spar::ring{});
      } catch (const spar::cuda_error& e) {
        error = e.what();
      } catch (const spar::peer_failed& e) {
        error = std::string("peer: ") + e.what();
      }
      if (net.rank() == 1 && cuda_double::calls() - before >= call) {
        reached = true;
        if (error.empty()) error = "no error after " + cuda_double::failed_call();
      }
      return error;
    });
    if (!reached) break;
    ++failed;
    // The collective need not know where its values are.
    if (errors[1] == "no error after cudaPointerGetAttributes") continue;
    EXPECT_NE(errors[1].find("failed: cudaErrorUnknown, a planned error"), std::string::npos)
        << "call " << call << ": " << errors[1];
    // The last copy back may fail after the others have what they need.
    for (const std::size_t other : {0U, 2U}) {
      if (errors[other].empty()) continue;
      EXPECT_NE(errors[other].find("failed: cudaErrorUnknown, a planned error"), std::string::npos) << errors[other];
    }
  }
  EXPECT_GE(failed, 10U);
}

TEST(runtime_double, does_not_let_the_processor_read_device_memory) {
  const device_array<float> x({1, 2, 3});
  EXPECT_DEATH(
      {
        volatile const float* p = x.data();
        [[maybe_unused]] const float read = *p;
      },
      "");
}

} // namespace
