// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures how much of a non-blocking allreduce of 16 MiB overlaps with a computation of about the same duration: with
// a progress thread, with done() between slices of the computation, and with neither, compared with the allreduce and
// the computation one after the other.
#if SPAR_WITH_MPI
#include <spar/mpi.hpp>

#include <mpi.h>
#else
#include <spar/spar.hpp>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr std::size_t count = std::size_t{4} << 20;
constexpr int warmup = 3;
constexpr int iterations = 15;

/// Computes for about 25 us in registers and the first-level cache: competes with the allreduce for cores, not for
/// memory.
[[gnu::noinline]] void compute_slice(std::array<float, 4096>& x) {
  for (int times = 0; times < 100; ++times) {
    for (float& each : x) each = each * 0.999F + 0.5F;
  }
}

struct spread {
  double low, median, high; // quartiles
};

spread quartiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 4], samples[samples.size() / 2], samples[samples.size() * 3 / 4]};
}

/// The measurements of each iteration, in this order.
enum way { comm, comp, thread, slices, neither, ways };
constexpr const char* names[ways] = {"allreduce alone", "computation alone", "both, progress thread",
                                     "both, done() between slices", "both, neither"};

template <class Net>
void measure(Net& net) {
  std::vector<float> x(count, 1.0F);
  std::array<float, 4096> mine{};
  const auto largest = [&](double value) {
    spar::allreduce(net, std::span(&value, 1), spar::recursive_doubling{}, spar::maximum{});
    return value;
  };
  /// The seconds of the slowest rank. The first line is a barrier, so that all ranks start together.
  const auto seconds = [&](auto call) {
    largest(0);
    const double begin = net.now();
    call();
    return largest(net.now() - begin);
  };
  const auto allreduce = [&] { spar::allreduce(net, std::span(x), spar::cheapest{}); };
  int length = 1; // number of slices of a computation
  const auto compute = [&] {
    for (int i = 0; i < length; ++i) compute_slice(mine);
  };
  const auto both = [&] {
    auto pending = spar::start_allreduce(net, std::span(x), spar::cheapest{});
    compute();
    pending.wait();
  };
  const auto with_thread = [&] {
    const spar::progress_thread progress(net);
    return seconds(both);
  };
  const auto with_slices = [&] {
    auto pending = spar::start_allreduce(net, std::span(x), spar::cheapest{});
    for (int i = 0; i < length; ++i) {
      compute_slice(mine);
      (void)pending.done(); // makes progress
    }
    pending.wait();
  };

  std::vector<double> alone;
  for (int i = -warmup; i < iterations; ++i) alone.push_back(seconds(allreduce));
  length = 200;
  compute(); // warms up the caches
  const double slice = seconds(compute) / length;
  length = std::max(1, static_cast<int>(quartiles(alone).median / slice));

  std::vector<double> times[ways];
  for (int i = -warmup; i < iterations; ++i) {
    const double now[ways] = {seconds(allreduce), seconds(compute), with_thread(), seconds(with_slices), seconds(both)};
    for (int w = 0; i >= 0 && w < ways; ++w) times[w].push_back(now[w]);
  }
  if (net.rank() != 0) return;
  std::printf("%d ranks, %zu MiB, %d slices of %.0f us; medians of %d iterations (with quartiles)\n", net.size(),
              count * sizeof(float) >> 20, length, slice * 1e6, iterations);
  for (int w = 0; w < ways; ++w) {
    std::vector<double> to_sum, to_longer;
    for (std::size_t i = 0; i < times[w].size(); ++i) {
      to_sum.push_back(times[w][i] / (times[comm][i] + times[comp][i]));
      to_longer.push_back(times[w][i] / std::max(times[comm][i], times[comp][i]));
    }
    const spread t = quartiles(times[w]);
    std::printf("%-28s %8.2f ms (%.2f..%.2f)", names[w], t.median * 1e3, t.low * 1e3, t.high * 1e3);
    if (w > comp) {
      const spread s = quartiles(to_sum);
      const spread l = quartiles(to_longer);
      std::printf("  / sum %.2f (%.2f..%.2f)  / longer %.2f (%.2f..%.2f)", s.median, s.low, s.high, l.median, l.low,
                  l.high);
    }
    std::printf("\n");
  }
}

} // namespace

#if SPAR_WITH_MPI
int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    spar::mpi world(MPI_COMM_WORLD);
    measure(world);
  }
  MPI_Finalize();
}
#else
int main() {
  spar::thread_group ranks(2);
  ranks.run([](spar::threads& net) { measure(net); });
}
#endif
