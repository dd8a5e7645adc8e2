// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory against the same on the host: kernels run by fibres, in the streams of a double of the
// CUDA runtime.
#include "on_ranks.hpp"
#include "runtime_double.hpp"

#include "on_host.hpp"

#include <spar/on_device.cuh>
#include <spar/transport/sim.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using spar::compose, spar::storage::bfloat16, spar::storage::half;

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
  const auto moved = on_ranks(ranks, [&](spar::threads& net) { // each rank has a device that reaches no other
    cuda_double::set_device(net.rank());
    return on_a_device<T>(net, n, algorithm, op, calls, ranks == 1);
  });
  EXPECT_TRUE(moved == expected);
}

TEST_F(on_device, has_the_bits_of_the_host) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    cuda_double::reset(seed);
    cuda_double::let_peers_reach_each_other(false);
    for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
      compare<float>(ranks, 700, spar::ring{});
      compare<float>(ranks, 700, spar::recursive_doubling{});
      compare<double>(ranks, 300, spar::rabenseifner{});
      compare<std::int32_t>(ranks, 100, spar::ring{}, spar::maximum{});
      compare<float>(ranks, 100, spar::recursive_doubling{}, spar::average{});
      compare<float>(ranks, 700, compose(bfloat16{}, spar::ring{.piece = 100}));
      compare<float>(ranks, 300, compose(spar::storage::qsgd<8>{.bucket = 64}, spar::ring{.piece = 50}));
      compare<float>(ranks, 300, compose(half{}, spar::recursive_doubling{.piece = 128}));
      compare<float>(ranks, 0, spar::ring{});
      compare<float>(ranks, 1, compose(bfloat16{}, spar::recursive_doubling{}));
    }
  }
}

} // namespace
