// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the algorithms on simulated ranks and writes what each rank sent, received and computed, as traces in JSON.
// scripts/figures draws these traces for docs/concepts.md.

#include <spar/sim.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/tracing.hpp>
#include <spar/tree.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr spar::tree_link inside{.bandwidth = 2e8, .latency = 1e-6};  // 5 ns per byte
constexpr spar::tree_link between{.bandwidth = 1e8, .latency = 2e-6}; // the links of a host
constexpr double compute = 5e-10;                                     // seconds per entry or value

/// What one rank did.
struct rank_record {
  std::string events; // its trace
  double begin = 0;   // when its call began, in seconds
  double end = 0;     // when its call ended, in seconds
  std::string result; // a sentence about the result, or empty
};

/// One picture: the name of its file, and the sentences of its heading.
struct figure {
  std::string name;
  std::string title;
  std::string input;
  std::vector<spar::rank_t> hosts; // numbers of ranks; one host for each rank if empty
};

/// Runs `program(net, record)` on simulated ranks and prints the figure with the records of all ranks.
class recorder {
 public:
  template <class Program>
  void run(const figure& what, spar::rank_t ranks, const Program& program) {
    run(what, ranks, {.latency = inside.latency, .bandwidth = inside.bandwidth, .compute = compute}, program);
  }
  template <class Program>
  void run(const figure& what, const spar::tree& topology, const Program& program) {
    run(what, topology.ranks(), {.compute = compute, .tree = topology.network()}, program);
  }
  ~recorder() { std::puts("\n]"); }

 private:
  template <class Program>
  void run(const figure& what, spar::rank_t ranks, const spar::simulator_options& options, const Program& program) {
    std::vector<rank_record> records(static_cast<std::size_t>(ranks));
    spar::simulator network(ranks, options);
    network.run([&](spar::sim& net) { return program(net, &records[static_cast<std::size_t>(net.rank())]); });
    std::printf("%s{\"name\":\"%s\",\"title\":\"%s\",\"input\":\"%s\",\"result\":\"%s\",\"hosts\":[",
                first_ ? "[\n" : ",\n", what.name.c_str(), what.title.c_str(), what.input.c_str(),
                records[0].result.c_str());
    first_ = false;
    for (std::size_t i = 0; i < what.hosts.size(); ++i) std::printf("%s%d", i == 0 ? "" : ",", what.hosts[i]);
    std::printf("],\"calls\":[");
    for (const rank_record& r : records)
      std::printf("%s[%.3f,%.3f]", &r == records.data() ? "" : ",", 1e6 * r.begin, 1e6 * r.end);
    std::vector<std::string> traces;
    for (rank_record& r : records) traces.push_back(std::move(r.events));
    std::printf("],\n\"trace\":%s}", spar::trace_file(traces).c_str());
  }

  bool first_ = true;
};

constexpr std::size_t sparse_length = 256;
constexpr std::size_t sparse_count = 8;

/// The indices of a rank's entries lie in [0, 8 * spacing). Some occur on all ranks, some on half of the ranks, and
/// some on one rank. Each block of `spacing` indices contains one index of each rank; 32 spreads the indices evenly.
std::vector<std::uint32_t> indices_of(spar::rank_t rank, std::uint32_t spacing) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < sparse_count; ++i)
    indices.push_back(spacing * i + spacing / 8 * (static_cast<std::uint32_t>(rank) * i % 8));
  return indices;
}
/// A vector whose 8 largest values are those at the indices of a rank, and greater for lower indices.
std::vector<float> values_of(spar::rank_t rank, std::uint32_t spacing) {
  std::vector<float> x(sparse_length, 0.5F);
  float value = 16;
  for (const std::uint32_t i : indices_of(rank, spacing)) x[i] = value--;
  return x;
}

/// An allreduce of dense values.
template <class Algorithm>
struct of_values {
  Algorithm algorithm;
  spar::task<void> operator()(spar::sim& inner, rank_record* record) const& {
    spar::tracing net(inner);
    std::vector<float> x(256, 1.0F);
    record->begin = net.now();
    auto call = spar::start_allreduce(net, std::span(x), algorithm);
    co_await std::move(call);
    record->end = net.now();
    record->events = net.events();
  }
};

/// An allreduce of dense values from which the algorithm selects the largest.
template <class Algorithm>
struct of_largest {
  Algorithm algorithm;
  spar::task<void> operator()(spar::sim& inner, rank_record* record) const& {
    spar::tracing net(inner);
    std::vector<float> x = values_of(net.rank(), 32);
    record->begin = net.now();
    auto call = spar::start_allreduce(net, std::span(x), algorithm);
    co_await std::move(call);
    record->end = net.now();
    record->events = net.events();
  }
};

/// An allreduce of streams.
template <class Algorithm>
struct of_streams {
  Algorithm algorithm;
  std::uint32_t spacing = 32;
  spar::task<void> operator()(spar::sim& inner, rank_record* record) const& {
    spar::tracing net(inner);
    const std::vector<std::uint32_t> indices = indices_of(net.rank(), spacing);
    const std::vector<float> values(indices.size(), 1.0F);
    const auto mine = spar::sparse_view(sparse_length, indices, values);
    record->begin = net.now();
    auto call = spar::start_allreduce(net, mine, algorithm);
    co_await std::move(call);
    record->end = net.now();
    record->events = net.events();
  }
};

