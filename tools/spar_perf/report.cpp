// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes the table and the JSON.
#include "report.hpp"

#include "units.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <ios>
#include <iterator>
#include <numeric>

namespace spar::perf {

namespace {

struct spread {
  double median = 0, lowest = 0, highest = 0;
};

spread spread_of(std::vector<double> x) {
  if (x.empty()) return {};
  std::sort(x.begin(), x.end());
  const std::size_t half = x.size() / 2;
  return {x.size() % 2 == 1 ? x[half] : (x[half - 1] + x[half]) / 2, x.front(), x.back()};
}

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

/// Bytes of payload that a rank sends in a call, the mean over ranks and calls.
double sent_mean(const row& r) {
  return static_cast<double>(r.measured.total.bytes_sent) /
         (r.work.ranks * static_cast<double>(r.measured.seconds.size()));
}

/// Bits in which stream codecs have encoded an index or a value, in the mean over ranks and calls; nothing if they have
/// encoded none.
std::optional<double> mean_bits(std::uint64_t bytes, std::uint64_t encoded) {
  if (encoded == 0) return std::nullopt;
  return 8 * static_cast<double>(bytes) / static_cast<double>(encoded);
}
std::optional<double> index_bits(const row& r) {
  return mean_bits(r.measured.total.coded_index_bytes, r.measured.total.coded_indices);
}
std::optional<double> value_bits(const row& r) {
  return mean_bits(r.measured.total.coded_value_bytes, r.measured.total.coded_values);
}

std::string correct_text(const row& r, const options& o) {
  if (!o.check) return "-";
  if (r.correct()) return "yes";
  return fmt::format("NO: error {:g}, bound {:g}{}", r.measured.max_error, r.measured.error_bound,
                     r.measured.same_bits ? "" : ", ranks differ");
}

std::string interval_text(const verdict& v, int decimals = 3) {
  return std::isinf(v.highest) ? "(- .. -)"
                               : fmt::format("({:.{}f} .. {:.{}f})", v.lowest, decimals, v.highest, decimals);
}

/// The payload that a rank sends, the mean over ranks and calls, divided by that of `least_bytes`.
std::string bound_text(const row& r) {
  if (!r.measured.counted || !r.bound_bytes || *r.bound_bytes <= 0) return "-";
  return fmt::format("{:.2f}", sent_mean(r) / *r.bound_bytes);
}

std::size_t ratio_width(const std::string& to) { return std::max<std::size_t>(9, to.size() + 4); }
std::size_t name_width(const std::vector<row>& rows) {
  std::size_t width = 14;
  for (const row& r : rows) width = std::max(width, r.system.size() + 2);
  return width;
}

/// The table of the phases, if calls were traced.
void phase_table(std::back_insert_iterator<fmt::memory_buffer> out, const std::vector<row>& rows) {
  if (std::none_of(rows.begin(), rows.end(), [](const row& r) { return r.measured.phases.has_value(); })) return;
  fmt::format_to(out, "# where the time goes: mean over all ranks and up to {} calls, traced after the others\n",
                 traced_calls);
  fmt::format_to(out, "{:<{}}{:>10}", "system", name_width(rows), "density");
  for (const auto& [name, seconds] : phase_members) fmt::format_to(out, "{:>12}", name);
  fmt::format_to(out, "\n");
  for (const row& r : rows) {
    if (!r.measured.phases) continue;
    fmt::format_to(out, "{:<{}}{:>10g}", r.system, name_width(rows), r.density);
    for (const auto& [name, seconds] : phase_members)
      fmt::format_to(out, "{:>12}", time_text(*r.measured.phases.*seconds));
    fmt::format_to(out, "\n");
  }
}

/// The table of a run with late ranks: latency of a call, number of ranks in the result, and staleness.
void late_table(std::back_insert_iterator<fmt::memory_buffer> out, const std::vector<row>& rows, const options& o) {
  fmt::format_to(
      out,
      "# skew {}, delay {}; latency: mean time of a rank's own call, over {} iterations after {} of warm-up;\n"
      "# / {}: ratio of the mean latencies, with its {:g} % interval; active, least: mean and least number of ranks "
      "whose own\n"
      "# call is in the result; stale: most rounds late\n",
      skew_names[static_cast<std::size_t>(o.skew.kind)], time_text(o.skew.delay), rows.front().measured.seconds.size(),
      o.warmup, rows.front().compared_to, 100 * confidence);
  const std::string& to = rows.front().compared_to;
  fmt::format_to(out, "{:<{}}{:>12}{:>10}{:>12}  {:<26}{:>{}}  {:<20}{:<13}{:>9}{:>7}{:>7}  {}\n", "system",
                 name_width(rows), "n", "density", "latency", "(min .. max)", "/ " + to, ratio_width(to), "(interval)",
                 "verdict", "active", "least", "stale", "correct");
  for (const row& r : rows) {
    const record& m = r.measured;
    const spread s = spread_of(m.latencies);
    const bool itself = r.system == to;
    fmt::format_to(out, "{:<{}}{:>12}{:>10g}{:>12}  {:<26}{:>{}.4f}  {:<20}{:<13}{:>9.4g}{:>7}{:>7}  {}\n", r.system,
                   name_width(rows), r.work.n, r.density, time_text(mean_of(m.latencies)),
                   fmt::format("({} .. {})", time_text(s.lowest), time_text(s.highest)), r.against_reference.ratio,
                   ratio_width(to), itself ? "" : interval_text(r.against_reference, 4),
                   itself ? "-" : r.against_reference.text(), m.total_active / static_cast<double>(m.seconds.size()),
                   m.least_active, m.most_stale, correct_text(r, o));
  }
}

/// Whether times are virtual and the ratios of all iterations are equal.
bool is_exact(const options& o, const std::vector<double>& ratios) {
  const spread s = spread_of(ratios);
  return o.transport == "sim" && o.jitter == 0 && s.highest - s.lowest <= 1e-9 * s.median;
}
/// Bytes of the vector per second, and the same times 2 (P - 1) / P, which for an ideal dense allreduce is the
/// bandwidth of a link (nccl-tests, doc/PERFORMANCE.md).
double algorithm_bandwidth(const row& r) {
  const double seconds = spread_of(r.measured.seconds).median;
  return seconds > 0 ? r.vector_bytes / seconds : 0;
}
double bus_bandwidth(const row& r) { return algorithm_bandwidth(r) * 2 * (r.work.ranks - 1) / r.work.ranks; }

/// A ratio without noise; a difference that rounding explains counts as none.
verdict exactly(double ratio) {
  const double exact = std::abs(ratio - 1) < 1e-9 ? 1 : ratio;
  return {exact, exact, exact};
}

constexpr std::pair<const char*, std::uint64_t device_calls::*> device_members[] = {
    {"launches", &device_calls::launches},
    {"graph_launches", &device_calls::graph_launches},
    {"host_waits", &device_calls::waits}};

/// The mean over the ranks and calls, if they are counted.
std::optional<double> device_mean(const row& r, std::uint64_t device_calls::* which) {
  if (!r.measured.device) return std::nullopt;
  const double calls = static_cast<double>(r.measured.seconds.size()) * r.work.ranks;
  return static_cast<double>((*r.measured.device).*which) / calls;
}

/// The number of words of 4 bytes, as a JSON integer if it is whole.
nlohmann::ordered_json words(std::uint64_t bytes) {
  if (bytes % 4 == 0) return bytes / 4;
  return static_cast<double>(bytes) / 4;
}

} // namespace

void compare(std::vector<row>& rows, const options& o) {
  const bool late = std::any_of(rows.begin(), rows.end(), [](const row& r) { return !r.measured.latencies.empty(); });
  auto to = std::find_if(rows.begin(), rows.end(), [](const row& r) { return r.is_mpi; });
  if (to == rows.end() && late) to = std::find_if(rows.begin(), rows.end(), [](const row& r) { return !r.partial; });
  if (to == rows.end()) to = rows.begin();
  const auto times = [&](const row& r) -> const auto& { return late ? r.measured.latencies : r.measured.seconds; };
  for (row& r : rows) {
    r.compared_to = to->system;
    for (std::size_t i = 0; i < times(r).size(); ++i) r.ratios.push_back(times(r)[i] / times(*to)[i]);
    r.compared_to_mpi = to->is_mpi;
    r.against_reference = late ? compare_means(times(r), times(*to), o.seed) : compare_paired(times(r), times(*to));
    if (is_exact(o, r.ratios)) r.against_reference = exactly(r.against_reference.ratio);
  }
}

std::string to_table(const std::vector<row>& rows, const options& o, const std::string& library) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  if (rows.empty()) return {};
  fmt::format_to(out, "# spar_perf: {}{}, {} ranks, {}, {}-bit indices, pattern {}, seed {}\n", o.transport,
                 library.empty() ? "" : " (" + library + ")", rows.front().work.ranks, o.type, o.index_bits,
                 pattern_names[static_cast<std::size_t>(o.pattern)], o.seed);
  if (o.transport == "sim") {
    fmt::format_to(out, "# virtual time: latency {}{}, {:g} GB/s, {:g} ns per entry{}, jitter {}, {} ranks per host\n",
                   time_text(o.latency),
                   o.overhead > 0 ? fmt::format(" and {} per message", time_text(o.overhead)) : "", o.bandwidth / 1e9,
                   o.compute * 1e9, o.cores > 0 ? fmt::format(" on {} cores in total", o.cores) : "",
                   time_text(o.jitter), o.ranks_per_host);
  }
  if (o.skew.any()) {
    late_table(out, rows, o);
    phase_table(out, rows);
    return fmt::to_string(text);
  }
  const std::string& to = rows.front().compared_to;
  const bool again = std::any_of(rows.begin(), rows.end(), [](const row& r) { return r.against_before.has_value(); });
  const bool coded = std::any_of(rows.begin(), rows.end(), [](const row& r) { return index_bits(r).has_value(); });
  const auto bits_titles = [&] { return coded ? fmt::format("{:>12}{:>12}", "bits/index", "bits/value") : ""; };
  const auto bits_text = [&](const row& r) {
    const auto mean = [](std::optional<double> bits) { return bits ? fmt::format("{:.2f}", *bits) : "-"; };
    return coded ? fmt::format("{:>12}{:>12}", mean(index_bits(r)), mean(value_bits(r))) : "";
  };
  const bool asked = std::any_of(rows.begin(), rows.end(), [](const row& r) { return r.measured.device.has_value(); });
  const auto asked_titles = [&] { return asked ? fmt::format("{:>10}{:>8}{:>8}", "launches", "graphs", "waits") : ""; };
  const auto asked_text = [&](const row& r) {
    if (!asked) return std::string();
    const auto each = [&](std::uint64_t device_calls::* which) {
      const std::optional<double> mean = device_mean(r, which);
      return mean ? fmt::format("{:.4g}", *mean) : "-";
    };
    return fmt::format("{:>10}{:>8}{:>8}", each(&device_calls::launches), each(&device_calls::graph_launches),
                       each(&device_calls::waits));
  };
  const auto memory_text = [&](const std::string& memory) { return o.on_device ? fmt::format("{:<8}", memory) : ""; };
  if (o.on_device) {
    fmt::format_to(
        out, "# values in device memory; time: until the work in the stream has ended; memory: device if all "
             "work is done there,\n# entries if the selected entries are reduced on the host, staged if the vector "
             "is copied to the host and back\n");
  }
  if (asked)
    fmt::format_to(out,
                   "# launches, graphs, waits: of kernels and CUDA graphs, and of the host for the device, a rank and "
                   "call, the mean\n");
  fmt::format_to(
      out,
      "# time: median over {} iterations, after {} of warm-up, of the slowest rank's time; MB sent: payload of the "
      "rank\n"
      "# that sends most; x bound: mean payload sent / words_bound; bus GB/s: as nccl-tests defines it; / {}: "
      "median of the ratios, with its {:g} % interval{}{}\n",
      rows.front().measured.seconds.size(), o.warmup, to, 100 * confidence,
      again ? "; / before: the ratio to the earlier run" : "",
      coded ? "\n# bits/index, bits/value: of the indices and values that a stream codec has encoded" : "");
  fmt::format_to(out,
                 "{:<{}}{}{:>12}{:>10}{:>11}{:>11}{:>9}{:>11}{}{:>9}{:>10}{:>12}  {:<26}{:>{}}  {:<20}{:<13}{}{}\n",
                 "system", name_width(rows), memory_text("memory"), "n", "density", "nnz_in", "nnz_out", "messages",
                 "MB sent", bits_titles() + asked_titles(), "x bound", "bus GB/s", "time", "(min .. max)", "/ " + to,
                 ratio_width(to), "(interval)", "verdict",
                 again ? fmt::format("{:>9}  {:<20}{:<13}", "/ before", "(interval)", "verdict") : "", "correct");
  for (const row& r : rows) {
    const record& m = r.measured;
    const spread s = spread_of(m.seconds);
    const auto verdict_text = [&](const std::optional<verdict>& v) {
      if (!v) return fmt::format("{:>9}  {:<20}{:<13}", "-", "", "no such row");
      return fmt::format("{:>9.3f}  {:<20}{:<13}", v->ratio, interval_text(*v), v->text());
    };
    const bool itself = r.system == to;
    fmt::format_to(
        out, "{:<{}}{}{:>12}{:>10g}{:>11}{:>11}{:>9}{:>11}{}{:>9}{:>10.3g}{:>12}  {:<26}{:>{}.3f}  {:<20}{:<13}{}{}\n",
        r.system, name_width(rows), memory_text(r.memory), r.work.n, r.density, r.work.k, m.nnz_out,
        m.counted ? fmt::to_string(m.largest.messages_sent) : "-",
        m.counted ? fmt::format("{:.4g}", static_cast<double>(m.largest.bytes_sent) / 1e6) : "-",
        bits_text(r) + asked_text(r), bound_text(r), bus_bandwidth(r) / 1e9, time_text(s.median),
        fmt::format("({} .. {})", time_text(s.lowest), time_text(s.highest)), r.against_reference.ratio,
        ratio_width(to), itself ? "" : interval_text(r.against_reference), itself ? "-" : r.against_reference.text(),
        again ? verdict_text(r.against_before) : "", correct_text(r, o));
  }
  phase_table(out, rows);
  return fmt::to_string(text);
}

