// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_topology prints the tree of a network and FlexReduce's plan for the tree.
#include <spar/model/tree_cost.hpp>
#include <spar/topology/flex_plan_json.hpp>
#include <spar/topology/tree_json.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace {

constexpr int failure = 1, usage = 2;

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Prints the tree of a network from a JSON file, and the plan of an allreduce over the tree."};
  std::string path, json_path;
  std::uint64_t n = 0;
  app.add_option("FILE", path, "JSON file with the tree (format: docs/guide/trees.md)")->required();
  const auto* plan_given = app.add_option("--plan", n, "plan an allreduce of this many values");
  app.add_option("--json", json_path, "write the plan to this file")->needs(const_cast<CLI::Option*>(plan_given));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    fmt::print(stderr, "spar_topology: {}\n", e.what());
    return usage;
  }
  try {
    const spar::tree topology = spar::read_tree(path);
    fmt::print("{}", topology.picture());
    if (plan_given->count() == 0) return 0;
    const spar::flex_plan plan(topology, n);
    fmt::print(
        "\nSums of {} values, level by level. Level 0 is the deepest of the tree; the last one joins the root's "
        "children.\nIn a call a -> b -> c, ranks a and b send and c owns the sum. The sums return the same way.\n"
        "{}\nrank  owns the sums of\n",
        n, plan.picture());
    for (spar::rank_t r = 0; r < plan.ranks(); ++r) fmt::print("{:>4}  [{}, {})\n", r, plan[r].begin, plan[r].end);
    fmt::print("\nsums that one rank owns on a level: mean {:.2f}, at most {}\n", plan.counts().mean,
               plan.counts().most);
    const double bytes = 4.0 * static_cast<double>(n);
    const auto seconds = spar::seconds_of_levels(topology, bytes);
    const auto calls = spar::most_calls_of_levels(topology);
    fmt::print("expected seconds of an allreduce of floats: {:.3g}, half of them to sum, half to return the sums\n",
               spar::seconds_flexreduce(topology, bytes));
    fmt::print("level  seconds to sum  sums that one rank owns (bound)\n");
    for (std::size_t l = 0; l < calls.size(); ++l) fmt::print("{:>5}  {:>14.3g}  {}\n", l, seconds[l], calls[l]);
    if (json_path.empty()) return 0;
    std::ofstream out(json_path);
    out << spar::to_json(plan);
    if (!out.flush()) {
      fmt::print(stderr, "spar_topology: cannot write {}: {}\n", json_path, std::strerror(errno));
      return failure;
    }
    return 0;
  } catch (const spar::invalid_argument& e) {
    fmt::print(stderr, "spar_topology: {}\n", e.what());
    return usage;
  }
}
