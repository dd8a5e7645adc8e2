// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures each policy in turn with a copy of the same bytes and with a model of the library, so that a disturbance of
// the machine affects all three. Policy and model work in the same memory, because the place of a buffer in memory can
// change a time by a few percent.
#include "../kernels.hpp"

#include "../units.hpp"
#include "../verdict.hpp"
#include "contract.hpp"
#include "inputs.hpp"
#include "table.hpp"

#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::perf {

namespace {

struct kernels {
  std::vector<selector_policy> selectors;
  std::vector<stream_policy> streams;
  std::vector<block_policy> blocks;
  std::vector<merge_policy> merges;
};
kernels& registered() {
  static kernels all;
  return all;
}

/// Seconds of one of `calls` calls of f, with the time of reading the clock.
template <class F>
double clocked_seconds(const F& f, int calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    f();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}
template <class F>
double seconds_of(const F& f, int calls) {
  static const double clock = [] {
    double least = 1;
    for (int i = 0; i < 1000; ++i) least = std::min(least, clocked_seconds([] {}, 1));
    return least;
  }();
  return std::max(1e-10, clocked_seconds(f, calls) - clock / calls);
}
/// The number of calls of f that together take long enough for the clock, which counts tens of nanoseconds.
template <class F>
int calls_to_time(const F& f) {
  double least = 1;
  for (int i = 0; i < 3; ++i) least = std::min(least, seconds_of(f, 1));
  return static_cast<int>(std::clamp(2e-6 / least, 1.0, 1000.0));
}

/// One side of a comparison: `prepare` runs before each measurement, and only `calls` calls of `call` are timed. A call
/// that changes its input cannot be repeated.
struct side {
  std::function<void()> prepare, call;
  int calls = 1;
};
side repeatable(std::function<void()> prepare, std::function<void()> call) {
  prepare();
  const int calls = calls_to_time(call);
  return {std::move(prepare), std::move(call), calls};
}

/// Seconds of one call.
double seconds_of(const side& s) {
  s.prepare();
  return seconds_of(s.call, s.calls);
}

/// A policy and the model of the library that it is compared with.
struct comparison {
  std::string model;         ///< name of the model
  std::size_t copied = 0;    ///< bytes that the copy reads
  std::size_t processed = 0; ///< bytes that the policy reads and writes
  std::size_t entries = 0;
  side policy, reference;
  std::vector<std::pair<std::string, double>> counters{}; ///< known before the measurement
};

/// Compares until Google Benchmark has measured long enough. `copy_%`: the bytes per second of the policy in percent of
/// those of the copy, which reads and writes `copied` bytes. `vs_MODEL`: the time of the policy divided by that of the
/// model, with the limits of its interval and the verdict.
void run(benchmark::State& state, const comparison& c) {
  const std::vector<char> from(c.copied, 1);
  std::vector<char> to(c.copied);
  const auto make_copy = [&] { std::memcpy(to.data(), from.data(), c.copied); };
  const int calls = calls_to_time(make_copy);
  std::vector<double> times, references, copies;
  while (state.KeepRunningBatch(c.policy.calls)) {
    // Each call finds in the caches what the call before has left, so both take each place in the order equally often.
    const bool swapped = times.size() % 2 != 0;
    const side &outer = swapped ? c.reference : c.policy, &inner = swapped ? c.policy : c.reference;
    double time = seconds_of(outer);
    const double between = seconds_of(inner) + seconds_of(inner);
    time += seconds_of(outer);
    times.push_back((swapped ? between : time) / 2);
    references.push_back((swapped ? time : between) / 2);
    copies.push_back(seconds_of(make_copy, calls));
    state.SetIterationTime(times.back() * c.policy.calls);
  }
  const verdict copy = compare_paired(copies, times), against = compare_paired(times, references);
  const double copied = 2 * static_cast<double>(c.copied), processed = static_cast<double>(c.processed);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(c.processed));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  const double median = times[times.size() / 2];
  state.counters["median_s"] = median;
  state.counters["ns_entry"] = 1e9 * median / static_cast<double>(c.entries);
  state.counters["copy_%"] = copied > 0 ? 100 * copy.ratio * processed / copied : 0;
  state.counters[std::string(model_prefix) + c.model] = against.ratio;
  state.counters["low"] = against.lowest;
  state.counters["high"] = against.highest;
  for (const auto& [name, value] : c.counters) state.counters[name] = value;
  // Where code lies in memory may change a time by up to 1 %.
  state.SetLabel(against.highest < 0.99 ? "faster" : against.lowest > 1.01 ? "slower" : "cannot tell");
}

