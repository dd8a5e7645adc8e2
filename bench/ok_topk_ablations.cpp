// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures what each idea of Ok-Topk is worth, in the simulator: calls with an idea and without it (sections 3.1 and
// 5.3, figures 2 (b) and 7).
//
// ok_topk_ablations schedule CALLS RANKS NETWORK...   balanced regions, moves before the allgather, rotation
// ok_topk_ablations selection CALLS RANKS NETWORK...  threshold reuse, with error feedback
//
// Writes a JSON array to standard output: a row for each variant on each of the network files. CALLS follow the first
// calls, which are not counted: one of `schedule`, and 128 of `selection`, in which residuals grow. Each rank selects 1
// % of 1 Mi values.
#include <spar/collective/topk/owners_call.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/model/network_file.hpp>
#include <spar/sim.hpp>
#include <spar/topk.hpp>

#include <spar_perf/patterns.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iterator>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using stream = spar::sparse_stream<float>;
using view = spar::stream_view<float>;

constexpr std::uint64_t n = 1 << 20;
constexpr std::uint64_t k = 10486;
constexpr std::uint64_t tau = 64;    // calls from one search for boundaries to the next
constexpr std::uint64_t period = 32; // calls from one search for a threshold to the next
constexpr int grown = 128;           // calls with error feedback until the residuals have grown
/// The part of the indices, a twentieth, in which some patterns differ from drift.
constexpr std::uint64_t part_begin = n / 10 * 3, part_end = part_begin + n / 20;

/// - drift: that of spar_perf;
/// - clusters: the values of drift, but those in the part are five times as large, like those of a layer of a network.
///   About two thirds of the selected entries are in the part;
/// - embedding: the values of drift, but in the part, one row of 64 values in 50 is 50 times as large, another row on
///   each rank, and all other rows are zero, like the rows of the words in a batch. The part has about a tenth of the
///   selected entries, but most of the largest sums.
constexpr const char* patterns[] = {"drift", "clusters", "embedding"};
constexpr std::size_t pattern_count = std::size(patterns);

std::vector<float> drift(spar::rank_t rank, spar::rank_t ranks, int call) {
  const spar::perf::workload w{.n = n, .k = k, .ranks = ranks, .pattern = spar::perf::pattern_kind::drift};
  std::vector<double> values(n);
  spar::perf::gradient(w, rank, call, 0, values);
  return {values.begin(), values.end()};
}

/// Changes the values `x` of drift to those of a pattern.
void change(std::vector<float>& x, std::size_t pattern, spar::rank_t rank, int call) {
  constexpr std::uint64_t row = 64;
  const std::uint64_t own =
      spar::detail::splitmix(static_cast<std::uint64_t>(call) << 32 | static_cast<unsigned>(rank));
  for (std::uint64_t i = part_begin; pattern > 0 && i < part_end; ++i) {
    const float larger = spar::detail::splitmix(own ^ i / row) % 50 == 0 ? 50 : 0;
    x[i] *= pattern == 1 ? 5 : larger;
  }
}

spar::simulator_options simulated(const spar::network_model& network) {
  return {.latency = spar::shared_latency(network),
          .bandwidth = 1 / network.beta,
          .overhead = spar::message_overhead(network),
          .compute = network.gamma_sparse};
}

/// What the ranks note in a call; all ranks of a simulation run on one thread.
struct notes {
  double split = 0;          // the time at which the last rank had its sums
  double threshold = 0;      // the time at which the last rank had the global threshold
  double end = 0;            // the time at which the last rank had the result
  double received = 0;       // bytes that a rank received, the largest number of any rank
  double largest = 0;        // share of the sums, in means, the largest of any rank
  bool counted = false;      // whether the ranks added up the entries of each region before they sent entries
  bool repeated = false;     // whether the ranks sent their entries twice
  bool evened_out = false;   // whether ranks moved sums before the allgather
  std::vector<float> values; // of the result

  template <class Net>
  static void note(spar::channel<Net> net, double& at) {
    at = std::max(at, net.net().now());
  }
};

/// Algorithm 1 from the split on, without balanced regions, without moves before the allgather, or without both.
template <bool balanced_regions, bool evened_shares>
struct owners_variant : spar::algorithm_defaults {
  static constexpr std::string_view name = "owners_variant";
  spar::owners_state* state = nullptr;
  notes* its = nullptr;

