// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement on ranks that run in parallel: threads and MPI.
#pragma once

#include "interrupt.hpp"
#include "measure.hpp"
#include "progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace spar::perf {

/// Waits for all ranks. Returns whether a rank was interrupted.
inline bool barrier(measured_net& net) {
  std::array<std::uint64_t, 1> stop{interrupted() ? 1U : 0U};
  spar::allreduce(net, std::span<std::uint64_t>(stop), spar::recursive_doubling{});
  return stop[0] != 0;
}

/// Gathers the texts of all ranks; the same on each rank.
inline std::vector<std::string> texts_of_all(measured_net& net, const std::string& text) {
  constexpr spar::recursive_doubling any_size;
  const auto ranks = static_cast<std::size_t>(net.size()), rank = static_cast<std::size_t>(net.rank());
  std::vector<std::uint64_t> lengths(ranks);
  lengths[rank] = text.size();
  spar::allreduce(net, std::span<std::uint64_t>(lengths), any_size);
  const std::size_t room = *std::max_element(lengths.begin(), lengths.end()) / sizeof(std::uint64_t) + 1;
  std::vector<std::uint64_t> all(ranks * room);
  std::memcpy(&all[rank * room], text.data(), text.size());
  spar::allreduce(net, std::span<std::uint64_t>(all), any_size);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) texts.emplace_back(reinterpret_cast<const char*>(&all[r * room]), lengths[r]);
  return texts;
}

/// Waits until the time `until`. With `serves`, the rank meanwhile takes part in rounds that other ranks have started:
/// between rounds it sleeps and checks for a new round every 100 us, so that there may be many more ranks than cores;
/// during a round it polls like a rank in a call.
inline void rest_until(measured_net& net, double until, bool serves) {
  constexpr double nap = 100e-6;
  for (double left = until - net.now(); left > 0; left = until - net.now()) {
    if (serves) net.progress(false);
    if (serves && net.port().node().busy())
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(serves ? std::min(nap, left) : left));
  }
}

/// Makes a call that is late by `seconds`. Meanwhile a progress thread serves a partial system's rounds, as in an
/// application. Over MPI there is no progress thread, because MPI would have to be initialised for threads: the rank
/// itself polls for rounds.
template <class T, class Index>
call_cost call_late(measured_net& net, const rank_system<T, Index>& system, rank_data<T, Index>& data, bool partial,
                    double seconds) {
  const double begin = net.now() + seconds;
  const std::shared_ptr<void> serving = partial ? net.serve() : nullptr;
  rest_until(net, begin, partial && !net.has_progress_thread());
  return spar::run_until_done(net, system.call(net, data));
}

/// Combines the records of all ranks; every rank gets the result.
inline void combine(measured_net& net, record& r, std::uint64_t hash) {
  constexpr spar::recursive_doubling any_size;
  spar::allreduce(net, std::span<double>(r.latencies), any_size);
  for (double& seconds : r.latencies) seconds /= static_cast<double>(net.size());
  spar::allreduce(net, std::span<double>(r.seconds), any_size, spar::maximum{});
  spar::allreduce(net, std::span<double>(r.select_seconds), any_size, spar::maximum{});
  spar::allreduce(net, std::span<double>(r.codec_seconds), any_size, spar::maximum{});
  for (double* const error : {&r.max_error, &r.mean_error, &r.rms_error})
    spar::allreduce(net, std::span<double>(error, 1), any_size, spar::maximum{});
  std::vector<std::uint64_t> largest{hash, ~hash}, total;
  for (const auto count : counts) {
    largest.push_back(r.largest.*count);
    total.push_back(r.total.*count);
  }
  spar::allreduce(net, std::span<std::uint64_t>(largest), any_size, spar::maximum{});
  spar::allreduce(net, std::span<std::uint64_t>(r.root_link_bytes), any_size, spar::sum{});
  spar::allreduce(net, std::span<std::uint64_t>(total), any_size, spar::sum{});
  if (r.phases) {
    std::array<double, phase_members.size()> seconds{};
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = *r.phases.*phase_members[i].second;
    spar::allreduce(net, std::span<double>(seconds), any_size);
    for (std::size_t i = 0; i < seconds.size(); ++i) *r.phases.*phase_members[i].second = seconds[i];
    r.phases->calls *= net.size();
    r.phases->average();
  }
  if (r.device) {
    std::array<std::uint64_t, 3> calls{r.device->launches, r.device->graph_launches, r.device->waits};
    spar::allreduce(net, std::span<std::uint64_t>(calls), any_size);
    r.device = device_calls{calls[0], calls[1], calls[2]};
  }
  r.same_bits = largest[0] == ~largest[1];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    r.largest.*counts[i] = largest[i + 2];
    r.total.*counts[i] = total[i];
  }
}

