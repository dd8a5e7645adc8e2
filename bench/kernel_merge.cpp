// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Throughput of merging and slicing coordinate streams (bytes read plus bytes written per second), next to a copy of
// the same size.
#include "kernel_input.hpp"

#include <spar/storage/kernel/merge.hpp>
#include <spar/storage/kernel/merge_many.hpp>
#include <spar/storage/kernel/slice.hpp>

#include <memory_resource>

namespace {

using kernel_bench::make_stream;
using kernel_bench::owned_stream;
using kernel_bench::pattern;
using spar::coo_span;

constexpr std::int64_t dimension = 1 << 20;

/// The textbook loop, for comparison: one unpredictable branch per entry.
template <class T, class Index>
std::size_t textbook_merge(coo_span<T, Index> left, coo_span<T, Index> right, Index* out_i, T* out_v) {
  std::size_t i = 0, j = 0, o = 0;
  while (i < left.size() && j < right.size()) {
    if (left.indices[i] < right.indices[j]) {
      out_i[o] = left.indices[i];
      out_v[o++] = left.values[i++];
    } else if (right.indices[j] < left.indices[i]) {
      out_i[o] = right.indices[j];
      out_v[o++] = right.values[j++];
    } else {
      out_i[o] = left.indices[i];
      out_v[o++] = static_cast<T>(left.values[i++] + right.values[j++]);
    }
  }
  for (; i < left.size(); ++i, ++o) out_i[o] = left.indices[i], out_v[o] = left.values[i];
  for (; j < right.size(); ++j, ++o) out_i[o] = right.indices[j], out_v[o] = right.values[j];
  return o;
}

template <class T, class Index, bool Textbook>
void merge_two(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  const auto kind = static_cast<pattern>(state.range(1));
  const auto a = make_stream<T, Index>(dimension, count, kind, 0, 2);
  const auto b = make_stream<T, Index>(dimension, count, kind, 1, 2);
  std::vector<Index> indices(a.indices.size() + b.indices.size());
  std::vector<T> values(indices.size());
  std::size_t written = 0;
  for (auto _ : state) {
    if constexpr (Textbook)
      written = textbook_merge(a.view(), b.view(), indices.data(), values.data());
    else
      written = spar::kernel::merge(a.view(), b.view(), indices.data(), values.data(), spar::sum{});
    benchmark::DoNotOptimize(written);
    benchmark::ClobberMemory();
  }
  const auto entries = static_cast<std::int64_t>(indices.size() + written);
  state.SetBytesProcessed(state.iterations() * entries * static_cast<std::int64_t>(sizeof(T) + sizeof(Index)));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(indices.size()));
}

/// Arguments: entries per part, number of parts, log2 of the range of indices, pattern.
template <class T, class Index>
void merge_many(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  const auto ranks = static_cast<unsigned>(state.range(1));
  const auto range = std::uint64_t{1} << state.range(2);
  std::vector<owned_stream<T, Index>> streams;
  std::vector<coo_span<T, Index>> parts;
  std::size_t total = 0;
  for (unsigned r = 0; r < ranks; ++r)
    streams.push_back(make_stream<T, Index>(range, count, static_cast<pattern>(state.range(3)), r, ranks));
  for (const auto& stream : streams) {
    parts.push_back(stream.view());
    total += stream.indices.size();
  }
  std::vector<Index> indices(total);
  std::vector<T> values(total);
  std::pmr::unsynchronized_pool_resource pool;
  std::size_t written = 0;
  for (auto _ : state) {
    written = spar::kernel::merge_many<T, Index>(parts, 0, range, indices.data(), values.data(), spar::sum{}, pool);
    benchmark::DoNotOptimize(written);
    benchmark::ClobberMemory();
  }
  const auto entries = static_cast<std::int64_t>(total + written);
  state.SetBytesProcessed(state.iterations() * entries * static_cast<std::int64_t>(sizeof(T) + sizeof(Index)));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(total));
}

/// Splits a stream among owners. Arguments: number of entries, number of owners.
void slice(benchmark::State& state) {
  const auto stream =
      make_stream<float, std::uint32_t>(dimension, static_cast<std::uint64_t>(state.range(0)), pattern::uniform, 0, 1);
  const auto owners = static_cast<std::uint64_t>(state.range(1));
  for (auto _ : state) {
    for (std::uint64_t p = 0; p < owners; ++p) {
      benchmark::DoNotOptimize(
          spar::kernel::slice(stream.view(), p * dimension / owners, (p + 1) * dimension / owners).size());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(owners));
}

template <class Index>
void validate(benchmark::State& state) {
  const auto stream =
      make_stream<float, Index>(dimension, static_cast<std::uint64_t>(state.range(0)), pattern::uniform, 0, 1);
  const std::span<const Index> indices(stream.indices);
  for (auto _ : state) benchmark::DoNotOptimize(spar::kernel::first_bad_index(indices, dimension));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(indices.size_bytes()));
}

constexpr auto uniform = static_cast<int>(pattern::uniform);
constexpr auto clustered = static_cast<int>(pattern::clustered);
constexpr auto identical = static_cast<int>(pattern::identical);
constexpr auto disjoint = static_cast<int>(pattern::disjoint);

void pairs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"k", "pattern"});
  for (const int kind : {uniform, clustered, identical, disjoint})
    for (const int count : {1 << 10, 10'000, 1 << 18}) bench->Args({count, kind});
}

void crowds(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"k", "parts", "log2_range", "pattern"});
  for (const int parts : {3, 4, 16, 64}) bench->Args({10'000 / parts, parts, 18, uniform});
  bench->Args({10'000, 4, 20, uniform})->Args({1'000, 4, 20, uniform})->Args({100'000, 4, 20, uniform});
  bench->Args({10'000, 16, 20, uniform})->Args({100'000, 16, 20, clustered})->Args({100'000, 16, 20, identical});
  bench->Args({10'000, 16, 24, uniform})->Args({10'000, 16, 28, uniform})->Args({10'000, 16, 31, uniform});
}

BENCHMARK(kernel_bench::copy_bandwidth)->Arg(1 << 14)->Arg(320'000)->Arg(1 << 23);
BENCHMARK(merge_two<float, std::uint32_t, false>)->Apply(pairs);
BENCHMARK(merge_two<float, std::uint32_t, true>)->Args({10'000, uniform});
BENCHMARK(merge_two<double, std::uint64_t, false>)->Args({10'000, uniform});
BENCHMARK(merge_many<float, std::uint32_t>)->Apply(crowds);
BENCHMARK(merge_many<double, std::uint64_t>)->Args({10'000, 16, 40, uniform});
BENCHMARK(slice)->Args({10'000, 16})->Args({1 << 18, 64});
BENCHMARK(validate<std::uint32_t>)->Arg(10'000)->Arg(1 << 18);
BENCHMARK(validate<std::uint64_t>)->Arg(10'000)->Arg(1 << 18);

} // namespace

BENCHMARK_MAIN();