namespace {

/// The format of a row; a change of the keys' meanings increases it.
constexpr int row_format = 2;

/// The keys by which two rows belong to the same system and workload.
constexpr const char* identity[] = {"system",   "transport",    "memory",         "library", "ranks",     "n",
                                    "density",  "type",         "index_bits",     "pattern", "input",     "seed",
                                    "in_place", "skew",         "epsilon",        "tau",     "tau_prime", "alpha",
                                    "beta",     "gamma_sparse", "gamma_dense",    "latency", "bandwidth", "compute",
                                    "cores",    "jitter",       "ranks_per_host", "topology"};

nlohmann::ordered_json to_json(const machine& here) {
  return {{"processor", here.processor}, {"cores", here.cores}, {"system", here.system},
          {"compiler", here.compiler},   {"load", here.load},   {"megahertz", here.megahertz}};
}

nlohmann::ordered_json to_json(const verdict& v) {
  using json = nlohmann::ordered_json;
  const bool bounded = !std::isinf(v.highest);
  return {{"ratio", v.ratio},
          {"lowest", bounded ? json(v.lowest) : json()},
          {"highest", bounded ? json(v.highest) : json()},
          {"verdict", v.text()}};
}

nlohmann::ordered_json to_json(const phases& p) {
  nlohmann::ordered_json x;
  for (const auto& [name, seconds] : phase_members) x[std::string(name)] = p.*seconds;
  return x;
}

nlohmann::ordered_json to_json(const row& r, const options& o, const std::string& library);

} // namespace

