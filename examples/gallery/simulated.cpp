// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce on eight simulated ranks, observed by two decorators: `counting` counts the messages of a rank, and
// `tracing` records them for https://ui.perfetto.dev. Time is virtual, so every run gives the same figures.
#include <spar/sim.hpp>
#include <spar/transport/tracing.hpp>

#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

constexpr std::size_t n = 100'000;

struct observed_allreduce {
  std::vector<std::string>* traces;

  spar::task<void> operator()(spar::sim& rank) const& {
    spar::tracing traced(rank);
    spar::counting net(traced); // a transport, as `rank` is

    std::vector<float> x(n, 1.0F);
    auto sum = spar::start_allreduce(net, std::span(x), spar::rabenseifner{});
    co_await std::move(sum);

    // Rabenseifner's algorithm halves the vector log2 P times, and doubles it as often.
    const auto [messages, bytes] = net.sent();
    if (x[0] != 8 || messages != 6 || bytes != 2 * n * sizeof(float) * 7 / 8) throw spar::error("unexpected");
    (*traces)[static_cast<std::size_t>(net.rank())] = traced.events();
    if (net.rank() == 0) {
      std::printf("rank 0 sent %u messages with %u bytes\n", static_cast<unsigned>(messages),
                  static_cast<unsigned>(bytes));
    }
  }
};

int main() {
  std::vector<std::string> traces(8);
  const observed_allreduce program{&traces};
  spar::simulator network(8, {.latency = 1e-6, .bandwidth = 1e9, .compute = 1e-9});
  network.run([&](spar::sim& rank) { return program(rank); });
  std::ofstream("trace.json") << spar::trace_file(traces);
  std::printf("%.1f us of virtual time; the timeline is in trace.json\n", 1e6 * network.time());
}
