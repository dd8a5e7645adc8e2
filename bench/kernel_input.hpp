// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random coordinate streams for the kernel benchmarks, and the bandwidth of a copy for comparison.
#pragma once

#include <spar/core/coo_span.hpp>

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
  spar::coo_span<T, Index> view() const { return {std::span<const Index>(indices), std::span<const T>(values)}; }
};

enum class pattern { uniform, clustered, identical, disjoint };

/// A stream of about `count` entries in [0, n). Uniform: independent positions. Clustered: runs of 64 adjacent entries
/// at random positions. Identical: uniform, with the same seed on each rank. Disjoint: uniform in the rank's part of
/// [0, n).
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

/// The bandwidth of memcpy: bytes read plus bytes written per second. Argument: bytes.
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
