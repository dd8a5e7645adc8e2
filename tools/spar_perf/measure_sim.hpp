// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator: one simulation per call, or one for all calls of a system.
#pragma once

#include "interrupt.hpp"
#include "measure.hpp"
#include "progress.hpp"

#include <spar/sim.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar::perf {

/// State that the ranks of one simulation share without locking, because they run on one thread.
template <class T, class Index>
struct shared_state {
  std::vector<rank_data<T, Index>> ranks;
  const exact_sums* sums = nullptr; // each result is compared with these sums; null for no comparison
  const root_links* links = nullptr;
  bool check = false;
  bool traced = false;         // whether the current call is traced
  bool keeps_timeline = false; // of the current call
  record all;
  // Of the current call:
  double slowest = 0;
  double total = 0;       // seconds of all ranks together
  double coding = 0;      // seconds of encoding and decoding, the largest of any rank
  std::uint64_t hash = 0; // of rank 0's result
  bool hashed = false;

  /// Before call number `i`.
  void trace_call(const options& o, int i) {
    traced = i >= o.iterations;
    keeps_timeline = traced && i + 1 == calls_of(o) && !o.trace.empty();
  }
  void begin_call() {
    slowest = total = coding = 0;
    hashed = false;
  }
};

template <class T, class Index>
void note_bits(shared_state<T, Index>& shared, const rank_data<T, Index>& data) {
  const std::uint64_t hash = hash_of(data.result);
  if (shared.hashed && hash != shared.hash) shared.all.same_bits = false;
  shared.hash = hash;
  shared.hashed = true;
}

template <class T, class Index>
void note_trace(shared_state<T, Index>& shared, measured_net& net, const call_cost& call) {
  record& r = shared.all;
  note_phases(r, call, net.trace().seconds());
  if (!shared.keeps_timeline) return;
  r.timeline.resize(static_cast<std::size_t>(net.size()));
  r.timeline[static_cast<std::size_t>(net.rank())] = net.trace().events();
}

template <class T, class Index>
void note(shared_state<T, Index>& shared, measured_net& net, rank_data<T, Index>& data, const call_cost& call,
          bool partial) {
  record& r = shared.all;
  if (!shared.traced) note_cost(r, call);
  shared.slowest = std::max(shared.slowest, call.seconds);
  shared.total += call.seconds;
  shared.coding = std::max(shared.coding, call.cost.codec_seconds);
  if (net.rank() == 0 && !shared.traced) {
    note_entries(r, nonzeros(data.result));
    note_active(r, call, partial, static_cast<int>(net.size()));
  }
  if (shared.sums != nullptr) note_errors(r, shared.sums->errors_of(data.result), data.n);
  if (shared.check) note_bits(shared, data);
  if (shared.traced) note_trace(shared, net, call);
  if (net.rank() > 0) data.sum = {}; // the caller still reads rank 0's result
}

/// One rank in a simulation of one call, which all ranks start at time 0.
template <class T, class Index>
spar::task<void> simulated_rank(spar::sim& inner, const std::vector<rank_system<T, Index>>* system,
                                shared_state<T, Index>* shared) {
  measured_net net(inner, *shared->links);
  net.count_in(shared->traced ? nullptr : &shared->all.root_link_bytes);
  net.trace().record(shared->traced);
  const auto rank = static_cast<std::size_t>(net.rank());
  auto& data = shared->ranks[rank];
  auto running = (*system)[rank].call(net, data);
  const call_cost call = co_await std::move(running);
  note(*shared, net, data, call, false);
}

/// State that the ranks share in a simulation of all calls of a system.
template <class T, class Index>
struct shared_calls : shared_state<T, Index> {
  const options* given = nullptr;
  const workload* work = nullptr;
  const system_entry<T, Index>* system = nullptr;
  balance* open = nullptr; // checks results together with residuals; null for no such check
  double largest = 0;
  int through = 0; // number of ranks whose current call has completed
  int begun = -1;  // number of the last iteration that a rank has begun
  int end = 0;     // number of iterations
  std::optional<progress> shown;
  std::vector<double> residuals;

  /// Whether iteration `i` takes place. An interruption ends the simulation before an iteration that no rank has begun.
  bool begins(int i) {
    if (i > begun) {
      begun = i;
      if (interrupted()) end = std::min(end, i);
      shown->begin_step();
    }
    return i < end;
  }

