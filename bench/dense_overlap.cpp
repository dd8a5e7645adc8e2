// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Simulates a step of training in which the dense allreduce overlaps with the computation (DenseOvlp of Ok-Topk,
// section 5), and prints its time as JSON. The first third of the computation is the forward pass; in the rest, the
// backward pass, the buckets of the gradient become ready one after the other.
#include <spar/model/network_file.hpp>
#include <spar/sim.hpp>
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace {

struct step {
  std::size_t n, buckets;
  double computation; // seconds

  spar::task<void> operator()(spar::sim& net) const& {
    std::vector<float> gradient(n);
    std::vector<decltype(spar::start_allreduce(net, std::span(gradient), spar::cheapest{}))> reduced;
    reduced.reserve(buckets);
    co_await net.sleep(computation / 3);
    for (std::size_t b = 0; b < buckets; ++b) {
      co_await net.sleep(computation * 2 / 3 / static_cast<double>(buckets));
      const auto bucket = std::span(gradient).subspan(n / buckets * b, n / buckets);
      reduced.push_back(spar::start_allreduce(net, bucket, spar::cheapest{}));
    }
    for (auto& each : reduced) co_await std::move(each);
  }
};

int run(char** arguments) {
  const spar::network_model model = spar::read_network(arguments[1]);
  const int ranks = std::atoi(arguments[2]);
  const step program{static_cast<std::size_t>(std::atoll(arguments[3])),
                     static_cast<std::size_t>(std::atoll(arguments[4])), std::atof(arguments[5])};
  spar::simulator engine(ranks, {.latency = spar::shared_latency(model),
                                 .bandwidth = 1 / model.beta,
                                 .overhead = spar::message_overhead(model),
                                 .compute = model.gamma_dense});
  for (spar::rank_t r = 0; r < ranks; ++r) engine.rank(r).port().set_network(model);
  engine.run([&](spar::sim& net) { return program(net); });
  std::printf("{\"system\": \"dense_overlap\", \"ranks\": %d, \"n\": %zu, \"buckets\": %zu, \"computation\": %.9g, "
              "\"seconds\": %.9g}\n",
              ranks, program.n, program.buckets, program.computation, engine.time());
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: dense_overlap NETWORK RANKS COUNT BUCKETS SECONDS_OF_COMPUTATION\n");
    return 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dense_overlap: %s\n", error.what());
    return 1;
  }
}