std::string to_json(const std::vector<row>& rows, const options& o, const std::string& library, const machine& here) {
  auto all = nlohmann::ordered_json::array();
  for (const row& r : rows) {
    all.push_back(to_json(r, o, library));
    all.back()["machine"] = to_json(here);
  }
  return all.dump(2) + "\n";
}

namespace {

nlohmann::ordered_json to_json(const row& r, const options& o, const std::string& library) {
  using json = nlohmann::ordered_json;
  const record& m = r.measured;
  const spread s = spread_of(m.seconds);
  const spread ratio = spread_of(r.ratios);
  const auto calls = static_cast<double>(m.seconds.size());
  const double all_calls = r.work.ranks * calls;
  const auto if_counted = [&](const json& value) { return m.counted ? value : json(); };
  const auto if_compared = [&](double value) { return r.compared_to_mpi ? json(value) : json(); };
  const auto if_late = [&](const json& value) { return o.skew.any() ? value : json(); };
  json x;
  x["format"] = row_format;
  x["system"] = r.system;
  x["transport"] = o.transport;
  x["memory"] = r.memory;
  x["library"] = library.empty() ? json() : json(library);
  x["ranks"] = r.work.ranks;
  x["n"] = r.work.n;
  x["density"] = r.density;
  x["type"] = o.type;
  x["index_bits"] = o.index_bits;
  x["pattern"] = pattern_names[static_cast<std::size_t>(o.pattern)];
  x["input"] = o.dense_input ? "dense" : "sparse";
  x["seed"] = o.seed;
  x["in_place"] = o.in_place;
  x["topology"] = o.topology;
  x["nnz_in"] = r.work.k;
  x["nnz_out"] = m.nnz_out;
  x["nnz_out_mean"] = static_cast<double>(m.total_nnz_out) / calls;
  x["messages"] = if_counted(m.largest.messages_sent);
  x["words_sent"] = if_counted(words(m.largest.bytes_sent));
  x["words_received"] = if_counted(words(m.largest.bytes_received));
  x["words_sent_mean"] = if_counted(sent_mean(r) / 4);
  x["words_received_mean"] = if_counted(static_cast<double>(m.total.bytes_received) / 4 / all_calls);
  x["words_bound"] = r.bound_bytes ? json(*r.bound_bytes / 4) : json();
  x["header_bytes"] = if_counted(m.largest.header_bytes_sent);
  x["compressions"] = if_counted(m.largest.compressions);
  x["decompressions"] = if_counted(m.largest.decompressions);
  const auto if_coded = [](std::optional<double> bits) { return bits ? json(*bits) : json(); };
  x["bits_index"] = if_coded(index_bits(r));
  x["bits_value"] = if_coded(value_bits(r));
  for (const auto& [name, which] : device_members) {
    const std::optional<double> mean = device_mean(r, which);
    x[name] = mean ? json(*mean) : json();
  }
  x["codec_seconds"] = if_counted(spread_of(m.codec_seconds).median);
  const auto busiest = std::max_element(m.root_link_bytes.begin(), m.root_link_bytes.end());
  x["root_link_bytes"] =
      if_counted(busiest == m.root_link_bytes.end() ? json() : json(static_cast<double>(*busiest) / calls));
  x["calls_mean"] = r.plan_calls ? json(r.plan_calls->mean) : json();
  x["calls_max"] = r.plan_calls ? json(r.plan_calls->most) : json();
  x["iterations"] = m.seconds.size();
  x["warmup"] = o.warmup;
  x["seconds"] = s.median;
  x["seconds_min"] = s.lowest;
  x["seconds_max"] = s.highest;
  x["times"] = o.skew.any() ? m.latencies : m.seconds;
  x["algbw"] = algorithm_bandwidth(r);
  x["busbw"] = bus_bandwidth(r);
  x["compared_to"] = r.compared_to;
  x["against_reference"] = to_json(r.against_reference);
  x["against_before"] = r.against_before ? to_json(*r.against_before) : json();
  x["model_seconds"] = r.model_seconds ? json(*r.model_seconds) : json();
  x["model_reached"] = r.model_seconds && s.median > 0 ? json(*r.model_seconds / s.median) : json();
  x["phases"] = m.phases ? to_json(*m.phases) : json();
  x["select_seconds"] = m.select_seconds.empty() ? json() : json(spread_of(m.select_seconds).median);
  x["ratio_to_mpi"] = if_compared(r.against_reference.ratio);
  x["ratio_to_mpi_min"] = if_compared(ratio.lowest);
  x["ratio_to_mpi_max"] = if_compared(ratio.highest);
  x["skew"] = if_late(skew_names[static_cast<std::size_t>(o.skew.kind)]);
  x["delay"] = if_late(o.skew.delay);
  x["latency_mean"] = if_late(mean_of(m.latencies));
  x["nap_mean"] = if_late(m.total_active / calls);
  x["nap_min"] = if_late(m.least_active);
  x["stale_max"] = if_late(m.most_stale);
  x["epsilon"] = o.epsilon;
  x["tau"] = o.tau == unlimited ? json("unlimited") : json(o.tau);
  x["tau_prime"] = o.tau_prime;
  x["alpha"] = o.model.alpha;
  x["beta"] = o.model.beta;
  x["gamma_sparse"] = o.model.gamma_sparse;
  x["gamma_dense"] = o.model.gamma_dense;
  x["gamma_coded"] = o.model.gamma_coded;
  x["alpha_shared"] = o.model.alpha_shared;
  x["max_error"] = o.check ? json(m.max_error) : json();
  x["mean_error"] = o.check ? json(m.mean_error) : json();
  x["rms_error"] = o.check ? json(m.rms_error) : json();
  x["error_bound"] = o.check ? json(m.error_bound) : json();
  x["correct"] = o.check ? json(r.correct()) : json();
  if (o.transport == "sim") {
    x["latency"] = o.latency;
    x["overhead"] = o.overhead;
    x["bandwidth"] = o.bandwidth;
    x["compute"] = o.compute;
    x["cores"] = o.cores;
    x["jitter"] = o.jitter;
    x["ranks_per_host"] = o.ranks_per_host;
  }
  return x;
}

} // namespace

