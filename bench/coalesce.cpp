// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entries per second of `coalesce`, beside std::sort of pairs and a loop that adds up equal indices. Every round has
// other entries, because a processor learns the branches of a sort that is repeated.
#include <spar/core/memory/pool.hpp>
#include <spar/core/row.hpp>
#include <spar/storage/coalesce.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace {

template <class Index, class T>
struct entries {
  entries(std::uint64_t dimension, std::size_t count) : n(dimension), indices(count), values(count) {}

  void draw() {
    for (Index& index : indices) index = static_cast<Index>(random() % n);
    for (T& value : values) {
      if constexpr (spar::is_row<T>)
        value.values[0] = static_cast<float>(random() % 1000);
      else
        value = static_cast<T>(random() % 1000);
    }
  }

  std::uint64_t n;
  std::mt19937_64 random{1};
  std::vector<Index> indices;
  std::vector<T> values;
};

/// Times `f(entries)` for 2^range(0) indices and range(1) entries.
template <class Index, class T, class F>
void run(benchmark::State& state, F f) {
  entries<Index, T> all(std::uint64_t{1} << state.range(0), static_cast<std::size_t>(state.range(1)));
  for (auto _ : state) {
    state.PauseTiming();
    all.draw();
    state.ResumeTiming();
    f(all);
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

template <class Index, class T>
void coalesce(benchmark::State& state) {
  spar::pool memory;
  spar::pool_requests requests;
  memory.charge(requests);
  run<Index, T>(state, [&](const entries<Index, T>& all) {
    benchmark::DoNotOptimize(spar::coalesce(memory, all.n, all.indices, all.values));
  });
}

template <class Index, class T>
void sort_and_loop(benchmark::State& state) {
  std::vector<std::pair<Index, T>> pairs(static_cast<std::size_t>(state.range(1)));
  std::vector<Index> indices(pairs.size());
  std::vector<T> values(pairs.size());
  run<Index, T>(state, [&](const entries<Index, T>& all) {
    for (std::size_t e = 0; e < pairs.size(); ++e) pairs[e] = {all.indices[e], all.values[e]};
    std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t count = 0;
    for (std::size_t e = 0; e < pairs.size(); ++count) {
      indices[count] = pairs[e].first;
      values[count] = pairs[e].second;
      while (++e < pairs.size() && pairs[e].first == indices[count])
        values[count] = spar::sum{}(values[count], pairs[e].second);
    }
    benchmark::DoNotOptimize(count);
  });
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const int bits : {14, 20, 26, 32})
    for (const int count : {1000, 10'000, 100'000, 1'000'000, 10'000'000}) b->Args({bits, count});
}
using wide_row = spar::row<float, 16>;
BENCHMARK(coalesce<std::uint32_t, float>)->Apply(sizes);
BENCHMARK(sort_and_loop<std::uint32_t, float>)->Apply(sizes);
BENCHMARK(coalesce<std::uint64_t, double>)->Args({40, 1'000'000});
BENCHMARK(sort_and_loop<std::uint64_t, double>)->Args({40, 1'000'000});
BENCHMARK(coalesce<std::uint32_t, wide_row>)->Args({17, 100'000});
BENCHMARK(sort_and_loop<std::uint32_t, wide_row>)->Args({17, 100'000});

} // namespace

BENCHMARK_MAIN();