/// A policy does not work on this input, and need not.
struct not_applicable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
bool has_failed = false; // whether a policy has thrown an exception

/// An exception ends only this benchmark, and is reported in its line.
void add_benchmark(const std::string& name, std::function<void(benchmark::State&)> measure) {
  benchmark::RegisterBenchmark(name.c_str(), [measure = std::move(measure)](benchmark::State& state) {
    try {
      measure(state);
    } catch (const not_applicable& e) {
      state.SkipWithError(e.what());
    } catch (const std::exception& e) {
      has_failed = true;
      state.SkipWithError(e.what());
    }
  })->UseManualTime();
}

constexpr int drift_steps = 3;

/// The vectors of successive calls of a selector: different ones only for drift.
std::vector<std::vector<float>> steps_of(input_kind kind, std::size_t n, const std::vector<float>& gradients) {
  std::vector<std::vector<float>> steps;
  for (int s = 0; s < (kind == input_kind::drift ? drift_steps : 1); ++s)
    steps.push_back(input_vector(kind, n, s, gradients));
  return steps;
}

/// The memory in which selectors work one after another.
struct workplace {
  pool memory;
  std::vector<float> x;
  sparse_stream<float> selected;
};

/// A selector that finds the next vector of `steps` in `x` at each call.
class selection {
 public:
  selection(const selector_policy& select, const std::vector<std::vector<float>>& steps, workplace& place)
      : select_(select.start()), steps_(&steps), place_(&place) {}
  void prepare() {
    place_->x = (*steps_)[step_++ % steps_->size()];
    place_->selected = {}; // the next selection gets the same memory
  }
  void call() { place_->selected = select_(std::span(place_->x), place_->memory); }
  [[nodiscard]] side timed() {
    return {.prepare = [this] { prepare(); }, .call = [this] { call(); }};
  }
  /// The number of entries that a call selects.
  std::size_t count() {
    prepare(), call();
    return place_->selected.count();
  }

 private:
  selector_policy::calls select_;
  const std::vector<std::vector<float>>* steps_;
  workplace* place_;
  std::size_t step_ = 0;
};

/// The number of entries that the first call of a selector selects.
std::size_t selected_by(const selector_policy& policy, const std::vector<std::vector<float>>& steps) {
  try {
    policy.validate(steps[0].size());
  } catch (const invalid_argument& e) {
    throw not_applicable(fmt::format("{} refuses this length: {}", policy.name, e.what()));
  }
  workplace place;
  return selection(policy, steps, place).count();
}

/// Compares with exact_topk that selects as many entries.
void measure_selector(benchmark::State& state, const selector_policy& policy,
                      const std::vector<std::vector<float>>& steps) {
  const std::size_t n = steps[0].size(), selected = selected_by(policy, steps);
  const auto asked = policy.bounds(n);
  workplace place;
  const auto exact = erased_selector("exact_topk", selector::exact_topk{.k = std::max<std::size_t>(1, selected)});
  selection own(policy, steps, place), reference(exact, steps, place);
  own.count(), reference.count(); // brings the memory into the pool
  comparison c{.model = exact.name,
               .copied = n * sizeof(float),
               .processed = n * sizeof(float) + selected * 2 * sizeof(float),
               .entries = n,
               .policy = own.timed(),
               .reference = reference.timed()};
  c.counters.emplace_back("selected", static_cast<double>(selected));
  if (asked) c.counters.emplace_back("asked", static_cast<double>(asked->k));
  run(state, c);
}

constexpr auto nothing = [] {};