  void end_call(int iteration) {
    if (!this->traced) {
      this->all.seconds.push_back(this->slowest);
      this->all.codec_seconds.push_back(this->coding);
      if (given->skew.any()) this->all.latencies.push_back(this->total / work->ranks);
    }
    if (open != nullptr) {
      open->add_call(iteration, this->ranks[0].result);
      this->all.error_bound += allowed_error<T>(*work, system->relative_error + system->value_error, largest);
    }
    this->begin_call();
    largest = 0;
    through = 0;
  }
};

/// One rank in a simulation of all calls. A barrier precedes each call, and the rank may be late for the call by
/// `--skew`.
template <class T, class Index>
spar::task<void> simulated_calls(spar::sim& inner, shared_calls<T, Index>* shared) {
  measured_net net(inner, *shared->links);
  const auto& system = *shared->system;
  const options& o = *shared->given;
  const auto rank = static_cast<int>(net.rank());
  auto& data = shared->ranks[static_cast<std::size_t>(rank)];
  const auto own = system.on_rank();
  if (own.open) own.open(net);
  for (int i = 0;; ++i) {
    std::array<std::uint64_t, 1> nothing{};
    auto barrier = spar::start_allreduce(net, std::span<std::uint64_t>(nothing), spar::recursive_doubling{});
    co_await std::move(barrier);
    if (!shared->begins(i)) break; // after the barrier, all ranks have recorded their last result
    next_step(data, *shared->work, rank, i);
    shared->trace_call(o, i);
    restore(data, system.dense);
    if (shared->open != nullptr) shared->largest += largest_brought(system, own, data);
    net.count_in(shared->traced ? nullptr : &shared->all.root_link_bytes);
    net.trace().clear();
    net.trace().record(shared->traced);
    const double late = o.skew.of(rank, shared->work->ranks, i);
    if (late > 0) co_await inner.sleep(late);
    auto running = own.call(net, data);
    const call_cost call = co_await std::move(running);
    net.count_in(nullptr);
    net.trace().record(false);
    note(*shared, net, data, call, system.partial);
    if (++shared->through == shared->work->ranks) shared->end_call(i);
  }
  if (system.partial) {
    auto rest = own.drain(net, data);
    co_await std::move(rest);
    if (shared->check) note_bits(*shared, data);
    if (shared->open != nullptr && rank == 0) shared->open->take(data.result);
  }
  if (shared->open != nullptr) {
    const auto residual = own.residual();
    for (std::size_t x = 0; x < residual.size(); ++x) shared->residuals[x] += static_cast<double>(residual[x]);
  }
  data.sum = {}; // the memory belongs to the simulation, which ends before `data`
}

/// The simulated network for an iteration of a system.
template <class System>
spar::simulator_options network_of(const options& o, const System& system, const spar::tree& topology, int iteration) {
  spar::simulator_options network;
  network.latency = o.latency;
  network.overhead = o.overhead;
  network.bandwidth = o.bandwidth;
  network.compute = system.dense && !system.feedback ? o.model.gamma_dense : o.model.gamma_sparse;
  network.cores = o.cores;
  network.jitter = o.jitter;
  // Without jitter the seed is 0: messages that a rank sends at the same time leave in program order, not in a random
  // order.
  network.seed = o.jitter > 0 ? o.seed + static_cast<std::uint64_t>(iteration) : 0;
  network.ranks_per_host = o.ranks_per_host;
  if (o.topology != "auto") network.tree = topology.network();
  return network;
}

template <class Program>
void simulate(const options& o, const spar::simulator_options& network, int ranks, const Program& program) {
  spar::simulator engine(ranks, network);
  if (o.topology == "auto" || !o.network.empty()) {
    for (int r = 0; r < ranks; ++r) engine.rank(r).port().set_network(o.model);
  }
  engine.run(program);
}

