// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_topology: shows a tree of a network, and what FlexReduce plans for it.
#include <spar/collective/flex_plan.hpp>
#include <spar/topology/tree_json.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr int failure = 1, usage = 2;

using nlohmann::json;

/// Reduce calls of each rank, as their root, on each level.
std::vector<std::size_t> calls_of(const spar::flex_plan& plan) {
  std::vector<std::size_t> calls;
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    std::vector<std::size_t> here(static_cast<std::size_t>(plan.ranks()));
    for (const auto& c : plan.calls(level)) ++here[static_cast<std::size_t>(plan.chain(c).back())];
    calls.insert(calls.end(), here.begin(), here.end());
  }
  return calls;
}

double mean_of(const std::vector<std::size_t>& calls) {
  double sum = 0;
  for (const std::size_t c : calls) sum += static_cast<double>(c);
  return calls.empty() ? 0 : sum / static_cast<double>(calls.size());
}
std::size_t largest_of(const std::vector<std::size_t>& calls) {
  return calls.empty() ? 0 : *std::max_element(calls.begin(), calls.end());
}

json as_json(const spar::flex_plan& plan) {
  const auto range = [](const spar::index_range& r) { return json{r.begin, r.end}; };
  json all{{"n", plan.dimension()},
           {"ranks", plan.ranks()},
           {"ranges", json::array()},
           {"subranges", json::array()},
           {"participants", json::array()}};
  for (spar::rank_t r = 0; r < plan.ranks(); ++r) all["ranges"].push_back(range(plan[r]));
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    json subranges = json::array(), participants = json::array();
    for (const auto& c : plan.calls(level)) {
      subranges.push_back(range(c.range));
      const auto chain = plan.chain(c);
      participants.push_back(std::vector<spar::rank_t>(chain.begin(), chain.end()));
    }
    all["subranges"].push_back(subranges);
    all["participants"].push_back(participants);
  }
  const auto calls = calls_of(plan);
  all["calls_mean"] = mean_of(calls);
  all["calls_max"] = largest_of(calls);
  return all;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows the tree of a network in a JSON file, and the plan of an allreduce over it."};
  std::string path, json_path;
  std::uint64_t n = 0;
  app.add_option("FILE", path, "the tree, as docs/flexreduce.md describes it")->required();
  const auto* plan_given = app.add_option("--plan", n, "plan an allreduce of so many values");
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
    const auto calls = calls_of(plan);
    fmt::print("\n{}\nrank  owns\n", plan.picture());
    for (spar::rank_t r = 0; r < plan.ranks(); ++r) fmt::print("{:>4}  [{}, {})\n", r, plan[r].begin, plan[r].end);
    fmt::print("\ncalls of a rank on a level: {:.2f} in the mean, at most {}\n", mean_of(calls), largest_of(calls));
    if (json_path.empty()) return 0;
    std::ofstream out(json_path);
    out << as_json(plan).dump(1) << '\n';
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
