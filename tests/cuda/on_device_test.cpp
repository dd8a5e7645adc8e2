// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory against the same on the host: kernels run by fibres, in the streams of a double of the
// CUDA runtime.
#include "on_ranks.hpp"
#include "refusals.hpp"
#include "runtime_double.hpp"

#include "on_host.hpp"
#include "support/extent.hpp"

#include <spar/on_device.cuh>
#include <spar/runtime/progress_thread.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>
#include <spar/tree.hpp>

#include <spar/cuda/values/zfp.cuh>

#include <gtest/gtest.h>

#include <cuda_fp16.h> // names of types, such as half, which warnings compare with spar's own

#include <barrier>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using spar::compose, spar::storage::as_bfloat16, spar::storage::as_half;

static_assert(!spar::communicates<spar::on_device<spar::threads>>); // no collective of the host takes it by mistake

class on_device : public testing::Test {
 protected:
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::let_peers_reach_each_other(true);
  }
  void TearDown() override { on_host::put = nullptr; }
};

template <class T>
std::vector<T> values_of(spar::rank_t rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(n));
  std::normal_distribution<double> normal(0, 100);
  std::vector<T> x(n);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

/// A collective in host memory: all ranks have ended their calls before it.
void meet(spar::threads& net) {
  float one = 1;
  spar::allreduce(net, std::span(&one, 1), spar::ring{});
}

/// What the ranks get from `calls` allreduces of n values each: on the host, and in device memory.
template <class T, class Algorithm, class Op>
auto on_the_host(spar::rank_t ranks, std::size_t n, const Algorithm& algorithm, Op op, int calls) {
  return on_ranks(ranks, [&](spar::threads& net) {
    const spar::on_device same_numbers_of_calls(net); // from which QSGD draws its random numbers
    auto x = values_of<T>(net.rank(), n);
    for (int call = 0; call < calls; ++call) spar::allreduce(net, std::span(x), algorithm, op);
    return x;
  });
}
template <class T, class Net, class Algorithm, class Op>
std::vector<T> on_a_device(Net& net, std::size_t n, const Algorithm& algorithm, Op op, int calls, bool lends) {
  const stream work;
  const device_array<T> x(std::vector<T>(n, T(1)));
  spar::on_device gpu(net);
  EXPECT_EQ(gpu.lends(), lends);
  x.write(work, values_of<T>(net.rank(), n)); // the collective must wait for it
  for (int call = 0; call < calls; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm, op);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return x.read(work);
}

template <class T, class Algorithm, class Op = spar::sum>
void compare(spar::rank_t ranks, std::size_t n, const Algorithm& algorithm, Op op = {}) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n << " values");
  const int calls = 2;
  const auto expected = on_the_host<T>(ranks, n, algorithm, op, calls);
  const auto lent =
      on_ranks(ranks, [&](spar::threads& net) { return on_a_device<T>(net, n, algorithm, op, calls, true); });
  EXPECT_TRUE(lent == expected);
  const auto between = on_ranks(ranks, [&](spar::threads& net) { // each rank has a device
    cuda_double::set_device(net.rank());
    cuda_double::let_peers_reach_each_other(true);
    return on_a_device<T>(net, n, algorithm, op, calls, true);
  });
  EXPECT_TRUE(between == expected);
  cuda_double::let_peers_reach_each_other(false);
  const auto moved = on_ranks(ranks, [&](spar::threads& net) { // each rank has a device that reaches no other
    cuda_double::set_device(net.rank());
    return on_a_device<T>(net, n, algorithm, op, calls, ranks == 1);
  });
  EXPECT_TRUE(moved == expected);
}