  template <class Net, class Op>
  spar::task<stream> operator()(spar::channel<Net> net, view mine, Op op) const& {
    spar::owners_report report;
    const spar::selected_call<spar::flat, spar::storage::coo, float, spar::owners_state, spar::owners_report> call{
        {}, {}, spar::selector::topk_bounds::around(k, 0.1), period, *state, report, {}};
    const spar::uniform_ownership equal = call.over.owners(n, net.size());
    spar::owners_call owners(net, mine, equal, call, tau, balanced_regions);
    stream sums;
    if constexpr (balanced_regions) {
      const auto send_to_owners = [&](spar::block_quotas& quotas) {
        return reduce_to_owners(net, call.over, mine, owners.boundaries(), op, call.store, call.residual, quotas);
      };
      sums = co_await owners.exchange(send_to_owners);
    } else {
      sums = co_await spar::split_sparse(net, mine, equal, op);
    }
    notes::note(net, its->split);
    its->counted = report.counted_first;
    its->repeated = report.repeated;
    co_await owners.count(sums);
    co_await owners.threshold(sums);
    notes::note(net, its->threshold);
    its->largest = std::max(its->largest, static_cast<double>(sums.count() * static_cast<std::uint64_t>(net.size())) /
                                              static_cast<double>(owners.shares().back()));
    stream sum;
    if constexpr (evened_shares)
      sum = co_await gather_shares(net, call.over, std::move(sums), owners.boundaries(), owners.shares(),
                                   its->evened_out, call.store, call.residual);
    else
      sum = co_await gather_blocks(net, call.over, sums.view(), owners.boundaries(), op, call.store, call.residual);
    notes::note(net, its->end);
    co_return sum;
  }
};

/// The order in which a rank sends its slices to the owners.
enum class order { rotated, same }; // beginning with the next rank; beginning with rank 0 on each rank

/// The messages of the split alone.
struct split_messages : spar::algorithm_defaults {
  static constexpr std::string_view name = "split_messages";
  order by = order::rotated;
  bool at_once = true; // whether a rank starts all sends at once, or each one when the send before has ended
  std::span<const std::uint64_t> boundaries;
  notes* its = nullptr;

  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net> net, view mine, Op) const& {
    const spar::bounded_ownership owner{boundaries};
    const auto slices = co_await net.work().slices(mine, owner, net.size());
    spar::all_to_all<Net, spar::message_buffer> messages(net);
    for (spar::rank_t i = 1; i < net.size(); ++i) {
      const spar::rank_t peer = by == order::rotated ? messages.destination(i) : i - (i <= net.rank() ? 1 : 0);
      if (at_once)
        messages.send(peer, view_message(slices[peer]));
      else
        co_await net.send(peer, view_message(slices[peer]));
    }
    for (spar::rank_t i = 1; i < net.size(); ++i) co_await messages.arrival(i);
    notes::note(net, its->end);
    for (auto& s : messages.end()) co_await s;
  }
};

/// One call of `algorithms[r]` on each rank r.
template <class Algorithm>
struct program {
  const std::vector<stream>* x;
  notes* its;
  const std::vector<Algorithm>* algorithms;

  spar::task<void> operator()(spar::sim& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    const Algorithm& own = (*algorithms)[r];
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(n, own);
    auto pending = spar::start_collective(net, agreed, own, (*x)[r].view(), spar::sum{});
    if constexpr (std::same_as<Algorithm, split_messages>) {
      co_await std::move(pending);
    } else {
      const stream sum = co_await std::move(pending);
      if (r == 0) its->values.assign(sum.values().begin(), sum.values().end());
    }
    its->received = std::max(its->received, static_cast<double>(pending.statistics().bytes_received));
  }
};

template <class Algorithm>
notes call(const spar::simulator_options& network, const std::vector<stream>& x, std::vector<Algorithm> algorithms) {
  notes its;
  for (Algorithm& each : algorithms) each.its = &its;
  spar::simulator engine(static_cast<spar::rank_t>(x.size()), network);
  engine.run(program<Algorithm>{&x, &its, &algorithms});
  return its;
}

/// The calls of one variant.
struct row {
  std::string names;    // the JSON of what names the row
  std::size_t left_out; // first calls, which are not in the mean, the minimum and the maximum
  std::vector<std::pair<const char*, std::vector<double>>> lists{};