void measure_stream(benchmark::State& state, const stream_policy& policy, const stream_policy& model, bool encodes,
                    bool runs, std::size_t n) {
  const auto indices = input_indices(runs, n, std::max<std::size_t>(1, n / 100), 3);
  const auto values = input_vector(input_kind::heavy, indices.size(), 0);
  const entries from{indices, values};
  const index_range range{0, n};
  std::vector<std::byte> room(std::max(policy.bound(range, indices.size()), model.bound(range, indices.size())));
  std::size_t bytes = policy.encode(from, range, room);
  const auto encoded = static_cast<double>(bytes);
  std::vector<std::uint32_t> to_indices(indices.size());
  std::vector<float> to_values(indices.size());
  const entry_room<float, std::uint32_t> to{to_indices, to_values};
  const auto timed = [&](const stream_policy& codec) -> side {
    const auto encode = [&] { bytes = codec.encode(from, range, room); };
    if (encodes) return repeatable(nothing, encode);
    return repeatable(encode, [&] { codec.decode(std::span(room).first(bytes), range, to); });
  };
  const std::size_t plain = indices.size() * 2 * sizeof(float);
  comparison c{.model = model.name,
               .copied = plain,
               .processed = plain + bytes,
               .entries = indices.size(),
               .policy = timed(policy),
               .reference = timed(model)};
  c.counters.emplace_back("bits_entry", 8 * encoded / static_cast<double>(indices.size()));
  run(state, c);
}

void measure_block(benchmark::State& state, const block_policy& policy, const block_policy& model, bool encodes,
                   input_kind kind, std::size_t n, const std::vector<float>& gradients) {
  const std::vector<float> x = input_vector(kind, n, 0, gradients);
  for (const block_policy* const codec : {&policy, &model}) {
    if (!codec->can_encode(x)) throw not_applicable(fmt::format("{} refuses these values by can_encode", codec->name));
  }
  block_position at{};
  const std::size_t bytes = policy.bytes(n);
  std::vector<std::byte> room(std::max(bytes, model.bytes(n)));
  std::vector<float> to(n);
  const auto timed = [&](const block_policy& codec) -> side {
    const auto encoded = std::span(room).first(codec.bytes(n));
    const auto encode = [&, encoded] { codec.encode(x, encoded, at); };
    if (encodes) return repeatable([&] { ++at.call; }, encode);
    return repeatable(encode, [&, encoded] { codec.decode(encoded, to); });
  };
  comparison c{.model = model.name,
               .copied = n * sizeof(float),
               .processed = n * sizeof(float) + bytes,
               .entries = n,
               .policy = timed(policy),
               .reference = timed(model)};
  c.counters.emplace_back("bits_value", 8 * static_cast<double>(bytes) / static_cast<double>(n));
  run(state, c);
}

void measure_merge(benchmark::State& state, const merge_policy& policy, const merge_policy& model, bool runs,
                   std::size_t n) {
  const std::size_t count = std::max<std::size_t>(1, n / 100);
  const auto left = input_indices(runs, n, count, 3), right = input_indices(runs, n, count, 4);
  const auto left_values = input_vector(input_kind::uniform, left.size(), 0);
  const auto right_values = input_vector(input_kind::gaussian, right.size(), 0);
  const entries a{left, left_values}, b{right, right_values};
  std::vector<std::uint32_t> indices(left.size() + right.size());
  std::vector<float> values(indices.size());
  const auto merge = [&](const merge_policy& op) { return op.merge(a, b, indices.data(), values.data()); };
  const auto timed = [&](const merge_policy& op) -> side {
    return repeatable(nothing, [&] { benchmark::DoNotOptimize(merge(op)); });
  };
  const std::size_t read = (left.size() + right.size()) * 2 * sizeof(float);
  run(state, {.model = model.name,
              .copied = read,
              .processed = read + merge(policy) * 2 * sizeof(float),
              .entries = left.size() + right.size(),
              .policy = timed(policy),
              .reference = timed(model)});
}