/// Runs `program(net)` on 3 ranks, on each of which it must throw. Returns the messages of the exceptions.
template <class Program>
std::vector<std::string> errors_of(Program program) {
  return on_ranks(3, [&](spar::threads& net) -> std::string {
    try {
      program(net);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  });
}

TEST_F(on_device, has_the_bits_of_the_host) {
  const std::uint64_t seeds = spar_test::runs_all_cases() ? 10 : 1;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    cuda_double::reset(seed);
    cuda_double::let_peers_reach_each_other(false);
    for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
      compare<float>(ranks, 700, spar::ring{});
      if (spar_test::runs_case(2, ranks, 1)) {
        compare<float>(ranks, 700, spar::recursive_doubling{});
        compare<double>(ranks, 300, spar::rabenseifner{});
      }
      if (spar_test::runs_case(2, ranks)) {
        compare<std::int32_t>(ranks, 100, spar::ring{}, spar::maximum{});
        compare<float>(ranks, 100, spar::recursive_doubling{}, spar::average{});
      }
      compare<float>(ranks, 700, compose(as_bfloat16{}, spar::ring{.piece = 100}));
      compare<float>(ranks, 700, compose(as_bfloat16{}, spar::two_shot{.piece = 100}));
      if (spar_test::runs_case(2, ranks)) {
        compare<float>(ranks, 300, compose(spar::storage::qsgd<8>{.bucket = 64}, spar::ring{.piece = 50}));
        compare<float>(ranks, 300, compose(as_half{}, spar::recursive_doubling{.piece = 128}));
        compare<float>(ranks, 300, compose(spar::storage::qsgd<8>{.bucket = 64}, spar::one_shot{.piece = 50}));
      }
      compare<float>(ranks, ranks == 3 ? 4000 : 0, spar::ring{}); // large messages, which threads do not copy
      compare<float>(ranks, 1, compose(as_bfloat16{}, spar::recursive_doubling{}));
    }
  }
}

TEST_F(on_device, runs_flexreduce) {
  spar::tree_node root; // two hosts, with 3 and 2 ranks
  spar::rank_t rank = 0;
  for (const int ranks : {3, 2}) {
    spar::tree_node& host = root.children.emplace_back();
    for (int r = 0; r < ranks; ++r) host.children.emplace_back().rank = rank++;
  }
  const spar::tree hosts(root);
  const spar::tree_plans plans(hosts);
  cuda_double::reset(7);
  cuda_double::let_peers_reach_each_other(false);
  compare<float>(5, 500, spar::flexreduce(plans));
  compare<float>(5, 500, spar::flexreduce(plans, as_bfloat16{}));
}

TEST_F(on_device, sends_values_that_a_codec_cannot_encode) {
  const auto run = [&](auto call) {
    return on_ranks(3, [&](spar::threads& net) {
      std::vector<float> x(300, 1);
      x[3] = 1.0F / 3;
      if (net.rank() == 1) x[150] = 70000, x[299] = std::numeric_limits<float>::infinity();
      return call(net, x);
    });
  };
  const auto compare_with_host = [&](auto algorithm) {
    const auto expected = run([&](spar::threads& net, std::vector<float>& x) {
      spar::allreduce(net, std::span(x), algorithm);
      return x;
    });
    EXPECT_EQ(expected[0][150], 70002);
    const auto got = run([&](spar::threads& net, std::vector<float>& x) {
      const device_array<float> on_gpu(x);
      spar::on_device gpu(net);
      spar::allreduce(gpu, spar::device_span(on_gpu.data(), x.size()), algorithm);
      return on_gpu.read(nullptr);
    });
    EXPECT_EQ(got, expected);
  };
  compare_with_host(compose(as_half{}, spar::ring{.piece = 64}));
  compare_with_host(compose(as_half{}, spar::recursive_doubling{.piece = 64}));
}

TEST_F(on_device, encodes_by_zfp) {
  using spar::storage::zfp, spar::storage::unsupported;
  cuda_double::reset(13);
  cuda_double::let_peers_reach_each_other(false);
  for (const std::size_t n : {1U, 302U}) {
    compare<float>(3, n, compose(zfp{.rate = 8}, spar::ring{.piece = 64}));
    compare<double>(3, n, compose(zfp{.rate = 16, .non_finite = unsupported::exact}, spar::recursive_doubling{}));
  }
  const auto call = [](unsupported what) {
    return errors_of([&](spar::threads& net) {
      std::vector<float> values(100, 1);
      if (net.rank() == 1) values[40] = std::numeric_limits<float>::infinity();
      const device_array<float> x(values);
      spar::on_device gpu(net);
      spar::allreduce(gpu, spar::device_span(x.data(), 100), compose(zfp{.non_finite = what}, spar::ring{}));
      EXPECT_EQ(x.read(nullptr)[40], values[40] + (net.rank() == 1 ? 0 : std::numeric_limits<float>::infinity()));
    });
  };
  for (const auto& error : call(unsupported::exact)) EXPECT_EQ(error, "no error");
  EXPECT_TRUE(call(unsupported::rejected)[1].starts_with("zfp cannot encode NaN")) << call(unsupported::rejected)[1];
}

