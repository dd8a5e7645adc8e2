// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the benefit of balanced ownership if the ranks' entries are clustered: split-and-reduce with blocks of equal
// length against blocks with equal numbers of entries, in the simulator (Ok-Topk, section 5.3, figure 7a).
#include <spar/collective/topk/balanced_ownership.hpp>
#include <spar/sim.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace {

constexpr std::uint64_t n = 1 << 22;
constexpr std::uint64_t k = 20'000;

/// The indices of a rank: two thirds are close to a place that all ranks share, the others are uniform.
std::vector<std::uint32_t> clustered(spar::rank_t rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::normal_distribution<double> near(0.3 * static_cast<double>(n), 0.02 * static_cast<double>(n));
  std::set<std::uint32_t> places;
  while (places.size() < k) {
    const double place = random() % 3 == 0 ? static_cast<double>(random() % n) : near(random);
    if (place >= 0 && place < static_cast<double>(n)) places.insert(static_cast<std::uint32_t>(place));
  }
  return {places.begin(), places.end()};
}

struct naive_split : spar::algorithm_defaults {
  static constexpr std::string_view name = "naive_split";
  template <class Net, class Op>
  spar::task<spar::sparse_stream<float>> operator()(spar::channel<Net> net, spar::stream_view<float> mine,
                                                    Op op) const& {
    const spar::uniform_ownership owner{n, net.size()};
    return spar::split_sparse(net, mine, owner, op);
  }
};
struct balanced_split : spar::algorithm_defaults {
  static constexpr std::string_view name = "balanced_split";
  template <class Net, class Op>
  spar::task<spar::sparse_stream<float>> operator()(spar::channel<Net> net, spar::stream_view<float> mine,
                                                    Op op) const& {
    std::vector<std::uint64_t> bounds(static_cast<std::size_t>(net.size()) + 1);
    const spar::uniform_ownership due{n, net.size()};
    co_await spar::balance_ownership(net, mine.indices(), due, std::span(bounds), true, k + k / 10);
    const spar::bounded_ownership owner{bounds};
    auto work = spar::split_sparse(net, mine, owner, op);
    co_return co_await std::move(work);
  }
};

struct cost {
  double seconds = 0; // virtual time of the slowest rank
  double largest = 0; // bytes that a rank sends or receives (the larger), without headers
  double mean = 0;
};

template <class Algorithm>
cost of(spar::rank_t ranks, const std::vector<std::vector<std::uint32_t>>& indices) {
  const std::vector<float> values(k, 1.0F);
  std::vector<double> bytes(static_cast<std::size_t>(ranks));
  spar::simulator engine(ranks, {.latency = 1e-6, .bandwidth = 1e9, .compute = 2.5e-9});
  const auto program = [&](spar::sim& net) -> spar::task<void> {
    struct call { // a coroutine must not be a lambda with captures
      static spar::task<void> make(spar::sim& net, const std::vector<std::uint32_t>* indices,
                                   const std::vector<float>* values, double* bytes) {
        const auto mine = spar::sparse_view(n, *indices, *values);
        const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(n, Algorithm{});
        auto pending = spar::start_collective(net, agreed, Algorithm{}, mine, spar::sum{});
        const auto block = co_await std::move(pending);
        const spar::statistics& cost = pending.statistics();
        *bytes = static_cast<double>(std::max(cost.bytes_sent, cost.bytes_received));
      }
    };
    const auto r = static_cast<std::size_t>(net.rank());
    return call::make(net, &indices[r], &values, &bytes[r]);
  };
  engine.run(program);
  cost c;
  c.seconds = engine.time();
  for (const double b : bytes) {
    c.largest = std::max(c.largest, b);
    c.mean += b / static_cast<double>(ranks);
  }
  return c;
}

} // namespace

int main() {
  std::printf("n = %llu, k = %llu, 1 us, 1 GB/s, 2.5 ns per entry, two thirds of the entries close to one place\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(k));
  for (const spar::rank_t ranks : {8, 64, 256}) {
    std::vector<std::vector<std::uint32_t>> indices;
    for (spar::rank_t r = 0; r < ranks; ++r) indices.push_back(clustered(r));
    const cost naive = of<naive_split>(ranks, indices);
    const cost balanced = of<balanced_split>(ranks, indices);
    std::printf("P = %3d  naive: largest/mean volume %.2f, %.3f ms   balanced: %.2f, %.3f ms   speedup %.2f\n", ranks,
                naive.largest / naive.mean, 1e3 * naive.seconds, balanced.largest / balanced.mean,
                1e3 * balanced.seconds, naive.seconds / balanced.seconds);
  }
}
