// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compressed allreduces over processes: the same bits on all ranks as between threads, whose results other tests check.
#include "support/processes.hpp"

#include <spar/storage/named_codec.hpp>
#include <spar/tolerance.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using named = spar::storage::named_codec;

std::vector<float> brought(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = std::sin(0.37F * static_cast<float>(i + 11 * static_cast<std::size_t>(rank)));
  return x;
}

/// One rank's results of all algorithms and codecs for some lengths.
template <class Net>
std::vector<std::vector<float>> all_results(Net& net, const spar::tree& topology) {
  std::vector<const char*> codecs{"none", "bf16", "half", "qsgd:8"};
  codecs.push_back("zfp:12");
  std::vector<std::vector<float>> results;
  const auto add = [&](std::size_t n, const auto& algorithm) {
    auto x = brought(net.rank(), n);
    spar::allreduce(net, std::span(x), algorithm);
    results.push_back(x);
  };
  for (const std::size_t n : {0U, 7U, 1000U, 60'000U}) {
    const spar::flex_plan plan(topology, n);
    for (const char* codec : codecs) {
      add(n, spar::compose(named(codec), spar::ring{.piece = 5000}));
      add(n, spar::compose(named(codec), spar::recursive_doubling{.piece = 5000}));
      add(n, spar::compose(named(codec), spar::two_shot{.piece = 5000}));
      add(n, spar::compose(named(codec), spar::one_shot{.piece = 5000}));
      add(n, spar::flexreduce(plan, named(codec)));
    }
  }
  return results;
}

TEST(processes_compressed, has_the_bits_that_threads_have) {
  communicator net(meeting()); // its first call has the same number as between threads, on which the rounding depends
  const spar::tree topology = spar::tree_of_hosts(hosts_of_all(net));
  const auto own = all_results(net, topology);
  std::vector<std::vector<std::vector<float>>> among_threads(static_cast<std::size_t>(net.size()));
  spar::thread_group group(net.size());
  group.run(
      [&](spar::threads& one) { among_threads[static_cast<std::size_t>(one.rank())] = all_results(one, topology); });
  ASSERT_EQ(own.size(), among_threads[0].size());
  for (std::size_t c = 0; c < own.size(); ++c) {
    ASSERT_EQ(own[c], among_threads[static_cast<std::size_t>(net.rank())][c]) << "call " << c;
    ASSERT_EQ(among_threads[0][c], among_threads[static_cast<std::size_t>(net.rank())][c]) << "call " << c;
  }
}

TEST(processes_compressed, counts_what_it_saves) {
  communicator net(meeting());
  auto x = brought(net.rank(), 40'000);
  spar::allreduce(net, std::span(x), spar::compose(spar::storage::as_bfloat16{}, spar::ring{}));
  const spar::statistics& cost = net.last_call();
  const auto p = static_cast<std::uint64_t>(net.size());
  EXPECT_EQ(cost.compressions, p == 1 ? 0 : p);
  EXPECT_EQ(cost.decompressions, p == 1 ? 0 : 2 * p - 1);
  EXPECT_EQ(cost.plain_bytes_sent, 2 * cost.bytes_sent);
  EXPECT_EQ(cost.codec_seconds > 0, p > 1);
  EXPECT_LE(cost.codec_seconds, cost.seconds);
}

TEST(processes_compressed, keeps_a_tolerance) {
  communicator net(meeting());
  constexpr std::size_t n = 5000;
  std::vector<double> exact(n);
  for (spar::rank_t r = 0; r < net.size(); ++r) {
    const auto x = brought(r, n);
    for (std::size_t i = 0; i < n; ++i) exact[i] += static_cast<double>(x[i]);
  }
  for (const double tolerance : {0.5, 0.05, 0.01, 0.001, 1e-5}) {
    const auto algorithm = spar::compose(spar::codec_for(tolerance, net.size(), n));
    const double bound = spar::error_bound(algorithm, net.size(), 1.0);
    EXPECT_LE(bound, tolerance * net.size() * (1 + 1e-3)); // the absolute error of half is below a thousandth
    auto x = brought(net.rank(), n);
    spar::allreduce(net, x, algorithm);
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(static_cast<double>(x[i]), exact[i], bound) << tolerance;
  }
}

} // namespace
} // namespace spar_test
