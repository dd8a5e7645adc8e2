// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures each policy in turn with a copy of the same bytes and with a model of the library, so that a disturbance of
// the machine affects all three.
#include "../kernels.hpp"

#include "../units.hpp"
#include "../verdict.hpp"
#include "contract.hpp"
#include "inputs.hpp"

#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>
#ifdef SPAR_HAS_ZFP
#include <spar/storage/zfp.hpp>
#endif

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
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

template <class F>
double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What one iteration does: the policy's work, the model's work, and the preparation of the next iteration.
struct work {
  std::size_t copied = 0;    ///< bytes that the copy reads
  std::size_t processed = 0; ///< bytes that the policy reads and writes
  std::size_t entries = 0;
  std::function<void()> policy, model, prepare;
  std::vector<std::pair<std::string, double>> counters{}; ///< known before the measurement
};

/// Runs `w` until Google Benchmark has measured long enough. `copy_%`: the bytes per second of the policy in percent of
/// those of the copy, which reads and writes `copied` bytes. `vs_MODEL`: the time of the policy divided by that of the
/// model, with the limits of its interval and the verdict.
void run(benchmark::State& state, const std::string& model, const work& w) {
  const std::vector<char> from(w.copied, 1);
  std::vector<char> to(w.copied);
  std::vector<double> times, copies, models;
  for (auto _ : state) {
    w.prepare();
    const auto policy = [&] { times.push_back(seconds_of(w.policy)); };
    const auto reference = [&] { models.push_back(seconds_of(w.model)); };
    // Alternates the order, because the first finds other data in the caches than the second.
    if (times.size() % 2 == 0)
      policy(), reference();
    else
      reference(), policy();
    copies.push_back(seconds_of([&] { std::memcpy(to.data(), from.data(), w.copied); }));
    state.SetIterationTime(times.back());
  }
  const verdict copy = compare_paired(copies, times), against = compare_paired(times, models);
  const double copied = 2 * static_cast<double>(w.copied), processed = static_cast<double>(w.processed);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(w.processed));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  state.counters["ns_entry"] = 1e9 * times[times.size() / 2] / static_cast<double>(w.entries);
  state.counters["copy_%"] = copied > 0 ? 100 * copy.ratio * processed / copied : 0;
  state.counters["vs_" + model] = against.ratio;
  state.counters["low"] = against.lowest;
  state.counters["high"] = against.highest;
  for (const auto& [name, value] : w.counters) state.counters[name] = value;
  // A difference below 1 % may come from where the buffers lie in memory.
  state.SetLabel(against.highest < 0.99 ? "faster" : against.lowest > 1.01 ? "slower" : "cannot tell");
}

void add_benchmark(const std::string& name, std::function<void(benchmark::State&)> measure) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(measure))->UseManualTime();
}

/// The share of the values that selectors without a density are compared at, and that streams have.
constexpr double usual_density = 0.01;
constexpr int drift_steps = 3;

/// A selector on one input: selects, and afterwards puts back what it has selected.
class selection {
 public:
  selection(const selector_policy& select, const std::vector<std::vector<float>>& steps)
      : select_(select.start()), steps_(&steps), x_(steps[0]) {}
  void operator()() { selected_ = select_(std::span(x_), memory_); }
  void prepare() {
    ++step_;
    if (steps_->size() > 1)
      x_ = (*steps_)[step_ % steps_->size()];
    else
      kernel::scatter_assign(selected_.view().entries(), 0, x_.data());
  }
  [[nodiscard]] std::size_t count() const { return selected_.count(); }

 private:
  pool memory_;
  selector_policy::calls select_;
  const std::vector<std::vector<float>>* steps_;
  std::vector<float> x_;
  sparse_stream<float> selected_;
  std::size_t step_ = 0;
};

void measure_selector(benchmark::State& state, const selector_policy& policy, const selector_policy& model,
                      input_kind kind, std::size_t n, const std::vector<float>& gradients) {
  std::vector<std::vector<float>> steps;
  for (int s = 0; s < (kind == input_kind::drift ? drift_steps : 1); ++s)
    steps.push_back(input_vector(kind, n, s, gradients));
  selection own(policy, steps), reference(model, steps);
  own(), reference();
  const auto asked = policy.bounds(n);
  work w{.copied = n * sizeof(float),
         .processed = n * sizeof(float) + own.count() * 2 * sizeof(float),
         .entries = n,
         .policy = [&] { own(); },
         .model = [&] { reference(); },
         .prepare = [&] { own.prepare(), reference.prepare(); }};
  w.counters.emplace_back("selected", static_cast<double>(own.count()));
  if (asked) w.counters.emplace_back("asked", static_cast<double>(asked->k));
  run(state, "exact_topk", w);
}

void measure_stream(benchmark::State& state, const stream_policy& policy, const stream_policy& model, bool encodes,
                    bool runs, std::size_t n) {
  const auto indices = input_indices(runs, n, std::max<std::size_t>(1, n / 100), 3);
  const auto values = input_vector(input_kind::heavy, indices.size(), 0);
  const entries from{indices, values};
  const index_range range{0, n};
  const auto bytes_of = [&](const stream_policy& codec) {
    std::vector<std::byte> bytes(codec.bound(range, indices.size()));
    bytes.resize(codec.encode(from, range, bytes));
    return bytes;
  };
  const std::vector<std::byte> own = bytes_of(policy), reference = bytes_of(model);
  std::vector<std::byte> own_room(policy.bound(range, indices.size())), room(model.bound(range, indices.size()));
  std::vector<std::uint32_t> to_indices(indices.size());
  std::vector<float> to_values(indices.size());
  const entry_room<float, std::uint32_t> to{to_indices, to_values};
  const std::size_t plain = indices.size() * 2 * sizeof(float);
  work w{.copied = plain,
         .processed = plain + own.size(),
         .entries = indices.size(),
         .policy = {},
         .model = {},
         .prepare = [] {}};
  if (encodes) {
    w.policy = [&] { benchmark::DoNotOptimize(policy.encode(from, range, own_room)); };
    w.model = [&] { benchmark::DoNotOptimize(model.encode(from, range, room)); };
  } else {
    w.policy = [&] { policy.decode(own, range, to); };
    w.model = [&] { model.decode(reference, range, to); };
  }
  w.counters.emplace_back("bits_entry", 8 * static_cast<double>(own.size()) / static_cast<double>(indices.size()));
  run(state, "coo", w);
}

