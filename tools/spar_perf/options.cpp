// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses and checks the command line.
#include "options.hpp"

#include "partial_name.hpp"
#include "system_names.hpp"
#include "units.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>

namespace spar::perf {

namespace {

constexpr std::string_view types[] = {"float", "double", "half", "bfloat16", "int32", "int64"};

int parse_int(std::string_view option, const std::string& text, int lowest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest) {
    throw usage_error(std::string(option) + " must be a whole number of at least " + std::to_string(lowest) +
                      ", not '" + text + "'");
  }
  return value;
}

double parse_fraction(std::string_view option, const std::string& text) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1)) {
    throw usage_error(std::string(option) + " must be a number from 0 to 1, not '" + text + "'");
  }
  return value;
}

/// The slot of a composition by which `text` begins; empty if it begins otherwise.
std::string_view slot_of(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('='));
  return is_word_of(name, "select store over by") && name.size() < text.size() ? name : std::string_view();
}
/// The position of the '=' in NAME=SYSTEM; npos in SYSTEM.
std::size_t end_of_name(std::string_view text) {
  const std::size_t end = text.find_first_of("=:+");
  const bool is_name = end != std::string_view::npos && text[end] == '=' && slot_of(text).empty();
  return is_name ? end : std::string_view::npos;
}

/// Joins again what the commas between the slots of a composition have separated.
std::vector<std::string> join_slots(const std::vector<std::string>& separated) {
  std::vector<std::string> systems;
  std::string given; // the slots of the last system
  for (std::string each : separated) {
    CLI::detail::trim(each);
    const std::string slot(slot_of(each));
    const bool goes_on = !slot.empty() && !given.empty() && !is_word_of(slot, given);
    if (goes_on) {
      systems.back() += "," + each;
      given += " " + slot;
      continue;
    }
    systems.push_back(each);
    const std::string system = each.substr(end_of_name(each) + 1); // npos + 1 is 0
    const std::optional<partial_name> partial = parse_partial(system);
    given = slot_of(partial ? partial->inner : system);
  }
  return systems;
}

template <std::size_t N>
std::size_t one_of(std::string_view option, const std::string& text, const std::string_view (&names)[N]) {
  const auto found = std::find(std::begin(names), std::end(names), text);
  if (found != std::end(names)) return static_cast<std::size_t>(found - std::begin(names));
  std::string known;
  for (const auto name : names) known += " " + std::string(name);
  throw usage_error(std::string(option) + " must be one of" + known + ", not '" + text + "'");
}

} // namespace