  void add(const char* list, double value) {
    for (auto& [name, values] : lists) {
      if (name == std::string_view(list)) return values.push_back(value);
    }
    lists.push_back({list, {value}});
  }
  void add(const notes& its) {
    add("seconds", its.end);
    if (its.split == 0) return; // the messages of the split alone
    add("split", its.split);
    add("gather", its.end - its.threshold);
    add("received", its.received);
    add("largest_share", its.largest);
    add("counted_first", its.counted ? 1 : 0);
    add("repeated", its.repeated ? 1 : 0);
    add("evened_out", its.evened_out ? 1 : 0);
  }
  void print(const char* separator) const {
    std::printf("%s{%s, \"calls\": %zu", separator, names.c_str(), lists[0].second.size() - left_out);
    for (const auto& [name, values] : lists) {
      const auto from = values.begin() + static_cast<std::ptrdiff_t>(left_out);
      const auto [low, high] = std::minmax_element(from, values.end());
      const double mean = std::accumulate(from, values.end(), 0.0) / static_cast<double>(values.end() - from);
      std::printf(", \"%s\": {\"first\": %.6g, \"mean\": %.6g, \"min\": %.6g, \"max\": %.6g}", name, values[0], mean,
                  *low, *high);
    }
    std::printf("}");
  }
};

template <bool balanced_regions, bool evened_shares>
void measure(row& to, const spar::simulator_options& network, const std::vector<stream>& x,
             std::vector<spar::owners_state>& states, std::vector<float>& expected) {
  std::vector<owners_variant<balanced_regions, evened_shares>> variants(x.size());
  for (std::size_t r = 0; r < x.size(); ++r) variants[r].state = &states[r];
  const notes its = call(network, x, std::move(variants));
  if (expected.empty()) expected = its.values;
  if (expected != its.values) throw std::runtime_error("the variants' results differ");
  to.add(its);
}

/// Calls on a network by the variants of the schedule, with the entries of a pattern.
class schedules {
 public:
  schedules(const std::string& names, const spar::network_model& network, std::size_t ranks)
      : network_(simulated(network)) {
    for (const char* variant : {"all ideas", "equal regions", "no moves", "equal regions, no moves"}) {
      rows_.push_back({names + ", \"variant\": \"" + variant + "\"", 1});
      states_.emplace_back(ranks);
    }
    for (const char* variant :
         {"rotated, at once", "rotated, one by one", "same order, at once", "same order, one by one"})
      rows_.push_back({names + ", \"variant\": \"" + variant + "\"", 1});
  }
  void add_call(const std::vector<stream>& x) {
    std::vector<float> expected;
    measure<true, true>(rows_[0], network_, x, states_[0], expected);
    measure<false, true>(rows_[1], network_, x, states_[1], expected);
    measure<true, false>(rows_[2], network_, x, states_[2], expected);
    measure<false, false>(rows_[3], network_, x, states_[3], expected);
    std::size_t next = 4;
    for (const order by : {order::rotated, order::same}) {
      for (const bool at_once : {true, false}) {
        spar::simulator_options network = network_;
        network.synchronous = !at_once; // as the blocking sends of an MPI library that waits for the receiver
        split_messages messages;
        messages.by = by;
        messages.at_once = at_once;
        messages.boundaries = states_[0][0].boundaries;
        rows_[next++].add(call(network, x, std::vector(x.size(), messages)));
      }
    }
  }
  [[nodiscard]] const std::vector<row>& rows() const noexcept { return rows_; }

 private:
  spar::simulator_options network_;
  std::vector<row> rows_;
  std::vector<std::vector<spar::owners_state>> states_;
};

/// Calls of Ok-Topk with error feedback on a network, by one selector.
template <class Selector>
class selections {
  using allreduce = spar::composition<Selector, spar::storage::coo, spar::flat, spar::balanced_owners>;
  using reducer = spar::error_feedback<float, allreduce>;

 public:
  selections(const std::string& names, const char* variant, const spar::network_model& network, std::size_t ranks,
             Selector select)
      : network_(simulated(network)), row_{names + ", \"variant\": \"" + variant + "\"", grown} {
    for (std::size_t r = 0; r < ranks; ++r) reducers_.emplace_back(allreduce{.select = select});
  }
  void add_call(const std::vector<std::vector<float>>& x) {
    spar::simulator engine(static_cast<spar::rank_t>(x.size()), network_);
    outcome all;
    engine.run(one_call{this, &x, &all});
    const auto ranks = static_cast<double>(x.size());
    row_.add("seconds", engine.time());
    row_.add("words", all.words / ranks);
    row_.add("selected", all.selected / ranks);
    row_.add("least_selected", all.least);
    row_.add("most_selected", all.most);
    row_.add("exact", all.exact / ranks);
    row_.add("summed", all.summed);
    row_.add("threshold_rounds", all.threshold_rounds);
  }
  [[nodiscard]] const row& result() const noexcept { return row_; }

