// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator. Each call runs in a new simulation, which begins at time 0 on every rank; if ranks
// are late or a system is partial, one simulation runs all calls of a system.
#include "compressed_systems.hpp"
#include "measure_sim.hpp"
#include "partial_systems.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <cstdint>
#include <utility>

namespace perf {

namespace {

/// The simulated network for an iteration of a system.
template <class System>
spar::simulator_options network_of(const options& o, const System& system, const spar::tree& topology, int iteration) {
  spar::simulator_options network;
  network.latency = o.latency;
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
                      const system_entry<counting_links<spar::sim>, T, Index>& system, shared_state<T, Index>& state,
                      const exact_sums* sums) {
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
  if (balanced) shared.open = &open;
  shared.residuals.resize(balanced ? w.n : 0);
  simulate(o, network_of(o, system, topology, 0), w.ranks,
           [&](spar::sim& net) { return simulated_calls(net, &shared); });
  if (balanced) shared.all.max_error = open.max_error(shared.residuals);
  state.ranks = std::move(shared.ranks);
  return std::move(shared.all);
}

} // namespace

std::vector<row> run_sim(const options& o, const own_systems& own) {
  return with_types(o, [&](auto type, auto index) {
    using T = typename decltype(type)::type;
    using Index = typename decltype(index)::type;
    const int ranks = o.ranks > 0 ? o.ranks : 2;
    std::vector<row> rows;
    std::vector<spar::rank_t> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(r / o.ranks_per_host);
    const spar::tree topology = topology_of(o, hosts);
    const root_links links(topology);
    for (const double density : o.densities) workload_of(o, density, ranks);
    for (const double density : o.densities) {
      const workload w = workload_of(o, density, ranks);
      registry<counting_links<spar::sim>, T, Index> all(o, density, topology);
      register_systems(all);
      own.register_in(all);
      register_compressed(all);
      register_partial(all);
      const auto systems = choose(all, o);
      const auto sums = sums_to_check<T>(w, o);
      const bool any_dense = std::any_of(systems.begin(), systems.end(), [](const auto& s) { return s.dense; });
      shared_state<T, Index> shared;
      shared.check = o.check;
      shared.links = &links;
      for (int r = 0; r < ranks; ++r) shared.ranks.push_back(contribution<T, Index>(w, r, any_dense, o.in_place));
      const auto in_one = [&](std::size_t s) { return o.skew.any() || systems[s].partial; };
      std::vector<std::vector<rank_system<counting_links<spar::sim>, T, Index>>> running(
          systems.size()); // running[s][r]: system s on rank r
      std::vector<balance> balances;
      for (std::size_t s = 0; s < systems.size(); ++s) {
        for (int r = 0; r < ranks; ++r) running[s].push_back(systems[s].on_rank());
        balances.emplace_back(w, sums ? &*sums : nullptr, spar::index_range{0, o.check && !in_one(s) ? w.n : 0});
      }
      std::vector<record> records(systems.size());
      for (std::size_t s = 0; s < systems.size(); ++s) {
        if (in_one(s)) records[s] = simulate_calls(o, w, topology, systems[s], shared, sums ? &*sums : nullptr);
      }
      for (int i = 0; i < o.iterations; ++i) {
        for (int r = 0; r < ranks; ++r) next_step(shared.ranks[static_cast<std::size_t>(r)], w, r, i);
        for (std::size_t s = 0; s < systems.size(); ++s) {
          if (in_one(s)) continue;
          const bool balanced = o.check && is_balanced(systems[s], w);
          double largest = 0;
          for (std::size_t r = 0; r < shared.ranks.size(); ++r) {
            restore(shared.ranks[r], systems[s].dense);
            if (balanced) largest += largest_of<T>(running[s][r].residual(), shared.ranks[r].dense_in);
          }
          shared.sums = sums && !balanced ? &*sums : nullptr;
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
            records[s].max_error = std::max(records[s].max_error, balances[s].max_error(residuals));
          }
          shared.ranks[0].sum = {};
          records[s].seconds.push_back(shared.slowest);
          records[s].codec_seconds.push_back(shared.coding);
        }
      }
      for (auto& r : rows_of(systems, std::move(records), w, density, sums, o)) rows.push_back(std::move(r));
    }
    return rows;
  });
}

} // namespace perf
