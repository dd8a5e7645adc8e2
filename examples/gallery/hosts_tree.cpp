// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce over two hosts, one with two ranks and one with three, whose link is the bottleneck. FlexReduce sums
// inside each host first. The network is simulated, and so is the time.
#include <spar/sim.hpp>
#include <spar/tree.hpp>

#include <cstdio>
#include <span>
#include <vector>

constexpr std::size_t n = 100'000;

/// The program of one rank: an allreduce with the algorithm that `by` refers to.
template <class Algorithm>
struct summation {
  const Algorithm* by;
  spar::task<void> operator()(spar::sim& net) const& {
    std::vector<float> x(n, 1.0F);
    auto sum = spar::start_allreduce(net, std::span(x), *by);
    co_await std::move(sum);
    for (const float value : x) {
      if (value != 5.0F) throw spar::error("expected the sum of five ranks");
    }
  }
};

template <class Algorithm>
double milliseconds(const char* name, const spar::tree& hosts, const Algorithm& by) {
  spar::simulator machine(hosts.ranks(), {.tree = hosts.network()});
  const summation<Algorithm> program{&by};
  machine.run([&](spar::sim& net) { return program(net); });
  std::printf("%-10s %5.2f ms\n", name, 1000 * machine.time());
  return 1000 * machine.time();
}

int main() {
  const spar::tree_link inside{.bandwidth = 1e10, .latency = 1e-6};    // bytes per second, seconds
  const spar::tree_link between{.bandwidth = 1.25e8, .latency = 5e-5}; // 1 Gbit/s
  const spar::tree hosts({.links = between,
                          .children = {{.links = inside, .children = {{.rank = 0}, {.rank = 1}}},
                                       {.links = inside, .children = {{.rank = 2}, {.rank = 3}, {.rank = 4}}}}});
  const spar::tree_plans plans(hosts); // who sends what to whom; create once, equal on every rank

  const double ring = milliseconds("ring", hosts, spar::ring{});
  const double flexreduce = milliseconds("flexreduce", hosts, spar::flexreduce(plans));
  return flexreduce < 0.8 * ring ? 0 : 1;
}