/// The second call of an error feedback, which uses the thresholds and boundaries that the first call has found.
template <class Reducer>
struct second_call {
  typename Reducer::algorithm_type algorithm;
  spar::task<void> operator()(spar::sim& inner, rank_record* record) const& {
    spar::tracing net(inner);
    Reducer reduce{algorithm};
    std::vector<float> x = values_of(net.rank(), 8);
    auto first = reduce.start(net, std::span(x));
    co_await std::move(first);
    co_await net.sleep(1e-3 - net.now()); // all ranks make the second call at the same time
    net.clear();
    // Residual and values together equal those of the first call.
    x = values_of(net.rank(), 8);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= reduce.residual()[i];
    record->begin = net.now();
    auto second = reduce.start(net, std::span(x));
    co_await std::move(second);
    record->end = net.now();
    record->events = net.events();
  }
};

/// A round of a partial allreduce for which the last rank is late.
struct of_round {
  spar::task<void> operator()(spar::sim& inner, rank_record* record) const& {
    spar::tracing net(inner);
    auto rounds = spar::partial_allreduce<float>(net, 256, spar::solo{}, spar::recursive_doubling{});
    std::vector<float> x(256, 1.0F);
    const bool late = net.rank() + 1 == net.size();
    co_await net.sleep(1e-6 * (late ? 22 : 1 + 0.4 * net.rank()));
    record->begin = net.now();
    auto call = rounds.start(std::span(x));
    const spar::participants by = co_await std::move(call);
    record->end = net.now();
    for (spar::rank_t r = 0; r < net.size(); ++r) {
      if (by[r] != spar::presence::fresh) continue;
      record->result += (record->result.empty() ? "sum of ranks " : ", ") + std::to_string(r);
    }
    record->events = net.events();
    auto rest = rounds.start_drain(std::span(x));
    co_await std::move(rest);
  }
};

spar::tree two_hosts(spar::rank_t of_first, spar::rank_t of_second) {
  spar::tree_node root{.links = between};
  spar::rank_t next = 0;
  for (const spar::rank_t ranks : {of_first, of_second}) {
    spar::tree_node host{.links = inside};
    for (spar::rank_t r = 0; r < ranks; ++r) host.children.push_back({.rank = next++});
    root.children.push_back(std::move(host));
  }
  return spar::tree(root);
}

} // namespace

int main() {
  using spar::compose;
  recorder pictures;
  const std::string values = "256 floats (1024 bytes) per rank";
  const std::string entries = "8 entries (64 bytes) of 256 per rank";
  const std::string low_entries = "8 entries (64 bytes) of 256 per rank, all below 64";
  const spar::selector::exact_topk largest{.k = sparse_count};

  pictures.run({"recursive_doubling", "Recursive doubling, sparse", entries, {}}, 4,
               of_streams<spar::recursive_doubling>{});
  pictures.run({"recursive_doubling_folded", "Recursive doubling, dense, with two folded ranks", values, {}}, 6,
               of_values<spar::recursive_doubling>{});
  pictures.run({"ring", "Ring", values, {}}, 4, of_values<spar::ring>{});
  pictures.run({"rabenseifner", "Rabenseifner's algorithm", values, {}}, 4, of_values<spar::rabenseifner>{});
  pictures.run({"ssar_split", "Split-allgather, sparse (SSAR)", entries, {}}, 4, of_streams<spar::ssar_split>{});
  pictures.run({"dsar_split", "Split-allgather, dense second phase (DSAR)", entries, {}}, 4,
               of_streams<spar::dsar_split>{});
  pictures.run({"gather_and_merge", "Gather and merge (TopkA, Gaussiank)", entries, {}}, 4,
               of_streams<spar::gather_and_merge>{});
  pictures.run({"tree_of_topk", "Tree of top-k (gTopk)", entries, {}}, 8,
               of_largest<spar::gtopk_allreduce>{{.select = largest}});
  pictures.run({"balanced_owners", "Balanced owners (Ok-Topk), second call", low_entries, {}}, 4,
               second_call<spar::ok_topk<float>>{{.select = {.k = sparse_count}}});
  pictures.run({"quantile_owners", "Quantile owners", low_entries, {}}, 4, of_streams<spar::quantile_owners>{{}, 8});
  const auto compressed_ring = compose(spar::storage::qsgd<8>{}, spar::ring{});
  pictures.run({"compressed_ring", "Ring with 8-bit values", values, {}}, 4,
               of_values<decltype(compressed_ring)>{compressed_ring});
  const auto compressed_doubling = compose(spar::storage::qsgd<8>{}, spar::recursive_doubling{});
  pictures.run({"compressed_doubling", "Recursive doubling with 8-bit values", values, {}}, 4,
               of_values<decltype(compressed_doubling)>{compressed_doubling});
  const auto two_shot = compose(spar::storage::qsgd<8>{}, spar::two_shot{});
  pictures.run({"two_shot", "Two-shot with 8-bit values", values, {}}, 4, of_values<decltype(two_shot)>{two_shot});
  pictures.run({"partial", "Partial allreduce (solo) with a late rank", values, {}}, 4, of_round{});

  const spar::tree_plans uneven(two_hosts(2, 3));
  const auto flexreduce = spar::flexreduce(uneven);
  pictures.run({"flexreduce", "FlexReduce on two hosts", values, {2, 3}}, uneven.topology(),
               of_values<decltype(flexreduce)>{flexreduce});
  const spar::tree_plans even(two_hosts(2, 2));
  const auto tree_sparcml = spar::tree_sparcml(even);
  pictures.run({"tree_sparcml", "Split-allgather on two hosts", entries, {2, 2}}, even.topology(),
               of_streams<decltype(tree_sparcml)>{tree_sparcml});
}