/// spar's selectors of k of n values, of which bucket_topk and gaussian come near k.
std::vector<selector_policy> library_selectors(std::size_t k, std::size_t n) {
  const double density = static_cast<double>(k) / static_cast<double>(n);
  const selector::bucket_topk buckets;
  const auto in_bucket = static_cast<std::uint64_t>(density * static_cast<double>(buckets.bucket) + 0.5);
  return {
      erased_selector("exact_topk", selector::exact_topk{.k = k}),
      erased_selector("threshold_reuse", selector::threshold_reuse{.k = k}),
      erased_selector("bucket_topk", selector::bucket_topk{.k = std::clamp<std::uint64_t>(in_bucket, 1, buckets.bucket),
                                                           .bucket = buckets.bucket}),
      erased_selector("gaussian", selector::gaussian{.density = density})};
}
std::vector<block_policy> library_blocks() {
  return {
      erased_block_codec("bfloat16", storage::as_bfloat16{}, 0),
      erased_block_codec("half", storage::as_half{}, 0),
      erased_block_codec("qsgd8", storage::qsgd<8>{}, 0),
      erased_block_codec("qsgd4", storage::qsgd<4>{}, 0),
      erased_block_codec("zfp8", storage::zfp{.rate = 8}, 0),
      erased_block_codec("zfp16", storage::zfp{.rate = 16}, 0),
  };
}

template <class Policy>
bool has_name(const std::vector<Policy>& policies, const std::string& name) {
  return std::any_of(policies.begin(), policies.end(), [&](const Policy& p) { return p.name == name; });
}

/// `policies` followed by those of `library` whose name is not used yet.
template <class Policy>
std::vector<Policy> beside(std::vector<Policy> policies, const std::vector<Policy>& library) {
  for (const Policy& model : library) {
    if (!has_name(policies, model.name)) policies.push_back(model);
  }
  return policies;
}

std::vector<input_kind> kinds_of(std::size_t n, const std::vector<float>& gradients) {
  std::vector<input_kind> kinds{input_kind::uniform, input_kind::gaussian, input_kind::heavy, input_kind::drift,
                                input_kind::runs};
  if (gradients.size() >= n) kinds.push_back(input_kind::gradients);
  return kinds;
}

std::string benchmark_name(std::string_view what, const std::string& policy, std::string_view input, std::size_t n) {
  return fmt::format("{}/{}/{}/{}", what, policy, input, n);
}

/// The library's selectors aim at as many entries as the first one of `all` selects. Benchmarks refer to `gradients`,
/// which must exist while they run: a copy in each would take gigabytes.
void add_selectors(const kernels& all, const std::vector<float>& gradients) {
  if (all.selectors.empty()) return;
  for (const std::size_t n : input_sizes) {
    for (const input_kind kind : kinds_of(n, gradients)) {
      const auto name_of = [&](const std::string& policy) {
        return benchmark_name("select", policy, input_names[static_cast<std::size_t>(kind)], n);
      };
      const auto steps = [&gradients, kind, n] { return steps_of(kind, n, gradients); };
      for (const selector_policy& policy : all.selectors) {
        add_benchmark(name_of(policy.name), [=](benchmark::State& state) { measure_selector(state, policy, steps()); });
      }
      const std::vector<selector_policy> names = library_selectors(1, n);
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (has_name(all.selectors, names[i].name)) continue;
        add_benchmark(name_of(names[i].name), [=, first = all.selectors.front()](benchmark::State& state) {
          const auto vectors = steps();
          const std::size_t k = std::max<std::size_t>(1, selected_by(first, vectors));
          measure_selector(state, library_selectors(k, n)[i], vectors);
        });
      }
    }
  }
}