/// The sum of all ranks' residuals, restricted to this rank's block of the indices.
template <class T>
std::vector<double> residuals_of_all(measured_net& net, std::span<const T> residual, spar::index_range block) {
  if (residual.empty()) return std::vector<double>(block.size());
  std::vector<double> all(residual.begin(), residual.end());
  spar::reduce_scatter(net, std::span<double>(all));
  return {all.begin() + static_cast<std::ptrdiff_t>(block.begin), all.begin() + static_cast<std::ptrdiff_t>(block.end)};
}

/// Measures all systems on one rank. Every iteration runs every system once, each after a barrier, in a random order
/// that all ranks share: if a system always followed the same other system, the state of the caches and of the
/// operating system's scheduler would distort its times.
template <class T, class Index>
std::vector<record> measure(measured_net& net, const options& o, const workload& w,
                            const std::vector<system_entry<T, Index>>& systems, const exact_sums* sums) {
  const bool any_dense = std::any_of(systems.begin(), systems.end(), [](const auto& s) { return s.dense; });
  auto data = contribution<T, Index>(w, static_cast<int>(net.rank()), any_dense, o.in_place);
  const spar::index_range block = spar::uniform_ownership{w.n, net.size()}[net.rank()];
  std::vector<rank_system<T, Index>> own;
  std::vector<balance> balances;
  for (const auto& system : systems) {
    own.push_back(system.on_rank());
    if (own.back().open) own.back().open(net);
    balances.emplace_back(w, sums, o.check && is_balanced(system, w) ? block : spar::index_range{});
  }
  std::vector<record> records(systems.size());
  std::vector<std::uint64_t> hashes(systems.size());
  std::vector<std::size_t> order(systems.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(o.seed);
  const auto check_balance = [&](std::size_t s) {
    errors found = balances[s].errors_of(residuals_of_all(net, own[s].residual(), block));
    for (double* const over_blocks : {&found.sum, &found.squares})
      spar::allreduce(net, std::span<double>(over_blocks, 1), spar::recursive_doubling{});
    note_errors(records[s], found, w.n);
  };
  const int calls = calls_of(o);
  std::optional<progress> shown;
  if (net.rank() == 0) shown.emplace("n " + std::to_string(w.n) + ", k " + std::to_string(w.k), o.warmup + calls);
  for (int i = -o.warmup; i < calls && !barrier(net); ++i) {
    const bool timed = i >= 0 && i < o.iterations, traced = i >= o.iterations;
    if (shown) shown->begin_step();
    next_step(data, w, static_cast<int>(net.rank()), i);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t s : order) {
      record& r = records[s];
      const bool balanced = o.check && is_balanced(systems[s], w);
      restore(data, systems[s].dense);
      if (own[s].prepare) own[s].prepare(net, data);
      double largest = balanced ? largest_brought(systems[s], own[s], data) : 0;
      barrier(net);
      net.count_in(timed ? &r.root_link_bytes : nullptr);
      net.trace().clear();
      net.trace().record(traced);
      const double late = o.skew.of(static_cast<int>(net.rank()), w.ranks, i);
      const call_cost call = o.skew.any() ? call_late(net, own[s], data, systems[s].partial, late)
                                          : spar::run_until_done(net, own[s].call(net, data));
      net.count_in(nullptr);
      net.trace().record(false);
      if (own[s].fetch) {
        barrier(net);
        own[s].fetch(net, data);
      }
      if (traced) {
        note_phases(r, call, net.trace().seconds());
        if (i + 1 == calls && !o.trace.empty()) r.timeline = {net.trace().events()};
      }
      if (timed) {
        r.seconds.push_back(call.seconds);
        r.codec_seconds.push_back(call.cost.codec_seconds);
        if (o.skew.any()) r.latencies.push_back(call.seconds);
        note_active(r, call, systems[s].partial, w.ranks);
        if (call.select_seconds) r.select_seconds.push_back(*call.select_seconds);
        note_cost(r, call);
        note_entries(r, nonzeros(data.result));
      }
      if (balanced) { // in warm-up calls as well, because residuals carry over
        balances[s].add_call(i, data.result);
        spar::allreduce(net, std::span<double>(&largest, 1), spar::recursive_doubling{});
        r.error_bound += allowed_error<T>(w, systems[s].relative_error + systems[s].value_error, largest);
        if (!systems[s].partial) check_balance(s);
      } else if (o.check && i >= 0) {
        note_errors(r, sums->errors_of(data.result), w.n);
      }
      if (o.check) hashes[s] = hashes[s] * 0x9E3779B97F4A7C15U + hash_of(data.result);
      data.sum = {};
    }
  }
  for (std::size_t s = 0; s < systems.size(); ++s) {
    if (systems[s].partial) {
      spar::run_until_done(net, own[s].drain(net, data));
      balances[s].take(data.result);
      if (o.check) check_balance(s);
    }
    combine(net, records[s], hashes[s]);
    if (!records[s].timeline.empty()) records[s].timeline = texts_of_all(net, records[s].timeline[0]);
  }
  return records;
}

} // namespace spar::perf
