// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over NCCL, on doubles of NCCL and of the CUDA runtime.
#include "nccl_double.hpp"
#include "on_ranks.hpp"
#include "runtime_double.hpp"

#include <spar/nccl.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using spar::rank_t;
using net_type = spar::nccl<spar::threads>;

constexpr double deadline = 20; // seconds; a deadlock becomes a failure

/// Small integers, so that sums are exact in any order; a tenth of them, or all, are not zero.
std::vector<float> values_of(rank_t rank, std::size_t n, std::uint64_t seed, bool dense) {
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(rank));
  std::vector<float> x(n);
  for (float& v : x) {
    const std::uint64_t bits = random();
    if (dense || bits % 10 == 0) v = static_cast<float>(bits >> 32 & 63) - 31;
  }
  return x;
}
/// The sum over all ranks, computed without spar.
std::vector<float> sum_of(rank_t ranks, std::size_t n, std::uint64_t seed, bool dense) {
  std::vector<float> sum(n);
  for (rank_t r = 0; r < ranks; ++r) {
    const auto x = values_of(r, n, seed, dense);
    std::transform(sum.begin(), sum.end(), x.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

void reset(std::uint64_t seed) {
  cuda_double::reset(seed);
  nccl_double::reset(seed);
}

/// Everything that ended well on a rank: `program(net)` over NCCL, and the end of the communicator.
template <class Program>
void run(rank_t ranks, std::uint64_t seed, const spar::nccl_options& options, Program program) {
  reset(seed);
  const auto counts = on_ranks(ranks, [&](spar::threads& control) {
    control.set_deadline(deadline);
    {
      net_type net(control, options);
      program(net);
    }
    return nccl_double::of_this_thread();
  });
  for (const auto& c : counts) {
    EXPECT_EQ(c.joins, 1U);
    EXPECT_EQ(c.destroys, 1U);
    EXPECT_EQ(c.aborts, 0U);
    EXPECT_EQ(c.receives, c.receives);
  }
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
}

/// Several collectives in flight, ended in a random order.
void many_in_flight(net_type& net, std::uint64_t seed) {
  const rank_t ranks = net.size();
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(net.rank()));
  const auto size = [&](std::uint64_t call) { return static_cast<std::size_t>((seed * 7 + call * 13) % 50 * 80 + 1); };
  std::vector<std::vector<float>> x;
  for (std::uint64_t call = 0; call < 5; ++call) x.push_back(values_of(net.rank(), size(call), seed + call, call < 3));

  std::vector<spar::pending<net_type, void>> dense;
  dense.push_back(spar::start_allreduce(net, std::span(x[0]), spar::recursive_doubling{}));
  dense.push_back(spar::start_allreduce(net, std::span(x[1]), spar::ring{}));
  auto split = spar::start_allreduce(net, spar::dense_view(x[3]), spar::split_allgather{});
  dense.push_back(spar::start_allreduce(net, std::span(x[2]), spar::rabenseifner{}));
  auto doubled = spar::start_allreduce(net, spar::dense_view(x[4]), spar::recursive_doubling{});

  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t call : order) {
    if (call < 3)
      dense[call].wait();
    else
      (call == 3 ? split : doubled).wait().to_dense(std::span(x[call]));
  }
  for (std::uint64_t call = 0; call < 5; ++call)
    EXPECT_EQ(x[call], sum_of(ranks, size(call), seed + call, call < 3)) << "call " << call << ", seed " << seed;
}

TEST(nccl, reduces_in_every_schedule) {
  for (std::uint64_t seed = 1; seed <= 2000 && !testing::Test::HasFailure(); ++seed) {
    const spar::nccl_options options{.eager_bytes = seed % 3 == 0 ? 4096U : 0U};
    run(static_cast<rank_t>(2 + seed % 4), seed, options, [&](net_type& net) { many_in_flight(net, seed); });
  }
}

} // namespace
