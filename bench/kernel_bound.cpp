// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Throughput of the storage bound: bytes of plain values per second to make codes of them, to sum codes in a message
// with those of a rank, and to turn codes into values, next to a copy of the values.
#include "kernel_input.hpp"

#include <spar/storage/kernel/packed_integers.hpp>
#include <spar/storage/kernel/quantise.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace {

constexpr std::size_t piece = 32768; // values of a message

/// Normal values with the step 2^-exponent, and their codes in messages.
template <class T>
struct input {
  std::size_t n;
  T step;
  std::vector<T> x;
  std::vector<std::int32_t> codes;
  std::vector<std::byte> bytes, other;
  std::size_t size = 0;

  explicit input(const benchmark::State& state)
      : n(static_cast<std::size_t>(state.range(0))), step(std::ldexp(T{1}, -static_cast<int>(state.range(1)))), x(n),
        codes(n), bytes(room() * (n / piece + 1)), other(bytes.size()) {
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    for (T& value : x) value = static_cast<T>(normal(random));
    encode();
  }
  static std::size_t room() { return spar::kernel::packed_room<std::int32_t>(piece, 32); }
  template <class F>
  void for_each_piece(F f) {
    for (std::size_t b = 0; b < n; b += piece) f(b, std::min(piece, n - b), b / piece * room());
  }
  void encode() {
    benchmark::DoNotOptimize(spar::kernel::largest_bits(x.data(), n));
    spar::kernel::quantise(x.data(), n, 1 / step, codes.data());
    size = 0;
    for_each_piece([&](std::size_t b, std::size_t m, std::size_t at) {
      size += spar::kernel::pack_integers(codes.data() + b, m, bytes.data() + at, 32);
    });
  }
  void sum_in_code() {
    for_each_piece([&](std::size_t b, std::size_t m, std::size_t at) {
      spar::kernel::unpack_integers<true>(bytes.data() + at, m, codes.data() + b);
      spar::kernel::pack_integers(codes.data() + b, m, other.data() + at, 32);
    });
  }
  void decode() {
    for_each_piece([&](std::size_t b, std::size_t m, std::size_t at) {
      spar::kernel::unpack_integers<false>(bytes.data() + at, m, codes.data() + b);
    });
    spar::kernel::dequantise(codes.data(), n, step, x.data());
  }
};

template <class T, void (input<T>::*Pass)()>
void pass(benchmark::State& state) {
  input<T> in(state);
  for (auto _ : state) {
    (in.*Pass)();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(in.n * sizeof(T)));
  state.counters["bits"] = 8 * static_cast<double>(in.size) / static_cast<double>(in.n);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "exponent"})->Args({1 << 15, 6})->Args({1 << 22, 6})->Args({1 << 22, 13});
}

BENCHMARK(kernel_bench::copy_bandwidth)->Arg(1 << 16)->Arg(1 << 24);
BENCHMARK(pass<float, &input<float>::encode>)->Apply(sizes);
BENCHMARK(pass<float, &input<float>::sum_in_code>)->Apply(sizes);
BENCHMARK(pass<float, &input<float>::decode>)->Apply(sizes);
BENCHMARK(pass<double, &input<double>::encode>)->Apply(sizes);
BENCHMARK(pass<double, &input<double>::decode>)->Apply(sizes);

} // namespace

BENCHMARK_MAIN();