struct earlier_run::content {
  std::string path;
  nlohmann::ordered_json rows;
};

earlier_run::~earlier_run() = default;

earlier_run::earlier_run(const std::string& path) : content_(new content{path, {}}) {
  const auto wrong = [&](const std::string& why) -> void { throw usage_error("--against: " + path + " " + why); };
  try {
    std::ifstream file(path);
    if (!file) wrong("cannot be read");
    const auto check_depth = [&](int depth, auto, const auto&) {
      if (depth > 100) wrong("has values nested more than 100 deep, unlike the rows of spar_perf --json");
      return true;
    };
    content_->rows = nlohmann::ordered_json::parse(file, check_depth, false);
  } catch (const std::ios_base::failure&) { // a folder, for example
    wrong("cannot be read");
  }
  if (!content_->rows.is_array() || content_->rows.empty()) wrong("has no rows of spar_perf --json");
  const auto seconds = [](const auto& time) { return time.is_number() && time.template get<double>() >= 0; };
  for (const auto& r : content_->rows) {
    const auto format = r.is_object() && r.contains("format") ? r["format"] : nlohmann::ordered_json();
    if (format != row_format) {
      wrong("was written by another version of spar_perf: its format is " +
            (format.is_null() ? "none" : format.dump()) + "; expected " + std::to_string(row_format));
    }
    const bool complete = r.contains("machine") && r["machine"].is_object() && r.contains("times") &&
                          r["times"].is_array() && !r["times"].empty() &&
                          std::all_of(r["times"].begin(), r["times"].end(), seconds);
    if (!complete) wrong("has a row without a machine or with invalid times");
  }
}