 private:
  struct outcome {
    double words = 0, selected = 0, exact = 0, summed = 0, threshold_rounds = 0; // words, selected, exact: of all ranks
    double least = n, most = 0;
  };
  struct one_call {
    selections* its;
    const std::vector<std::vector<float>>* x;
    outcome* all;
    spar::task<void> operator()(spar::sim& net) const& {
      const auto r = static_cast<std::size_t>(net.rank());
      auto pending = its->reducers_[r].start_reduce(net, std::span<const float>((*x)[r]));
      const auto found = co_await std::move(pending);
      const auto& report = its->reducers_[r].report();
      const auto selected = static_cast<double>(report.selected);
      all->words += static_cast<double>(pending.statistics().bytes_sent) / 4;
      all->selected += selected;
      all->exact += report.selected == k ? 1 : 0;
      all->least = std::min(all->least, selected);
      all->most = std::max(all->most, selected);
      all->summed = static_cast<double>(found.sum.count());
      all->threshold_rounds = static_cast<double>(report.by.threshold_rounds);
    }
  };

  spar::simulator_options network_;
  row row_;
  std::deque<reducer> reducers_;
};

/// A network file, and the JSON that names it and the number of ranks.
struct place {
  std::string names;
  spar::network_model network;
};

std::vector<row> run_schedules(const std::vector<place>& places, spar::rank_t ranks, int calls) {
  std::vector<row> found;
  std::deque<schedules> all; // those of all patterns on the first network, then on the next
  for (const place& p : places) {
    for (const char* pattern : patterns)
      all.emplace_back(p.names + ", \"pattern\": \"" + pattern + "\"", p.network, static_cast<std::size_t>(ranks));
  }
  spar::pool memory;
  for (int i = 0; i <= calls; ++i) { // the first call is not counted
    std::vector<std::vector<stream>> entries(pattern_count);
    for (spar::rank_t r = 0; r < ranks; ++r) {
      const std::vector<float> mine = drift(r, ranks, i);
      for (std::size_t p = 0; p < pattern_count; ++p) {
        std::vector<float> x = mine;
        change(x, p, r, i);
        entries[p].push_back(spar::select<std::uint32_t>(spar::selector::exact_topk{.k = k}, std::span(x), memory));
      }
    }
    for (std::size_t s = 0; s < all.size(); ++s) all[s].add_call(entries[s % pattern_count]);
  }
  for (const auto& s : all) found.insert(found.end(), s.rows().begin(), s.rows().end());
  return found;
}

std::vector<row> run_selections(const std::vector<place>& places, spar::rank_t ranks, int calls) {
  const auto size = static_cast<std::size_t>(ranks);
  std::vector<row> found;
  std::deque<selections<spar::selector::threshold_reuse>> reused;
  std::deque<selections<spar::selector::exact_topk>> exact;
  for (const place& p : places) {
    const std::string names = p.names + ", \"pattern\": \"drift\"";
    exact.emplace_back(names, "exact", p.network, size, spar::selector::exact_topk{.k = k});
    reused.emplace_back(names, "period 1", p.network, size, spar::selector::threshold_reuse{.k = k, .period = 1});
    reused.emplace_back(names, "period 32", p.network, size, spar::selector::threshold_reuse{.k = k});
    reused.emplace_back(names, "period 128", p.network, size, spar::selector::threshold_reuse{.k = k, .period = 128});
    reused.emplace_back(names, "period 32, k to 99 %", p.network, size,
                        spar::selector::threshold_reuse{.k = k, .epsilon = 0.99});
  }
  for (int i = 0; i < grown + calls; ++i) {
    std::vector<std::vector<float>> x;
    for (spar::rank_t r = 0; r < ranks; ++r) x.push_back(drift(r, ranks, i));
    for (auto& s : exact) s.add_call(x);
    for (auto& s : reused) s.add_call(x);
  }
  for (const auto& s : exact) found.push_back(s.result());
  for (const auto& s : reused) found.push_back(s.result());
  return found;
}

int run(int count, char** arguments) {
  const std::string_view what = count > 4 ? arguments[1] : "";
  if (what != "schedule" && what != "selection") {
    std::fprintf(stderr, "usage: ok_topk_ablations schedule|selection CALLS RANKS NETWORK...\n");
    return 2;
  }
  const int calls = std::atoi(arguments[2]);
  const int ranks = std::atoi(arguments[3]);
  std::vector<place> places;
  for (int a = 4; a < count; ++a) {
    const std::string path = arguments[a];
    places.push_back({"\"network\": \"" + path.substr(path.rfind('/') + 1) + "\", \"ranks\": " + arguments[3],
                      spar::read_network(path)});
  }
  const char* separator = "[\n";
  for (const row& r : (what == "schedule" ? run_schedules : run_selections)(places, ranks, calls)) {
    r.print(separator);
    separator = ",\n";
  }
  std::printf("\n]\n");
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ok_topk_ablations: %s\n", error.what());
    return 1;
  }
}
