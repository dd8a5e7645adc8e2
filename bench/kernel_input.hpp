// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random coordinate streams for the benchmarks of the local kernels, and the copy bandwidth beside which they are read.
#pragma once

#include <spar/storage/kernel/coo.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace kernel_bench {

template <class T, class Index>
struct owned_stream {
  std::vector<Index> indices;
  std::vector<T> values;
  spar::kernel::coo_span<T, Index> view() const {
    return {std::span<const Index>(indices), std::span<const T>(values)};
  }
};

enum class pattern { uniform, clustered, identical, disjoint };

/// About `count` entries of [0, n). Uniform: independent gaps. Clustered: runs of 64 adjacent entries at random places.
/// Identical: uniform, the same for each rank. Disjoint: uniform in the rank's own part of [0, n).
template <class T, class Index>
owned_stream<T, Index> make_stream(std::uint64_t n, std::uint64_t count, pattern kind, unsigned rank, unsigned ranks) {
  std::mt19937_64 random(kind == pattern::identical ? 1 : 17 + rank);
  std::uint64_t low = 0, high = n, run = 1;
  if (kind == pattern::disjoint) low = n / ranks * rank, high = low + n / ranks;
  if (kind == pattern::clustered) run = 64;
  std::vector<std::uint64_t> places(count / run);
  std::uniform_int_distribution<std::uint64_t> place(low, high - run);
  for (auto& at : places) at = place(random);
  std::sort(places.begin(), places.end());
  owned_stream<T, Index> stream;
  for (const std::uint64_t at : places) {
    for (std::uint64_t e = at; e < at + run; ++e) {
      if (!stream.indices.empty() && stream.indices.back() >= e) continue;
      stream.indices.push_back(static_cast<Index>(e));
      stream.values.push_back(static_cast<T>(static_cast<std::int64_t>(random() % 2001) - 1000));
    }
  }
  return stream;
}

/// Copy bandwidth of this machine, bytes read plus bytes written, at the size of the argument.
inline void copy_bandwidth(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> from(bytes, 1), to(bytes, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

} // namespace kernel_bench