void measure_block(benchmark::State& state, const block_policy& policy, const block_policy& model, bool encodes,
                   input_kind kind, std::size_t n, const std::vector<float>& gradients) {
  const std::vector<float> x = input_vector(kind, n, 0, gradients);
  std::vector<std::byte> own(policy.bytes(n)), reference(model.bytes(n));
  block_position at{};
  policy.encode(x, own, at);
  model.encode(x, reference, at);
  std::vector<float> to(n);
  work w{.copied = n * sizeof(float),
         .processed = n * sizeof(float) + own.size(),
         .entries = n,
         .policy = {},
         .model = {},
         .prepare = [&] { ++at.call; }};
  if (encodes) {
    w.policy = [&] { policy.encode(x, own, at); };
    w.model = [&] { model.encode(x, reference, at); };
  } else {
    w.policy = [&] { policy.decode(own, to); };
    w.model = [&] { model.decode(reference, to); };
  }
  w.counters.emplace_back("bits_value", 8 * static_cast<double>(own.size()) / static_cast<double>(n));
  run(state, "bfloat16", w);
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
  const std::size_t written = policy.merge(a, b, indices.data(), values.data());
  const std::size_t read = (left.size() + right.size()) * 2 * sizeof(float);
  run(state, "sum",
      {.copied = read,
       .processed = read + written * 2 * sizeof(float),
       .entries = left.size() + right.size(),
       .policy = [&] { benchmark::DoNotOptimize(policy.merge(a, b, indices.data(), values.data())); },
       .model = [&] { benchmark::DoNotOptimize(model.merge(a, b, indices.data(), values.data())); },
       .prepare = [] {}});
}

/// The share of n that a selector asks for, at which the library's selectors are compared with it.
double density_of(const selector_policy& policy) {
  constexpr std::uint64_t n = std::uint64_t{1} << 20;
  const auto bounds = policy.bounds(n);
  return bounds ? static_cast<double>(bounds->k) / static_cast<double>(n) : usual_density;
}

std::vector<selector_policy> library_selectors(double density) {
  const auto in_bucket = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(density * 512 + 0.5));
  return {erased_selector("exact_topk", selector::exact_topk{.density = density}),
          erased_selector("threshold_reuse", selector::threshold_reuse{.density = density}),
          erased_selector("bucket_topk", selector::bucket_topk{.k = in_bucket}),
          erased_selector("gaussian", selector::gaussian{.density = density})};
}
std::vector<block_policy> library_blocks() {
  return {
      erased_block_codec("bfloat16", storage::bfloat16{}, 0), erased_block_codec("half", storage::half{}, 0),
      erased_block_codec("qsgd8", storage::qsgd<8>{}, 0),     erased_block_codec("qsgd4", storage::qsgd<4>{}, 0),
#ifdef SPAR_HAS_ZFP
      erased_block_codec("zfp8", storage::zfp{.rate = 8}, 0), erased_block_codec("zfp16", storage::zfp{.rate = 16}, 0),
#endif
  };
}

/// `policies` followed by those of `library` whose name is not used yet.
template <class Policy>
std::vector<Policy> beside(std::vector<Policy> policies, const std::vector<Policy>& library) {
  for (const Policy& model : library) {
    const bool known =
        std::any_of(policies.begin(), policies.end(), [&](const Policy& p) { return p.name == model.name; });
    if (!known) policies.push_back(model);
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

/// Benchmarks refer to `gradients`, which must exist while they run: a copy in each would take gigabytes.
void add_selectors(const kernels& all, const std::vector<float>& gradients) {
  if (all.selectors.empty()) return;
  const double density = density_of(all.selectors.front());
  const std::vector<selector_policy> library = library_selectors(density);
  const std::vector<selector_policy> policies = beside(all.selectors, library);
  for (const std::size_t n : input_sizes) {
    for (const input_kind kind : kinds_of(n, gradients)) {
      for (const selector_policy& policy : policies) {
        add_benchmark(benchmark_name("select", policy.name, input_names[static_cast<std::size_t>(kind)], n),
                      [=, &gradients, model = library.front()](benchmark::State& state) {
                        measure_selector(state, policy, model, kind, n, gradients);
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
    const auto check = [](const auto& policies) {
      for (const auto& policy : policies) check_contract(policy);
    };
    check(all.selectors), check(all.streams), check(all.blocks), check(all.merges);
    add_selectors(all, gradients);
    add_storages(all, gradients);
    add_merges(all);
    std::vector<char*> arguments(argv, argv + argc);
    std::string usual_time = "--benchmark_min_time=0.05"; // a given option comes behind it and takes effect
    arguments.insert(arguments.begin() + 1, usual_time.data());
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kernels: %s\n", e.what());
    return 2;
  }
}

} // namespace spar::perf
