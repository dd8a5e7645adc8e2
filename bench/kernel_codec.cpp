// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Throughput of the 16-bit codecs and zfp (bytes read plus bytes written per second), next to a copy. For QSGD see
// kernel_qsgd.cpp.
#include "kernel_input.hpp"

#include <spar/storage/codec.hpp>
#ifdef SPAR_HAS_ZFP
#include <spar/storage/zfp.hpp>
#endif

namespace {

/// Argument: number of values.
template <class Codec, bool Encode>
void run(benchmark::State& state, const Codec& codec) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  std::vector<std::byte> bytes(codec.template encoded_bytes<float>(n));
  codec.encode(std::span<const float>(x), std::span(bytes), {});
  for (auto _ : state) {
    if constexpr (Encode) {
      benchmark::DoNotOptimize(codec.carries(std::span<const float>(x)));
      codec.encode(std::span<const float>(x), std::span(bytes), {});
    } else {
      codec.decode(std::span<const std::byte>(bytes), std::span(x));
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n * sizeof(float) + bytes.size()));
}

template <class Codec>
void encode(benchmark::State& state) {
  run<Codec, true>(state, Codec{});
}
template <class Codec>
void decode(benchmark::State& state) {
  run<Codec, false>(state, Codec{});
}

BENCHMARK(kernel_bench::copy_bandwidth)->Arg(1 << 16)->Arg(1 << 24);
BENCHMARK(encode<spar::storage::bfloat16>)->Arg(1 << 14)->Arg(1 << 22);
BENCHMARK(decode<spar::storage::bfloat16>)->Arg(1 << 14)->Arg(1 << 22);
BENCHMARK(encode<spar::storage::half>)->Arg(1 << 14)->Arg(1 << 22);
BENCHMARK(decode<spar::storage::half>)->Arg(1 << 14)->Arg(1 << 22);

#ifdef SPAR_HAS_ZFP
/// Arguments: number of values, bits per value.
template <bool Encode>
void zfp(benchmark::State& state) {
  run<spar::storage::zfp, Encode>(state, {.rate = static_cast<double>(state.range(1))});
}
BENCHMARK(zfp<true>)->ArgNames({"n", "rate"})->Args({1 << 18, 8})->Args({1 << 18, 16});
BENCHMARK(zfp<false>)->ArgNames({"n", "rate"})->Args({1 << 18, 8})->Args({1 << 18, 16});
#endif

} // namespace

BENCHMARK_MAIN();