void add_storages(const kernels& all, const std::vector<float>& gradients) {
  const stream_policy coo = erased_stream_codec("coo", storage::coo{}, 0);
  const std::vector<block_policy> library = library_blocks();
  const auto streams = all.streams.empty() ? all.streams : beside(all.streams, {coo});
  const auto blocks = all.blocks.empty() ? all.blocks : beside(all.blocks, library);
  for (const std::size_t n : input_sizes) {
    for (const bool encodes : {true, false}) {
      const char* const what = encodes ? "encode" : "decode";
      for (const bool runs : {false, true}) {
        for (const stream_policy& policy : streams) {
          add_benchmark(benchmark_name(what, policy.name, runs ? "runs" : "uniform", n),
                        [=](benchmark::State& state) { measure_stream(state, policy, coo, encodes, runs, n); });
        }
      }
      for (const input_kind kind : kinds_of(n, gradients)) {
        if (kind == input_kind::drift) continue; // a codec has no memory
        for (const block_policy& policy : blocks) {
          const auto name = fmt::format("{}_block", what);
          add_benchmark(benchmark_name(name, policy.name, input_names[static_cast<std::size_t>(kind)], n),
                        [=, &gradients, model = library.front()](benchmark::State& state) {
                          measure_block(state, policy, model, encodes, kind, n, gradients);
                        });
        }
      }
    }
  }
}

void add_merges(const kernels& all) {
  if (all.merges.empty()) return;
  const merge_policy sum = erased_operation("sum", spar::sum{});
  for (const std::size_t n : input_sizes) {
    for (const bool runs : {false, true}) {
      for (const merge_policy& policy : beside(all.merges, {sum})) {
        add_benchmark(benchmark_name("merge", policy.name, runs ? "runs" : "uniform", n),
                      [=](benchmark::State& state) { measure_merge(state, policy, sum, runs, n); });
      }
    }
  }
}

/// Removes `--gradients FILE` from the arguments and reads the file.
std::vector<float> take_gradients(int& argc, char** argv) {
  std::vector<float> values;
  constexpr std::string_view option = "--gradients";
  for (int i = 1; i < argc;) {
    const std::string_view argument = argv[i];
    const bool joined = argument.starts_with("--gradients=");
    if (argument != option && !joined) {
      ++i;
      continue;
    }
    if (!joined && i + 1 == argc) throw usage_error("--gradients needs the name of a file");
    values = read_gradients(joined ? std::string(argument.substr(option.size() + 1)) : std::string(argv[i + 1]));
    const int used = joined ? 1 : 2;
    std::move(argv + i + used, argv + argc, argv + i);
    argc -= used;
  }
  return values;
}

/// Whether all policies keep their contracts. Writes one sentence for each that does not, or that refuses to be
/// checked.
template <class Policy>
bool keep_contracts(const std::vector<Policy>& policies) {
  bool all = true;
  for (const Policy& policy : policies) {
    std::string why;
    try {
      check_contract(policy);
      continue;
    } catch (const broken_contract& e) {
      why = e.what();
    } catch (const std::exception& e) {
      why = fmt::format("{} cannot be checked: {}", policy.name, e.what());
    }
    std::fprintf(stderr, "kernels: %s\n", why.c_str());
    all = false;
  }
  return all;
}

} // namespace

namespace detail {

void add_kernel(selector_policy policy) { registered().selectors.push_back(std::move(policy)); }
void add_kernel(stream_policy policy) { registered().streams.push_back(std::move(policy)); }
void add_kernel(block_policy policy) { registered().blocks.push_back(std::move(policy)); }
void add_kernel(merge_policy policy) { registered().merges.push_back(std::move(policy)); }

} // namespace detail

int run_kernels(int argc, char** argv) {
  try {
    const kernels& all = registered();
    const std::vector<float> gradients = take_gradients(argc, argv);
    const bool kept[] = {keep_contracts(all.selectors), keep_contracts(all.streams), keep_contracts(all.blocks),
                         keep_contracts(all.merges)};
    if (std::ranges::find(kept, false) != std::end(kept)) return 2;
    add_selectors(all, gradients);
    add_storages(all, gradients);
    add_merges(all);
    std::vector<char*> arguments(argv, argv + argc);
    std::string usual_time = "--benchmark_min_time=0.05"; // a given option comes behind it and takes effect
    arguments.insert(arguments.begin() + 1, usual_time.data());
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
    if (run_benchmarks() == 0) throw usage_error("no kernel matches --benchmark_filter; names end in /manual_time");
    return has_failed ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kernels: %s\n", e.what());
    return 2;
  }
}

} // namespace spar::perf
