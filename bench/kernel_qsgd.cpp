// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// QSGD buckets; entries a second, and bytes read plus bytes written beside a copy.
#include "kernel_input.hpp"

#include <spar/storage/kernel/qsgd.hpp>

namespace {

template <class T>
std::vector<T> gaussian(std::size_t n) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<T> x(n);
  for (auto& value : x) value = static_cast<T>(normal(random));
  return x;
}

/// Arguments: entries, entries a bucket.
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

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "bucket"})->Args({1 << 14, 1024})->Args({1 << 22, 1024})->Args({1 << 14, 128});
}

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