options parse_options(int argc, char** argv, const std::string& default_transport,
                      const std::vector<std::string>& own) {
  options o;
  o.transport = default_transport;
  std::vector<std::string> densities{"0.01"};
  std::string count = "1M", index = "32", pattern = "uniform", iterations = "20", warmup = "5", ranks, seed = "1";
  std::string memory = "host", input = "sparse", epsilon = "0.1", tau = "64", tau_prime = "32";
  std::string skew = "none", delay = "10ms";
  std::string latency = "1us", overhead = "0", bandwidth = "1GB/s", compute = "0", jitter = "0", ranks_per_host = "1",
              cores = "0";

  CLI::App app(
      "Compares sparse and dense allreduce: time, messages and bytes of each system, interleaved in one run.\n"
      "Exit status: 1 for a wrong result, 2 for a wrong option, 77 if this build or machine lacks what is needed.",
      "spar_perf");
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "Print this and exit");
  app.add_flag("--list", o.list, "Print the systems and patterns and exit");
  app.add_option(
         "--systems", o.systems,
         "Systems to compare, separated by commas (default: those of SparCML's comparison); NAME=SYSTEM gives\n"
         "a system another name, as in ring,again=ring. A system is a name of --list, or a composition as text,\n"
         "as in ring+qsgd:8, ok_topk:0.01+coded or select=exact_topk,by=ring")
      ->delimiter(',');
  app.add_option("--count", count, "Dimension n: 1000000, 1e6 or 16M (K = 2^10, M = 2^20, G = 2^30)");
  app.add_option("--density", densities, "Entries of each rank divided by n, from 0 to 1; several separated by commas")
      ->delimiter(',');
  app.add_option("--type", o.type, "Type of the values: float, double, half, bfloat16, int32 or int64");
  app.add_option("--index", index, "Bits per index, 32 or 64");
  app.add_option("--pattern", pattern,
                 "Positions of the entries: uniform, clustered, identical, disjoint or zipf;\n"
                 "drift, gaussian, heavy_0, heavy_50 or heavy_100: dense vectors that change from step to step, with\n"
                 "error feedback");
  app.add_option("--input", input,
                 "Input of systems for sparse streams: sparse, or dense to select entries from a dense vector");
  app.add_option("--memory", memory,
                 "Where the values are: host, or device for the memory of GPUs, in which all systems reduce dense\n"
                 "vectors in place (spar_perf_gpu; threads and mpi)");
  app.add_option("--iterations", iterations, "Measured calls of each system (simulator without jitter: 1 is enough)");
  app.add_option("--warmup", warmup, "Unmeasured calls of each system before the measured ones (simulator: none)");
  app.add_flag("--check", o.check, "Compare every result with the exact sum");
  app.add_flag("--in-place", o.in_place, "Dense systems and mpi reduce in place");
  app.add_option("--seed", seed, "Seed of positions, values, jitter, late ranks and quorums");
  app.add_option("--json", o.json, "Write the rows to this file");
  app.add_flag("--phases", o.phases,
               "Also measure where the time goes: selecting, encoding, waiting, merging, in five more calls");
  app.add_option("--trace", o.trace, "Write a timeline of one call of each system to this folder, as SYSTEM.json");
  app.add_option("--against", o.against, "Compare with the rows of an earlier run in this file, written by --json");
  app.add_option("--transport", o.transport, "mpi, ucx, threads or sim");
  app.add_option("--ranks", ranks, "Number of ranks (threads, sim; default 2)");
  app.add_option("--calibrate", o.calibrate,
                 "Measure the network instead, and write the parameters by which algorithms are chosen to this file");
  app.add_option("--network", o.network,
                 "Choose algorithms by the parameters in this file, written by --calibrate (default: the file that\n"
                 "the environment variable SPAR_NETWORK names). With sim: simulate this network");
  app.add_option("--topology", o.topology,
                 "The network's tree for flexreduce and blueconnect: a JSON file, or auto for a\n"
                 "tree of the hosts and their ranks. With sim: simulate the links in the file");
  app.add_option("--epsilon", epsilon, "Fraction of k by which a selection may exceed k (ok_topk)")->group("Ok-Topk");
  app.add_option("--tau", tau,
                 "Number of calls between two balancings of the owners' blocks (ok_topk), and number of rounds that\n"
                 "may run ahead of a rank (partial systems): a number or unlimited")
      ->group("Ok-Topk");
  app.add_option("--tau-prime", tau_prime, "Number of calls between two exact evaluations of the threshold (ok_topk)")
      ->group("Ok-Topk");
  app.add_option(
         "--skew", skew,
         "Ranks that are late for a call: none; linear (rank r by r delays); one (a random rank by one delay);\n"
         "random (each rank by up to one delay)")
      ->group("Late ranks");
  app.add_option("--delay", delay, "Delay of late ranks (--skew)")->group("Late ranks");
  app.add_option("--latency", latency, "Latency of a message (sim)")->group("Simulator");
  app.add_option("--overhead", overhead, "Time that each message takes on a link, beside that of its bytes (sim)")
      ->group("Simulator");
  app.add_option("--bandwidth", bandwidth, "Bandwidth of each link and direction (sim)")->group("Simulator");
  app.add_option("--compute", compute, "Time of local work per entry, like 1ns (sim)")->group("Simulator");
  app.add_option("--cores", cores, "Cores that all ranks share for local work; 0: one core per rank (sim)")
      ->group("Simulator");
  app.add_option("--jitter", jitter, "Each message is late by a random time up to this (sim)")->group("Simulator");
  app.add_option("--ranks-per-host", ranks_per_host, "Ranks that share a link (sim)")->group("Simulator");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw early_end{0, app.help()};
  } catch (const CLI::ExtrasError&) { // its text has the arguments from last to first
    std::string unknown;
    for (const std::string& argument : app.remaining()) unknown += " " + argument;
    throw usage_error("not expected:" + unknown + " (--help lists the options)");
  } catch (const CLI::ParseError& e) {
    throw usage_error(std::string(e.what()) + " (--help lists the options)");
  }

  o.count = parse_count("--count", count);
  if (o.count < 1) throw usage_error("--count must be at least 1, not '" + count + "'");
  o.densities.clear();
  for (const auto& d : densities) o.densities.push_back(parse_fraction("--density", d));
  one_of("--type", o.type, types);
  constexpr std::string_view widths[] = {"32", "64"};
  o.index_bits = one_of("--index", index, widths) == 0 ? 32 : 64;
  o.pattern = static_cast<pattern_kind>(one_of("--pattern", pattern, pattern_names));
  constexpr std::string_view inputs[] = {"sparse", "dense"};
  o.dense_input = one_of("--input", input, inputs) == 1;
  constexpr std::string_view memories[] = {"host", "device"};
  o.on_device = one_of("--memory", memory, memories) == 1;
  if (o.on_device) {
    const auto refuse = [](bool given, const std::string& why) {
      if (given) throw usage_error("--memory device " + why);
    };
    refuse(app.count("--input") > 0 && !o.dense_input, "reduces dense vectors: use --input dense, not sparse");
    refuse(o.transport == "sim", "measures real time: use --transport threads or mpi, not sim");
    refuse(o.traces(), "has no --phases and no --trace");
    refuse(skew != "none", "has no --skew");
    refuse(!o.calibrate.empty(), "has no --calibrate");
    o.dense_input = o.in_place = true;
  }
  o.iterations = parse_int("--iterations", iterations, 1);
  o.warmup = parse_int("--warmup", warmup, 0);
  if (is_gradient(o.pattern)) {
    const auto refuse = [&](bool given, const std::string& why) {
      if (given) throw usage_error("--pattern " + pattern + " " + why);
    };
    refuse(app.count("--input") > 0 && !o.dense_input, "generates dense vectors: use --input dense, not sparse");
    refuse(app.count("--warmup") > 0 && o.warmup > 0, "measures every call: use --warmup 0");
    refuse(o.type.starts_with("int"), "needs a floating-point type, not " + o.type);
    o.dense_input = true;
    o.warmup = 0;
  }
  o.epsilon = parse_fraction("--epsilon", epsilon);
  o.tau = tau == "unlimited" ? unlimited : static_cast<std::uint64_t>(parse_int("--tau, unless unlimited,", tau, 1));
  o.tau_prime = parse_int("--tau-prime", tau_prime, 1);
  o.seed = parse_count("--seed", seed);
  o.skew.kind = static_cast<skew_kind>(one_of("--skew", skew, skew_names));
  o.skew.delay = parse_seconds("--delay", delay);
  o.skew.seed = o.seed;
  if (app.count("--delay") > 0 && !o.skew.any()) throw usage_error("--delay applies to late ranks: add --skew");
  constexpr std::string_view transports[] = {"mpi", "ucx", "threads", "sim"};
  one_of("--transport", o.transport, transports);
  if (!ranks.empty()) o.ranks = parse_int("--ranks", ranks, 1);
  o.latency = parse_seconds("--latency", latency);
  o.overhead = parse_seconds("--overhead", overhead);
  o.bandwidth = parse_rate("--bandwidth", bandwidth);
  if (o.bandwidth <= 0) throw usage_error("--bandwidth must be above 0, not '" + bandwidth + "'");
  o.compute = parse_seconds("--compute", compute);
  o.cores = parse_int("--cores", cores, 0);
  o.jitter = parse_seconds("--jitter", jitter);
  o.ranks_per_host = parse_int("--ranks-per-host", ranks_per_host, 1);

  if (o.transport != "sim") {
    for (const char* name :
         {"--latency", "--overhead", "--bandwidth", "--compute", "--cores", "--jitter", "--ranks-per-host"}) {
      if (app.count(name) > 0) throw usage_error(std::string(name) + " requires --transport sim, not " + o.transport);
    }
    const char* const file = std::getenv("SPAR_NETWORK");
    if (file != nullptr && o.network.empty() && o.calibrate.empty()) o.network = file;
  } else {
    o.warmup = 0;
    if (o.jitter == 0 && !is_gradient(o.pattern) && !o.skew.any())
      o.iterations = 1; // all iterations would give the same time
    for (const char* name : {"--latency", "--overhead", "--bandwidth", "--compute"}) {
      if (!o.network.empty() && app.count(name) > 0)
        throw usage_error(std::string(name) + " is given by the --network file");
    }
    for (const char* name : {"--latency", "--bandwidth", "--ranks-per-host"}) {
      if (o.topology != "auto" && app.count(name) > 0)
        throw usage_error(std::string(name) + " is given by the --topology file");
    }
    o.model = {o.latency + o.overhead, 1 / o.bandwidth, o.compute, o.compute, 2 * o.compute, o.latency};
  }
  if (!o.against.empty() && o.skew.any()) throw usage_error("--against compares times without late ranks: omit --skew");
  if (!o.calibrate.empty() && !o.network.empty())
    throw usage_error("--calibrate and --network exclude each other: --calibrate measures what --network reads");
  if (o.index_bits == 32 && o.count > std::uint64_t{1} << 32) {
    throw usage_error("--count " + count + " exceeds 32-bit indices: add --index 64");
  }
  if (o.systems.empty()) {
    o.systems = {"sparcml", "ssar_split", "dsar_split", "rec_doubling", "ring", "rabenseifner", "allgather"};
    if (o.transport == "mpi") o.systems.emplace_back("mpi");
    o.systems.insert(o.systems.end(), own.begin(), own.end());
  }
  o.systems = join_slots(o.systems);
  for (std::string& system : o.systems) {
    const std::string given = system;
    const std::size_t equals = end_of_name(system);
    const std::string name = CLI::detail::trim_copy(system.substr(0, equals));
    if (equals != std::string::npos) system.erase(0, equals + 1);
    CLI::detail::trim(system);
    if (name.empty() || system.empty()) throw usage_error("--systems needs SYSTEM or NAME=SYSTEM, not '" + given + "'");
    check_system(system, own);
    if (std::find(o.names.begin(), o.names.end(), name) != o.names.end()) {
      throw usage_error("--systems names " + name + " twice; to measure a system twice, name it: again=" + system);
    }
    o.names.push_back(name);
  }
  return o;
}

std::uint64_t entries_of(const options& o, double density) {
  const auto k = static_cast<std::uint64_t>(std::llround(density * static_cast<double>(o.count)));
  return std::min(k, o.count);
}

workload workload_of(const options& o, double density, int ranks) {
  workload w{o.count, entries_of(o, density), ranks, o.pattern, o.seed};
  const auto p = static_cast<std::uint64_t>(ranks);
  if (w.pattern == pattern_kind::disjoint && w.k > w.n / p) {
    throw usage_error("pattern disjoint needs " + std::to_string(ranks) + " ranks * " + std::to_string(w.k) +
                      " entries, but the dimension is " + std::to_string(w.n) + ": use at most " +
                      std::to_string(w.n / p) + " entries per rank");
  }
  return w;
}

} // namespace spar::perf
