// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement on ranks that run in parallel: threads and MPI.
#pragma once

#include "measure.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace perf {

template <class Net>
void barrier(Net& net) {
  std::array<std::uint64_t, 1> nothing{};
  spar::allreduce(net, std::span<std::uint64_t>(nothing), spar::recursive_doubling{});
}

/// Makes one rank's record that of all ranks.
template <class Net>
void combine(Net& net, record& r, std::uint64_t hash) {
  constexpr spar::recursive_doubling any_size;
  spar::allreduce(net, std::span<double>(r.seconds), any_size, spar::maximum{});
  spar::allreduce(net, std::span<double>(&r.max_error, 1), any_size, spar::maximum{});
  std::array<std::uint64_t, 6> most{r.messages, r.bytes_sent, r.bytes_received, r.header_bytes, hash, ~hash};
  spar::allreduce(net, std::span<std::uint64_t>(most), any_size, spar::maximum{});
  std::array<std::uint64_t, 2> total{r.total_bytes_sent, r.total_bytes_received};
  spar::allreduce(net, std::span<std::uint64_t>(total), any_size, spar::sum{});
  r.messages = most[0];
  r.bytes_sent = most[1];
  r.bytes_received = most[2];
  r.header_bytes = most[3];
  r.same_bits = most[4] == ~most[5];
  r.total_bytes_sent = total[0];
  r.total_bytes_received = total[1];
}

/// One rank's part. Every iteration runs every system once, each after a barrier, in a random order that all ranks
/// share: none always follows the same other, which leaves its traces in caches and in the shares of the processor.
template <class Net, class T, class Index>
std::vector<record> measure(Net& net, const options& o, const workload& w,
                            const std::vector<system_entry<Net, T, Index>>& systems, const exact_sums* sums) {
  const bool any_dense = std::any_of(systems.begin(), systems.end(), [](const auto& s) { return s.dense; });
  auto data = contribution<T, Index>(w, static_cast<int>(net.rank()), any_dense, o.in_place);
  std::vector<record> records(systems.size());
  std::vector<std::uint64_t> hashes(systems.size());
  std::vector<std::size_t> order(systems.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(o.seed);
  for (int i = -o.warmup; i < o.iterations; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t s : order) {
      record& r = records[s];
      restore(data, systems[s].dense);
      barrier(net);
      const call_cost call = spar::wait(net, systems[s].call(net, data));
      if (i >= 0) {
        r.seconds.push_back(call.seconds);
        note_cost(r, call);
        if (i + 1 == o.iterations) r.nnz_out = nonzeros(data.result);
        if (sums != nullptr) {
          r.max_error = std::max(r.max_error, sums->max_error(data.result));
          hashes[s] = hashes[s] * 0x9E3779B97F4A7C15U + hash_of(data.result);
        }
      }
      data.sum = {};
    }
  }
  for (std::size_t s = 0; s < systems.size(); ++s) combine(net, records[s], hashes[s]);
  return records;
}

} // namespace perf