std::string earlier_run::compare(std::vector<row>& rows, const options& o, const std::string& library,
                                 const machine& here) const {
  using json = nlohmann::ordered_json;
  for (row& r : rows) {
    const auto own = to_json(r, o, library);
    const auto before = std::find_if(content_->rows.begin(), content_->rows.end(), [&](const auto& other) {
      return std::all_of(std::begin(identity), std::end(identity), [&](const std::string_view key) {
        const json missing = key == "memory" ? json("host") : json(); // earlier rows do not name the memory
        return other.value(key, missing) == own.value(key, missing);
      });
    });
    if (before == content_->rows.end()) continue;
    const auto times = (*before)["times"].template get<std::vector<double>>();
    r.against_before = compare_runs(r.measured.seconds, times, o.seed);
    const double ratio = r.against_before->ratio;
    if (is_exact(o, times) && is_exact(o, r.measured.seconds)) r.against_before = exactly(ratio);
  }
  if (o.transport == "sim") return {}; // virtual time is the same on every machine
  const auto& other = content_->rows.front()["machine"];
  const auto own = to_json(here);
  for (const char* const key : {"processor", "cores", "system", "compiler"}) {
    if (!other.contains(key) || other[key] != own[key])
      return "the run in " + content_->path + " took place on another machine or was compiled differently: " +
             (other.contains(key) ? other[key].dump() : "unknown") + ", here " + own[key].dump();
  }
  return {};
}

} // namespace spar::perf
