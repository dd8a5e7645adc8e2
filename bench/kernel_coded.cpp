// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The code of sparse streams: nanoseconds to encode and to decode an index, a value and a whole entry, in turn with a
// copy of the same entries.
#include "kernel_input.hpp"

#include <spar/storage/coded.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace {

constexpr std::size_t count = 1 << 16; // entries
constexpr std::uint64_t one_of = 100;  // the density is 1 / one_of

/// Uniform indices, and values with the distribution of those behind a threshold: Pareto with exponent 3.
struct input {
  kernel_bench::owned_stream<float, std::uint32_t> entries =
      kernel_bench::make_stream<float, std::uint32_t>(one_of * count, count, kernel_bench::pattern::uniform, 0, 1);
  input() {
    std::mt19937_64 random(5);
    std::exponential_distribution<double> above(3);
    for (float& v : entries.values)
      v = static_cast<float>((random() % 2 == 0 ? 1 : -1) * 0.01 * std::exp(above(random)));
  }
};

/// `ns`: of an index, a value or an entry; `bits`: that it takes; `copies`: the time divided by that of a copy of the
/// entries. Times are the least of all rounds, because disturbances only make them longer.
template <class Encode, class Decode>
void measure(benchmark::State& state, const input& in, bool decodes, Encode encode, Decode decode) {
  const auto& from = in.entries;
  const std::size_t entries = from.indices.size();
  constexpr std::size_t apart = 2112; // a copy is slow between places that differ by whole pages
  std::vector<std::byte> to(apart + entries * (sizeof(std::uint32_t) + sizeof(float)));
  const std::size_t bytes = encode();
  const auto seconds = [](auto f) {
    constexpr int calls = 4;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      f();
      benchmark::ClobberMemory();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  };
  std::vector<double> times, copies;
  for (auto _ : state) {
    copies.push_back(seconds([&] {
      std::memcpy(to.data() + apart, from.indices.data(), entries * sizeof(std::uint32_t));
      std::memcpy(to.data() + apart + entries * sizeof(std::uint32_t), from.values.data(), entries * sizeof(float));
    }));
    times.push_back(decodes ? seconds(decode) : seconds([&] { (void)encode(); }));
  }
  const double time = *std::min_element(times.begin(), times.end());
  state.counters["ns"] = 1e9 * time / static_cast<double>(entries);
  state.counters["bits"] = 8 * static_cast<double>(bytes) / static_cast<double>(entries);
  state.counters["copies"] = time / *std::min_element(copies.begin(), copies.end());
}

template <spar::kernel::coding How, bool Decodes>
void indices(benchmark::State& state) {
  const input in;
  const std::span<const std::uint32_t> from(in.entries.indices);
  std::vector<std::byte> bytes(spar::kernel::coded_indices_bound<std::uint32_t>(from.size()));
  std::vector<std::uint32_t> to(from.size());
  std::byte* end = bytes.data();
  const auto encode = [&] {
    end = spar::kernel::encode_indices(from, 0, How, bytes.data());
    return static_cast<std::size_t>(end - bytes.data());
  };
  measure(state, in, Decodes, encode, [&] {
    if (spar::kernel::decode_indices(bytes.data(), end, {0, one_of * count}, std::span(to)) != end)
      state.SkipWithError("wrong");
  });
}

template <spar::kernel::coding How, unsigned Dropped, bool Decodes>
void values(benchmark::State& state) {
  const input in;
  const std::span<const float> from(in.entries.values);
  std::vector<std::byte> bytes(spar::kernel::coded_values_bound<float>(from.size()));
  std::vector<float> to(from.size());
  std::byte* end = bytes.data();
  const auto encode = [&] {
    end = spar::kernel::encode_values<Dropped>(from, How, bytes.data());
    return static_cast<std::size_t>(end - bytes.data());
  };
  const auto decode = [&] {
    if (spar::kernel::decode_values<Dropped>(bytes.data(), end, std::span(to)) != end) state.SkipWithError("wrong");
  };
  measure(state, in, Decodes, encode, decode);
}

template <unsigned Mantissa, bool Fast, bool Decodes>
void entries(benchmark::State& state) {
  const spar::storage::coded<Mantissa> codec{.fast = Fast};
  const input in;
  const spar::index_range range{0, one_of * count};
  auto to = in.entries;
  std::vector<std::byte> bytes(codec.template bound<float, std::uint32_t>(range, to.indices.size()));
  std::size_t size = 0;
  const auto encode = [&] { return size = codec.encode(in.entries.view(), range, std::span(bytes)); };
  measure(state, in, Decodes, encode, [&] {
    codec.template decode<float, std::uint32_t>(std::span(bytes).first(size), range, {to.indices, to.values});
  });
}

using spar::kernel::coding;
constexpr int rounds = 401;
BENCHMARK(indices<coding::smallest, false>)->Iterations(rounds);
BENCHMARK(indices<coding::smallest, true>)->Iterations(rounds);
BENCHMARK(indices<coding::fastest, false>)->Iterations(rounds);
BENCHMARK(indices<coding::fastest, true>)->Iterations(rounds);
BENCHMARK(values<coding::smallest, 0, false>)->Iterations(rounds);
BENCHMARK(values<coding::smallest, 0, true>)->Iterations(rounds);
BENCHMARK(values<coding::smallest, 16, false>)->Iterations(rounds);
BENCHMARK(values<coding::smallest, 16, true>)->Iterations(rounds);
BENCHMARK(values<coding::fastest, 0, false>)->Iterations(rounds);
BENCHMARK(values<coding::fastest, 0, true>)->Iterations(rounds);
BENCHMARK(values<coding::fastest, 16, false>)->Iterations(rounds);
BENCHMARK(values<coding::fastest, 16, true>)->Iterations(rounds);
BENCHMARK(entries<52, false, false>)->Iterations(rounds);
BENCHMARK(entries<52, false, true>)->Iterations(rounds);
BENCHMARK(entries<7, false, false>)->Iterations(rounds);
BENCHMARK(entries<7, false, true>)->Iterations(rounds);
BENCHMARK(entries<52, true, false>)->Iterations(rounds);
BENCHMARK(entries<52, true, true>)->Iterations(rounds);

} // namespace

BENCHMARK_MAIN();
