// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Throughput of kernels on dense vectors (bytes read plus bytes written per second), next to a copy of the same size.
#include "kernel_input.hpp"

#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/nonzero.hpp>

namespace {

using kernel_bench::make_stream;
using kernel_bench::pattern;

/// Arguments: dimension, number of entries, pattern.
template <class T, class Index, bool Assign>
void scatter(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const auto stream =
      make_stream<T, Index>(n, static_cast<std::uint64_t>(state.range(1)), static_cast<pattern>(state.range(2)), 0, 1);
  std::vector<T> dense(n);
  for (auto _ : state) {
    if constexpr (Assign)
      spar::kernel::scatter_assign(stream.view(), 0, dense.data());
    else
      spar::kernel::scatter(stream.view(), 0, dense.data(), spar::sum{});
    benchmark::ClobberMemory();
  }
  const auto entries = static_cast<std::int64_t>(stream.indices.size());
  state.SetBytesProcessed(state.iterations() * entries *
                          static_cast<std::int64_t>(sizeof(Index) + (Assign ? 2 : 3) * sizeof(T)));
  state.SetItemsProcessed(state.iterations() * entries);
}

template <class T, class Op>
void reduce(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<T> a(n, T{1}), b(n, T{1});
  for (auto _ : state) {
    spar::kernel::reduce(a.data(), b.data(), n, Op{});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(3 * sizeof(T)));
}

template <class T>
void combine(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<T> a(n, T{1}), b(n, T{1}), c(n, T{1});
  for (auto _ : state) {
    spar::kernel::combine(c.data(), a.data(), b.data(), n, spar::sum{});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(3 * sizeof(T)));
}

/// Arguments: dimension, number of nonzero values, which are put back after each pass.
template <class T>
void take_nonzero(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const auto stream =
      make_stream<T, std::uint32_t>(n, static_cast<std::uint64_t>(state.range(1)), pattern::uniform, 0, 1);
  std::vector<T> dense(n);
  std::vector<std::uint32_t> indices(n);
  std::vector<T> values(n);
  std::size_t written = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (const auto at : stream.indices) dense[at] = T{1};
    state.ResumeTiming();
    written = spar::kernel::take_nonzero<spar::kernel::negative_zeros::clear>(dense.data(), n, 0, indices.data(),
                                                                              values.data(), n)
                  .count;
    benchmark::DoNotOptimize(written);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(n * sizeof(T) + written * (sizeof(T) + sizeof(std::uint32_t))));
}

template <class T>
void count_nonzero(benchmark::State& state) {
  std::vector<T> dense(static_cast<std::size_t>(state.range(0)), T{1});
  for (auto _ : state) benchmark::DoNotOptimize(spar::kernel::count_nonzero(dense.data(), dense.size()));
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(sizeof(T)));
}

constexpr auto uniform = static_cast<int>(pattern::uniform);
constexpr auto clustered = static_cast<int>(pattern::clustered);
constexpr int small = 1 << 14, large = 1 << 22;

void scattered(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "k", "pattern"});
  bench->Args({small, 1'000, uniform})->Args({1 << 20, 10'000, uniform})->Args({large, 1 << 20, uniform});
  bench->Args({1 << 20, 10'000, clustered})->Args({1 << 25, 335'000, uniform});
}

void filled(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "nonzero"});
  bench->Args({1 << 20, 0})->Args({1 << 20, 10'000})->Args({1 << 20, 100'000})->Args({1 << 20, 1 << 20});
}

BENCHMARK(kernel_bench::copy_bandwidth)->Arg(1 << 16)->Arg(1 << 22)->Arg(1 << 24);
BENCHMARK(scatter<float, std::uint32_t, false>)->Apply(scattered);
BENCHMARK(scatter<float, std::uint32_t, true>)->Apply(scattered);
BENCHMARK(scatter<double, std::uint64_t, false>)->Apply(scattered);
BENCHMARK(reduce<float, spar::sum>)->Arg(small)->Arg(large);
BENCHMARK(reduce<float, spar::maximum>)->Arg(small)->Arg(large);
BENCHMARK(reduce<double, spar::sum>)->Arg(small)->Arg(large);
BENCHMARK(reduce<std::int32_t, spar::sum>)->Arg(small)->Arg(large);
BENCHMARK(combine<float>)->Arg(small)->Arg(large);
BENCHMARK(take_nonzero<float>)->Apply(filled);
BENCHMARK(take_nonzero<double>)->Apply(filled);
BENCHMARK(count_nonzero<float>)->Arg(small)->Arg(large);
BENCHMARK(count_nonzero<double>)->Arg(small)->Arg(large);

} // namespace

BENCHMARK_MAIN();