/// Runs all calls of a system in one simulation.
template <class T, class Index>
record simulate_calls(const options& o, const workload& w, const spar::tree& topology,
                      const system_entry<T, Index>& system, shared_state<T, Index>& state, const exact_sums* sums) {
  const bool balanced = o.check && is_balanced(system, w);
  balance open(w, sums, spar::index_range{0, balanced ? w.n : 0});
  shared_calls<T, Index> shared;
  shared.ranks = std::move(state.ranks);
  shared.links = state.links;
  shared.check = state.check;
  shared.sums = balanced ? nullptr : sums;
  shared.given = &o;
  shared.work = &w;
  shared.system = &system;
  shared.end = calls_of(o);
  shared.shown.emplace(system.name + ", n " + std::to_string(w.n), shared.end);
  if (balanced) shared.open = &open;
  shared.residuals.resize(balanced ? w.n : 0);
  simulate(o, network_of(o, system, topology, 0), w.ranks,
           [&](spar::sim& net) { return simulated_calls(net, &shared); });
  if (balanced) note_errors(shared.all, open.errors_of(shared.residuals), w.n);
  state.ranks = std::move(shared.ranks);
  return std::move(shared.all);
}

/// Measures all systems in the simulator. Each call runs in a new simulation, which begins at time 0 on every rank; if
/// ranks are late or a system is partial, one simulation runs all calls of a system.
template <class T, class Index>
std::vector<record> measure_simulated(const options& o, const workload& w, const spar::tree& topology,
                                      const std::vector<system_entry<T, Index>>& systems, const exact_sums* sums) {
  const int ranks = w.ranks;
  const root_links links(topology);
  const bool any_dense = std::any_of(systems.begin(), systems.end(), [](const auto& s) { return s.dense; });
  shared_state<T, Index> shared;
  shared.check = o.check;
  shared.links = &links;
  for (int r = 0; r < ranks; ++r) shared.ranks.push_back(contribution<T, Index>(w, r, any_dense, o.in_place));
  const auto in_one = [&](std::size_t s) { return o.skew.any() || systems[s].partial; };
  std::vector<std::vector<rank_system<T, Index>>> running(systems.size()); // running[s][r]: system s on rank r
  std::vector<balance> balances;
  for (std::size_t s = 0; s < systems.size(); ++s) {
    for (int r = 0; r < ranks; ++r) running[s].push_back(systems[s].on_rank());
    balances.emplace_back(w, sums, spar::index_range{0, o.check && !in_one(s) ? w.n : 0});
  }
  std::vector<record> records(systems.size());
  int apart = 0; // number of systems that are simulated call by call
  for (std::size_t s = 0; s < systems.size(); ++s) {
    if (in_one(s))
      records[s] = simulate_calls(o, w, topology, systems[s], shared, sums);
    else
      ++apart;
  }
  progress shown("n " + std::to_string(w.n) + ", k " + std::to_string(w.k), calls_of(o) * apart);
  for (int i = 0; i < calls_of(o) && !interrupted(); ++i) {
    shared.trace_call(o, i);
    for (int r = 0; r < ranks; ++r) next_step(shared.ranks[static_cast<std::size_t>(r)], w, r, i);
    for (std::size_t s = 0; s < systems.size(); ++s) {
      if (in_one(s) || (i == 0 && interrupted())) continue;
      shown.begin_step();
      const bool balanced = o.check && is_balanced(systems[s], w);
      double largest = 0;
      for (std::size_t r = 0; r < shared.ranks.size(); ++r) {
        restore(shared.ranks[r], systems[s].dense);
        if (balanced) largest += largest_of<T>(running[s][r].residual(), shared.ranks[r].dense_in);
      }
      shared.sums = balanced ? nullptr : sums;
      shared.all = std::move(records[s]);
      shared.begin_call();
      simulate(o, network_of(o, systems[s], topology, i), ranks,
               [&](spar::sim& net) { return simulated_rank(net, &running[s], &shared); });
      records[s] = std::move(shared.all);
      if (balanced) {
        balances[s].add_call(i, shared.ranks[0].result);
        std::vector<double> residuals(w.n);
        for (const auto& its : running[s]) {
          const auto residual = its.residual();
          for (std::size_t x = 0; x < residual.size(); ++x) residuals[x] += static_cast<double>(residual[x]);
        }
        records[s].error_bound += allowed_error<T>(w, systems[s].relative_error + systems[s].value_error, largest);
        note_errors(records[s], balances[s].errors_of(residuals), w.n);
      }
      shared.ranks[0].sum = {};
      if (shared.traced) continue;
      records[s].seconds.push_back(shared.slowest);
      records[s].codec_seconds.push_back(shared.coding);
    }
  }
  for (record& r : records) {
    if (r.phases) r.phases->average();
  }
  return records;
}

} // namespace spar::perf
