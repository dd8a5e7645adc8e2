// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement with ranks that are threads of this process.
#include "compressed_systems.hpp"
#include "measure_ranks.hpp"
#include "partial_systems.hpp"
#include "run.hpp"
#include "topology.hpp"

namespace perf {

std::vector<row> run_threads(const options& o, const own_systems& own) {
  return with_types(o, [&](auto type, auto index) {
    using T = typename decltype(type)::type;
    using Index = typename decltype(index)::type;
    const int ranks = o.ranks > 0 ? o.ranks : 2;
    std::vector<row> rows;
    const spar::tree topology = topology_of(o, std::vector<spar::rank_t>(static_cast<std::size_t>(ranks)));
    const root_links links(topology);
    for (const double density : o.densities) workload_of(o, density, ranks); // throws before any measurement
    for (const double density : o.densities) {
      const workload w = workload_of(o, density, ranks);
      registry<counting_links<spar::threads>, T, Index> all(o, density, topology);
      register_systems(all);
      own.register_in(all);
      register_compressed(all);
      register_partial(all);
      const auto systems = choose(all, o);
      const auto sums = sums_to_check<T>(w, o);
      std::vector<record> records;
      spar::thread_group group(ranks);
      group.run([&](spar::threads& inner) {
        counting_links<spar::threads> net(inner, links);
        spar::set_network(net, o.model);
        auto its = measure(net, o, w, systems, sums ? &*sums : nullptr);
        if (net.rank() == 0) records = std::move(its);
      });
      for (auto& r : rows_of(systems, std::move(records), w, density, sums, o)) rows.push_back(std::move(r));
    }
    return rows;
  });
}

std::vector<std::string> system_names() {
  registry<counting_links<spar::threads>, float, std::uint32_t> all({}, 0, spar::tree::flat(1));
  register_systems(all);
  std::vector<std::string> names;
  for (const auto& s : all.entries()) names.push_back(s.name);
  return names;
}

} // namespace perf