TEST_F(on_device, runs_several_calls_at_once) {
  cuda_double::reset(11);
  const std::size_t n = 300;
  const auto at_once = [&](bool by_device, bool waits) {
    return on_ranks(3, [&](spar::threads& net) {
      spar::on_device gpu(net);
      std::vector<float> first = values_of<float>(net.rank(), n), second = values_of<float>(net.rank() + 10, n);
      const stream one, two;
      const device_array<float> a(first), b(second);
      if (by_device) {
        auto x = spar::start_allreduce(gpu, spar::device_span(a.data(), n, one), spar::ring{});
        {
          auto y = spar::start_allreduce(gpu, spar::device_span(b.data(), n, two), spar::recursive_doubling{});
          if (waits) y.wait();
        } // the destructor waits
        while (!x.done()) continue;
        std::vector<decltype(x)> handles;
        handles.push_back(std::move(x));
        handles.front().wait();
        first = a.read(one), second = b.read(two);
      } else {
        spar::allreduce(net, std::span(first), spar::ring{});
        spar::allreduce(net, std::span(second), spar::recursive_doubling{});
      }
      first.insert(first.end(), second.begin(), second.end());
      return first;
    });
  };
  const auto expected = at_once(false, true);
  EXPECT_EQ(at_once(true, true), expected);
  EXPECT_EQ(at_once(true, false), expected);
}

TEST_F(on_device, lets_ranks_without_a_gpu_take_part_if_no_memory_is_lent) {
  const std::size_t n = 200;
  const auto got = on_ranks(3, [&](spar::threads& net) {
    spar::faulty reads_payloads(net, {});
    if (net.rank() != 1) return on_a_device<float>(reads_payloads, n, spar::ring{}, spar::sum{}, 2, false);
    auto x = values_of<float>(net.rank(), n);
    for (int call = 0; call < 2; ++call) spar::allreduce(reads_payloads, std::span(x), spar::ring{});
    return x;
  });
  EXPECT_EQ(got, on_the_host<float>(3, n, spar::ring{}, spar::sum{}, 2));
}

