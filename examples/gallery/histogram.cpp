// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The latencies of requests, counted by four servers in bins of one microsecond. Few of the million bins are in use,
// and each server uses other ones, so the servers add up streams of integers, which is exact.
#include <spar/spar.hpp>
#include <spar/storage/coalesce.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

// The latencies of the requests of a server, in microseconds, in the order in which the requests arrived.
std::vector<std::uint32_t> measured_by(spar::rank_t server) {
  std::mt19937 random(static_cast<unsigned>(server));
  std::lognormal_distribution<double> latency(5 + server, 0.5); // each server is slower than the one before it,
  std::vector<std::uint32_t> latencies;
  for (int requests = 100 << (2 * server); requests > 0; --requests) { // and has four times as many requests
    latencies.push_back(static_cast<std::uint32_t>(std::min(latency(random), 999'999.0)));
  }
  return latencies;
}

int main() {
  constexpr std::uint64_t n = 1'000'000;
  spar::thread_group servers(4);
  servers.run([](spar::threads& net) {
    const std::vector<std::uint32_t> latencies = measured_by(net.rank());
    const std::vector<std::int64_t> ones(latencies.size(), 1);
    const auto bins = spar::coalesce(net.memory(), n, latencies, ones); // sorts the latencies, and counts equal ones
    const auto all = spar::allreduce(net, bins);
    const auto sparse = static_cast<unsigned>(net.last_call().bytes_sent);

    std::vector<std::int64_t> dense(n); // for comparison: the same sum of all million bins
    for (const std::uint32_t latency : latencies) ++dense[latency];
    spar::allreduce(net, dense);

    std::int64_t requests = 0;
    std::uint32_t median = 0, slowest = 0;
    all.for_each([&](std::uint32_t latency, std::int64_t count) {
      if (dense[latency] != count) throw spar::error("the sums differ");
      if (requests < 8500 / 2) median = latency;
      slowest = latency;
      requests += count;
    });
    if (requests != 100 + 400 + 1600 + 6400) throw spar::error("a request is missing, or counts twice");

    if (net.rank() == 0) {
      std::printf("%u bins in use, median %u us, slowest request %u us\n", static_cast<unsigned>(all.count()), median,
                  slowest);
      std::printf("server 0 has %u bins, and sent %u bytes for the sum as a stream, %u as a vector\n",
                  static_cast<unsigned>(bins.count()), sparse, static_cast<unsigned>(net.last_call().bytes_sent));
    }
  });
}
