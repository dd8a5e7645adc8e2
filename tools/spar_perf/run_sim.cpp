// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator: each call in a simulation of its own, which begins at time 0 on every rank.
#include "measure.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <cstdint>
#include <utility>

namespace perf {

namespace {

/// What the ranks of one simulation share; they run on one thread.
template <class T, class Index>
struct shared_state {
  std::vector<rank_data<T, Index>> ranks;
  const exact_sums* sums = nullptr; // to compare each result with
  const root_links* links = nullptr;
  bool check = false;
  record all;
  double slowest = 0;
  std::uint64_t hash = 0; // of rank 0's result
  bool hashed = false;
};

template <class T, class Index>
void note(shared_state<T, Index>& shared, const counting_links<spar::sim>& net, rank_data<T, Index>& data,
          const call_cost& call) {
  record own;
  note_cost(own, call);
  record& r = shared.all;
  r.counted = own.counted;
  r.messages = std::max(r.messages, own.messages);
  r.bytes_sent = std::max(r.bytes_sent, own.bytes_sent);
  r.bytes_received = std::max(r.bytes_received, own.bytes_received);
  r.header_bytes = std::max(r.header_bytes, own.header_bytes);
  r.total_bytes_sent += own.total_bytes_sent;
  r.total_bytes_received += own.total_bytes_received;
  shared.slowest = std::max(shared.slowest, call.seconds);
  if (net.rank() == 0) note_entries(r, nonzeros(data.result));
  if (shared.sums != nullptr) r.max_error = std::max(r.max_error, shared.sums->max_error(data.result));
  if (shared.check) {
    const std::uint64_t hash = hash_of(data.result);
    if (shared.hashed && hash != shared.hash) r.same_bits = false;
    shared.hash = hash;
    shared.hashed = true;
  }
  if (net.rank() > 0) data.sum = {}; // the first one's is needed once more
}

template <class T, class Index>
spar::task<void> simulated_rank(spar::sim& inner,
                                const std::vector<rank_system<counting_links<spar::sim>, T, Index>>* system,
                                shared_state<T, Index>* shared) {
  counting_links<spar::sim> net(inner, *shared->links);
  net.count_in(&shared->all.root_link_bytes);
  const auto rank = static_cast<std::size_t>(net.rank());
  auto& data = shared->ranks[rank];
  auto running = (*system)[rank].call(net, data);
  const call_cost call = co_await std::move(running);
  note(*shared, net, data, call);
}

} // namespace

std::vector<row> run_sim(const options& o) {
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
      const auto systems = choose(all, o);
      const auto sums = sums_to_check<T>(w, o);
      const bool any_dense = std::any_of(systems.begin(), systems.end(), [](const auto& s) { return s.dense; });
      shared_state<T, Index> shared;
      shared.check = o.check;
      shared.links = &links;
      for (int r = 0; r < ranks; ++r) shared.ranks.push_back(contribution<T, Index>(w, r, any_dense, o.in_place));
      std::vector<std::vector<rank_system<counting_links<spar::sim>, T, Index>>> running(
          systems.size()); // each on each rank
      std::vector<balance> balances;
      for (std::size_t s = 0; s < systems.size(); ++s) {
        for (int r = 0; r < ranks; ++r) running[s].push_back(systems[s].on_rank());
        balances.emplace_back(w, sums ? &*sums : nullptr, spar::index_range{0, o.check ? w.n : 0});
      }
      std::vector<record> records(systems.size());
      for (int i = 0; i < o.iterations; ++i) {
        for (int r = 0; r < ranks; ++r) next_step(shared.ranks[static_cast<std::size_t>(r)], w, r, i);
        for (std::size_t s = 0; s < systems.size(); ++s) {
          const bool balanced = o.check && is_balanced(systems[s], w);
          double largest = 0;
          for (std::size_t r = 0; r < shared.ranks.size(); ++r) {
            restore(shared.ranks[r], systems[s].dense);
            if (balanced) largest += largest_of<T>(running[s][r].residual(), shared.ranks[r].dense_in);
          }
          shared.sums = sums && !balanced ? &*sums : nullptr;
          shared.all = std::move(records[s]);
          shared.slowest = 0;
          shared.hashed = false;
          spar::simulator_options network;
          network.latency = o.latency;
          network.bandwidth = o.bandwidth;
          network.compute = systems[s].dense && !systems[s].feedback ? o.model.gamma_dense : o.model.gamma_sparse;
          network.cores = o.cores;
          network.jitter = o.jitter;
          // Without jitter, messages that a rank sends at the same time leave in its order, not in a random one.
          network.seed = o.jitter > 0 ? o.seed + static_cast<std::uint64_t>(i) : 0;
          network.ranks_per_host = o.ranks_per_host;
          if (o.topology != "auto") network.tree = topology.network();
          spar::simulator engine(ranks, network);
          if (o.topology == "auto" || !o.network.empty()) {
            for (int r = 0; r < ranks; ++r) engine.rank(r).node().know(o.model);
          }
          engine.run([&](spar::sim& net) { return simulated_rank(net, &running[s], &shared); });
          records[s] = std::move(shared.all);
          if (balanced) {
            balances[s].add_call(i, shared.ranks[0].result);
            std::vector<double> residuals(w.n);
            for (const auto& its : running[s]) {
              const auto residual = its.residual();
              for (std::size_t x = 0; x < residual.size(); ++x) residuals[x] += static_cast<double>(residual[x]);
            }
            records[s].error_bound += allowed_error<T>(w, systems[s].relative_error, largest);
            records[s].max_error = std::max(records[s].max_error, balances[s].max_error(residuals));
          }
          shared.ranks[0].sum = {};
          records[s].seconds.push_back(shared.slowest);
        }
      }
      for (auto& r : rows_of(systems, std::move(records), w, density, sums)) rows.push_back(std::move(r));
    }
    return rows;
  });
}

} // namespace perf