/// Decorators that only observe: messages stay in device memory, so there is no page-locked memory for them (four bytes
/// belong to each object). The ring sends 2 (P - 1) messages of n / P values from each rank.
TEST_F(on_device, lends_below_counting_and_tracing) {
  const std::size_t n = 600;
  const auto expected = on_the_host<float>(3, n, spar::ring{}, spar::sum{}, 2);
  const auto got = on_ranks(3, [&](spar::threads& net) {
    spar::any_transport any(net);
    spar::counting counted(any);
    spar::tracing traced(counted);
    const stream work;
    const device_array<float> x(values_of<float>(net.rank(), n));
    spar::on_device gpu(traced);
    EXPECT_TRUE(gpu.lends());
    counted.reset();
    traced.clear();
    for (int call = 0; call < 2; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    const spar::counted_traffic all{.messages = 2 * 4, .bytes = 2 * 4 * 200 * sizeof(float)};
    EXPECT_EQ(counted.sent(), all);
    EXPECT_EQ(counted.received(), all);
    EXPECT_EQ(counted.sent((net.rank() + 1) % 3), all);
    EXPECT_EQ(counted.received((net.rank() + 2) % 3), all);
    EXPECT_NE(traced.events().find("\"bytes\":800"), std::string::npos);
    EXPECT_LE(cuda_double::pinned_bytes(), 3 * sizeof(std::uint32_t));
    return x.read(work);
  });
  EXPECT_EQ(got, expected);
}

/// A message that is lent has all pieces of a block; any other has one piece.
TEST_F(on_device, lends_whole_blocks) {
  const std::size_t n = 600;
  const auto messages = [&](auto algorithm) {
    return on_ranks(3, [&](spar::threads& net) {
      spar::counting counted(net);
      const device_array<float> x(values_of<float>(net.rank(), n));
      spar::on_device gpu(counted);
      counted.reset();
      spar::allreduce(gpu, spar::device_span(x.data(), n), algorithm);
      return counted.sent().messages;
    })[0];
  };
  const auto ring = compose(as_bfloat16{}, spar::ring{.piece = 40});
  EXPECT_EQ(messages(ring), 4U);
  EXPECT_EQ(messages(compose(as_half{}, spar::recursive_doubling{.piece = 40})), 1U); // to its partner
  using qsgd = spar::storage::qsgd<8>;
  EXPECT_EQ(messages(compose(qsgd{.bucket = 20}, spar::ring{.piece = 40})), 4U);
  EXPECT_EQ(messages(compose(qsgd{.bucket = 30}, spar::ring{.piece = 40})), 4U * 5); // a piece ends within a bucket
}

TEST_F(on_device, takes_part_in_checksums) {
  const auto call = [](bool damages) {
    return errors_of([&](spar::threads& all) {
      const std::vector<float> values = values_of<float>(all.rank(), 600);
      std::vector<spar::fault> plan;
      if (damages && all.rank() == 0) plan = {{.what = spar::fault::kind::corrupt_payload}};
      spar::faulty<spar::threads> net(all, plan);
      net.set_checksums(true);
      if (all.rank() == 1) { // on the host
        std::vector<float> x = values;
        spar::allreduce(net, std::span(x), spar::ring{});
      } else {
        const device_array<float> x(values);
        spar::on_device gpu(net);
        spar::allreduce(gpu, spar::device_span(x.data(), values.size()), spar::ring{});
      }
    });
  };
  for (const auto& error : call(false)) EXPECT_EQ(error, "no error");
  const auto errors = call(true);
  EXPECT_NE(errors[0].find("checksum"), std::string::npos) << errors[0];
  for (const auto& error : errors) EXPECT_NE(error, "no error");
}

TEST_F(on_device, lent_messages_wait_for_no_device) {
  cuda_double::reset(3);
  const std::size_t n = 200;
  spar::thread_group group(3);
  std::vector<std::vector<float>> got(3), expected = on_the_host<float>(3, n, spar::ring{}, spar::sum{}, 2);
  std::barrier all(3);
  group.run([&](spar::threads& net) {
    const stream work;
    const device_array<float> x(values_of<float>(net.rank(), n));
    spar::on_device gpu(net);
    all.arrive_and_wait();
    cuda_double::hold(true); // no stream goes on, unless a rank waits for it
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    all.arrive_and_wait();
    got[static_cast<std::size_t>(net.rank())] = x.read(work);
    cuda_double::hold(false);
  });
  EXPECT_EQ(got, expected);
}

TEST_F(on_device, uses_its_memory_again) {
  for (const bool lends : {true, false}) {
    cuda_double::let_peers_reach_each_other(false);
    std::barrier all(2);
    on_ranks(2, [&](spar::threads& net) {
      if (!lends) cuda_double::set_device(net.rank());
      const device_array<float> x(values_of<float>(net.rank(), 500));
      spar::on_device gpu(net);
      const auto call = [&] {
        spar::allreduce(gpu, spar::device_span(x.data(), 500), compose(as_bfloat16{}, spar::ring{.piece = 100}));
        meet(net); // all ranks have ended the call
      };
      call();
      all.arrive_and_wait();
      const std::size_t before = cuda_double::device_allocations(), pinned = cuda_double::pinned_bytes();
      for (int again = 0; again < 5; ++again) call();
      all.arrive_and_wait();
      EXPECT_EQ(cuda_double::device_allocations(), before);
      EXPECT_LE(cuda_double::pinned_bytes(), lends ? pinned : 4 * pinned); // more if copies have not ended yet
      all.arrive_and_wait();
      return 0;
    });
  }
}

TEST_F(on_device, every_failing_call_of_cuda_ends_the_call_of_all_ranks) {
  for (const bool lends : {true, false}) {
    cuda_double::let_peers_reach_each_other(false);
    bool failed = true;
    for (std::uint64_t at = 1; failed; ++at) {
      SCOPED_TRACE(testing::Message() << "call " << at << (lends ? ", lent" : ", by way of the host"));
      const auto errors = errors_of([&](spar::threads& net) {
        if (!lends) cuda_double::set_device(net.rank());
        const device_array<float> x(values_of<float>(net.rank(), 200));
        if (net.rank() == 1) cuda_double::fail_at(at);
        spar::on_device gpu(net);
        spar::allreduce(gpu, spar::device_span(x.data(), 200), compose(as_bfloat16{}, spar::ring{}));
        spar::allreduce(gpu, spar::device_span(x.data(), 200), spar::recursive_doubling{});
        cuda_double::fail_at(1U << 30);
        meet(net); // finds a late failure of rank 1
      });
      failed = errors[1] != "no error";
      for (const auto& error : errors) {
        EXPECT_EQ(error.find("failed: cudaErrorUnknown, a planned error") != std::string::npos, failed) << error;
        EXPECT_EQ(error != "no error", failed) << error;
      }
      ASSERT_LT(at, 500U);
    }
  }
}

TEST_F(on_device, refuses_memory_of_the_host_and_other_devices) {
  on_ranks(3, [](spar::threads& net) {
    spar::on_device gpu(net);
    spar_test::refuses_other_devices(3, "spar::on_device",
                                     [&](spar::device_span<float> x) { spar::allreduce(gpu, x, spar::ring{}); });
    spar_test::refuses_other_devices(3, "spar::on_device", [&](spar::device_span<float> x) {
      auto call = spar::start_allreduce(gpu, x, spar::recursive_doubling{});
      cuda_double::set_device(3); // the call in flight is not ended by the refusals
      const std::string refusal =
          "the current device is 3, but this spar::on_device was made for device 0; expected cudaSetDevice(0) before "
          "the call";
      EXPECT_EQ(spar_test::refusal_of([&] { call.wait(); }), refusal);
      EXPECT_EQ(spar_test::refusal_of([&] { (void)call.done(); }), refusal);
      cuda_double::set_device(0);
      call.wait();
    });
    EXPECT_FALSE(net.dead());
    return 0;
  });
}

TEST_F(on_device, ends_a_call_whose_handle_is_destroyed_while_another_device_is_current) {
  on_ranks(2, [](spar::threads& net) {
    const stream work;
    spar::on_device gpu(net);
    const device_array<float> x(std::vector<float>(10, 1));
    {
      const auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), 10, work), spar::recursive_doubling{});
      cuda_double::stall(gpu.transport().work().stream());
      cuda_double::set_device(3);
    }
    int device = 0;
    cudaGetDevice(&device);
    EXPECT_EQ(device, 3);
    cuda_double::set_device(0);
    EXPECT_EQ(x.read(work), std::vector<float>(10, 2)); // the further work of the program begins after the call
    EXPECT_FALSE(net.dead());
    return 0;
  });
}

