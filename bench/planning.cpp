// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Times planning of FlexReduce, and of the cells of Ok-Topk on a tree, for 1024 ranks.
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree_cells.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>

namespace {

constexpr spar::rank_t ranks = 1024;
constexpr std::uint64_t n = 1'000'000'000;

/// A tree of hosts on one switch, with `of_each` ranks per host; 0 means 3 to 8 ranks in rotation.
spar::tree hosts(std::int64_t of_each) {
  if (of_each == 1) return spar::tree::flat(ranks);
  spar::tree_node root;
  for (spar::rank_t next = 0; next < ranks;) {
    spar::tree_node host;
    const auto size = of_each > 0 ? of_each : 3 + static_cast<std::int64_t>(root.children.size() % 6);
    for (std::int64_t i = 0; i < size && next < ranks; ++i) host.children.push_back({.rank = next++});
    root.children.push_back(host);
  }
  return spar::tree(root);
}

void plan(benchmark::State& state) {
  const spar::tree topology = hosts(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(spar::flex_plan(topology, n));
}
void cells(benchmark::State& state) {
  const spar::tree topology = hosts(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(spar::tree_cells(topology));
}

void trees(benchmark::internal::Benchmark* bench) {
  bench->ArgName("ranks_of_a_host")->Arg(1)->Arg(32)->Arg(0)->Unit(benchmark::kMillisecond);
}
BENCHMARK(plan)->Apply(trees);
BENCHMARK(cells)->Apply(trees);

} // namespace

BENCHMARK_MAIN();
