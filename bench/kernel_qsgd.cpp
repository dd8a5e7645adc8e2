// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Throughput of QSGD: values per second, and bytes read plus bytes written per second, next to a copy.
#include "kernel_input.hpp"

#include <spar/storage/kernel/qsgd.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace {

template <class T>
std::vector<T> gaussian(std::size_t n) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<T> x(n);
  for (auto& value : x) value = static_cast<T>(normal(random));
  return x;
}

/// Arguments: number of values, values per bucket.
template <int Bits, class T, bool Encode>
void qsgd(benchmark::State& state) {
  using codec = spar::kernel::qsgd_codec<Bits>;
  const auto n = static_cast<std::size_t>(state.range(0)), bucket = static_cast<std::size_t>(state.range(1));
  std::vector<T> x = gaussian<T>(n);
  std::vector<std::byte> bytes(codec::template encoded_bytes<T>(n, bucket));
  codec::encode(x.data(), n, bucket, bytes.data(), 1, 2, 0);
  std::uint64_t call = 0;
  for (auto _ : state) {
    if constexpr (Encode)
      codec::encode(x.data(), n, bucket, bytes.data(), 1, ++call, 0);
    else
      codec::decode(bytes.data(), n, bucket, x.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n * sizeof(T) + bytes.size()));
}

/// Encodes in turn with a copy of 64 MiB, because both speeds vary over time. `of_copy`: throughput (bytes read plus
/// written per second) divided by that of the copy, as median; `from` and `to`: 10th and 90th percentile.
template <int Bits>
void encode_beside_copy(benchmark::State& state) {
  using codec = spar::kernel::qsgd_codec<Bits>;
  constexpr std::size_t n = 1 << 22, bucket = 1024, copied = 1 << 24;
  const std::vector<float> x = gaussian<float>(n), from(copied, 1.0F);
  std::vector<float> to(copied);
  std::vector<std::byte> bytes(codec::template encoded_bytes<float>(n, bucket));
  const auto seconds = [](auto f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::uint64_t call = 0;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double copy = seconds([&] { std::memcpy(to.data(), from.data(), copied * sizeof(float)); });
    const double encode = seconds([&] { codec::encode(x.data(), n, bucket, bytes.data(), 1, ++call, 0); });
    const auto encoded = static_cast<double>(n * sizeof(float) + bytes.size());
    ratios.push_back(encoded / encode * copy / (2 * copied * sizeof(float)));
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["of_copy"] = ratios[ratios.size() / 2];
  state.counters["from"] = ratios[ratios.size() / 10];
  state.counters["to"] = ratios[ratios.size() - 1 - ratios.size() / 10];
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "bucket"})->Args({1 << 14, 1024})->Args({1 << 22, 1024})->Args({1 << 14, 128});
}

BENCHMARK(encode_beside_copy<8>)->Iterations(41);
BENCHMARK(encode_beside_copy<4>)->Iterations(41);
BENCHMARK(encode_beside_copy<2>)->Iterations(41);
BENCHMARK(kernel_bench::copy_bandwidth)->Arg(1 << 16)->Arg(1 << 24);
BENCHMARK(qsgd<8, float, true>)->Apply(sizes);
BENCHMARK(qsgd<4, float, true>)->Apply(sizes);
BENCHMARK(qsgd<2, float, true>)->Apply(sizes);
BENCHMARK(qsgd<8, float, false>)->Apply(sizes);
BENCHMARK(qsgd<4, float, false>)->Apply(sizes);
BENCHMARK(qsgd<2, float, false>)->Apply(sizes);
BENCHMARK(qsgd<8, double, true>)->Apply(sizes);
BENCHMARK(qsgd<8, double, false>)->Apply(sizes);

} // namespace

BENCHMARK_MAIN();
