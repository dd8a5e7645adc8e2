// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Times selectors on dense vectors, next to a plain read of the vector and to std::nth_element on a copy.
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace {

using spar::kernel::magnitude;
using spar::kernel::magnitude_of;

constexpr std::size_t n = std::size_t{1} << 24;

/// Normally distributed values, as an approximation of gradients; integers have a standard deviation of 10^6.
template <class T>
const std::vector<T>& input() {
  static const auto values = [] {
    std::vector<T> x(n);
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal(0, spar::is_floating<T> ? 1 : 1e6);
    for (T& value : x) value = static_cast<T>(normal(random));
    return x;
  }();
  return values;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class F>
double seconds(F&& f) {
  const double begin = now();
  f();
  return now() - begin;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The minimal pass over the vector: reads every value.
template <class T>
[[gnu::noinline]] magnitude<T> read(const std::vector<T>& x) {
  magnitude<T> all = 0;
  for (std::size_t e = 0; e < n; e += 64)
    for (std::size_t b = 0; b < 64; ++b) all = static_cast<magnitude<T>>(all | magnitude_of(x[e + b]));
  return all;
}

template <class T>
void put_back(const spar::sparse_stream<T>& selected, std::vector<T>& x) {
  spar::kernel::scatter_assign(selected.view().entries(), 0, x.data());
}

std::uint64_t entries(const benchmark::State& state) { return n / static_cast<std::uint64_t>(state.range(0)); }

/// Times one pass with a known threshold. `of_read`: the time of a plain read, measured in turn, divided by the time of
/// the pass.
template <class T>
void threshold_pass(benchmark::State& state) {
  auto x = input<T>();
  spar::pool pool;
  const auto where = spar::kernel::largest<T>(x, entries(state), pool);
  auto out = spar::sparse_stream<T>::sparse(pool, n, entries(state) + entries(state) / 10);
  std::vector<double> ratios;
  for (auto _ : state) {
    const double reading = seconds([&] { benchmark::DoNotOptimize(read(x)); });
    spar::kernel::taken moved;
    const double taking = seconds([&] {
      moved = spar::kernel::take_at_least(x.data(), n, where.threshold, 0, out.indices().data(), out.values().data(),
                                          out.count());
    });
    for (std::size_t e = 0; e < moved.count; ++e) x[out.indices()[e]] = out.values()[e];
    state.SetIterationTime(taking);
    ratios.push_back(reading / taking);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n * sizeof(T)));
  state.counters["of_read"] = median(ratios);
}

/// Times a selector. `nth_element`: the time of std::nth_element on a copy of the magnitudes, divided by the time of
/// the selector, with the time of the copy; `without_copy`: without the time of the copy.
template <class T, class Select>
void selection(benchmark::State& state, Select select) {
  auto x = input<T>();
  spar::pool pool;
  std::vector<T> copy(n);
  std::vector<double> times, copying, searching;
  for (int i = 0; i < 3; ++i) {
    copying.push_back(
        seconds([&] { std::transform(x.begin(), x.end(), copy.begin(), [](T v) { return v < 0 ? -v : v; }); }));
    searching.push_back(seconds([&] {
      std::nth_element(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(entries(state)), copy.end(),
                       std::greater<>());
      benchmark::DoNotOptimize(copy.data());
    }));
  }
  (void)[&] { put_back(select(std::span(x), pool), x); }
  ();
  for (auto _ : state) {
    spar::sparse_stream<T> selected;
    times.push_back(seconds([&] { selected = select(std::span(x), pool); }));
    state.SetIterationTime(times.back());
    put_back(selected, x);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n * sizeof(T)));
  state.counters["nth_element"] = (median(copying) + median(searching)) / median(times);
  state.counters["without_copy"] = median(searching) / median(times);
}

/// Calls of a selector, which keeps its state from call to call.
template <class Selector>
auto by(const Selector& selector) {
  return [=, now = spar::state_of<Selector>{}](auto x, spar::pool& pool) mutable {
    return spar::select(selector, x, pool, now);
  };
}

double density(const benchmark::State& state) { return 1 / static_cast<double>(state.range(0)); }

template <class T, int Threads = 1>
void exact_topk(benchmark::State& state) {
  selection<T>(state, by(spar::selector::exact_topk{.density = density(state), .threads = Threads}));
}
/// Calls of threshold_reuse between two exact evaluations of the threshold.
template <class T, int Threads = 1>
void threshold_reuse(benchmark::State& state) {
  selection<T>(state, by(spar::selector::threshold_reuse{
                          .density = density(state), .period = ~std::uint64_t{0}, .threads = Threads}));
}
template <class T>
void gaussian(benchmark::State& state) {
  selection<T>(state, by(spar::selector::gaussian{.density = density(state)}));
}
template <class T>
void bucket_topk(benchmark::State& state) {
  selection<T>(state, by(spar::selector::bucket_topk{.k = static_cast<std::uint64_t>(512 * density(state) + 0.5)}));
}

/// Finds the threshold of the k largest values without moving entries.
template <class T>
void exact_threshold(benchmark::State& state) {
  selection<T>(state, [&](std::span<T> x, spar::pool& pool) {
    benchmark::DoNotOptimize(spar::kernel::largest<T>(x, entries(state), pool));
    return spar::sparse_stream<T>::sparse(pool, n, 0);
  });
}

/// Argument: the inverse of the density; one value in so many is selected.
void densities(benchmark::internal::Benchmark* bench) {
  bench->ArgName("one_of")->Arg(100)->Arg(1000)->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(threshold_pass<float>)->Apply(densities);
BENCHMARK(threshold_pass<double>)->Apply(densities);
BENCHMARK(threshold_pass<std::int32_t>)->Apply(densities);
BENCHMARK(exact_threshold<float>)->Apply(densities);
BENCHMARK(exact_threshold<double>)->Apply(densities);
BENCHMARK(exact_topk<float>)->Apply(densities);
BENCHMARK(exact_topk<double>)->Apply(densities);
BENCHMARK(exact_topk<std::int32_t>)->Apply(densities);
BENCHMARK(threshold_reuse<float>)->Apply(densities);
BENCHMARK(threshold_reuse<float, 2>)->Apply(densities);
BENCHMARK(exact_topk<float, 2>)->Apply(densities);
BENCHMARK(gaussian<float>)->Apply(densities);
BENCHMARK(bucket_topk<float>)->ArgName("one_of")->Arg(64)->UseManualTime()->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