TEST_F(on_device, refuses_a_plan_for_other_ranks) {
  const spar::tree_plans plans(spar::tree::flat(4));
  on_ranks(3, [&](spar::threads& net) {
    const device_array<float> x({1, 2});
    spar::on_device gpu(net);
    EXPECT_EQ(
        spar_test::refusal_of([&] { spar::allreduce(gpu, spar::device_span(x.data(), 2), spar::flexreduce(plans)); }),
        "a plan is for 4 ranks, but the number of ranks is 3");
    spar::allreduce(gpu, spar::device_span(x.data(), 2), spar::ring{});
    EXPECT_EQ(x.read(nullptr), (std::vector<float>{3, 6}));
    return 0;
  });
}

TEST_F(on_device, refuses_ranks_with_values_in_host_memory) {
  const auto errors = errors_of([](spar::threads& net) {
    const device_array<float> x(std::vector<float>(10));
    spar::on_device gpu(net);
    std::vector<float> on_host(10);
    if (net.rank() == 1)
      spar::allreduce(net, std::span(on_host), spar::ring{});
    else
      spar::allreduce(gpu, spar::device_span(x.data(), 10), spar::ring{});
  });
  bool explained = false;
  for (const auto& error : errors) {
    EXPECT_NE(error, "no error");
    explained = explained || error.find("either all ranks or none must use spar::on_device") != std::string::npos;
  }
  EXPECT_TRUE(explained) << errors[0] << errors[1] << errors[2];
}

TEST_F(on_device, refuses_a_progress_thread) {
  on_ranks(1, [](spar::threads& net) {
    const device_array<float> x(std::vector<float>(10));
    spar::on_device gpu(net);
    const spar::progress_thread progress(net);
    EXPECT_THROW(spar::on_device<spar::threads>{net}, spar::invalid_argument);
    EXPECT_THROW(spar::allreduce(gpu, spar::device_span(x.data(), 10), spar::ring{}), spar::invalid_argument);
    return 0;
  });
}

TEST_F(on_device, ends_in_a_timeout_if_a_rank_makes_no_call) {
  std::barrier all(3);
  const auto errors = errors_of([&](spar::threads& net) {
    const device_array<float> x(std::vector<float>(10));
    spar::on_device gpu(net);
    net.set_deadline(0.1);
    try {
      if (net.rank() != 1) spar::allreduce(gpu, spar::device_span(x.data(), 10), spar::ring{});
      all.arrive_and_wait();
    } catch (...) {
      all.arrive_and_wait();
      throw;
    }
  });
  EXPECT_NE(errors[0].find("has waited for 0.1 s"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], "no error");
  EXPECT_NE(errors[2], "no error");
}

} // namespace
