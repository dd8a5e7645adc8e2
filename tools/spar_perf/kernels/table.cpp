// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "table.hpp"

#include "../machine.hpp"
#include "../units.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace spar::perf {

namespace {

/// A narrower table than that of Google Benchmark, with the interval and the verdict beside the ratio.
class table : public benchmark::ConsoleReporter {
 public:
  explicit table(const machine& here) : ConsoleReporter(OO_None), here_(&here) {}

  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width;
    GetOutputStream() << fmt::format("# {}, {} cores, {}, {}\n", here_->processor, here_->cores, here_->system,
                                     here_->compiler);
    return true;
  }

 private:
  void PrintHeader(const Run&) override {}
  void PrintRunData(const Run& measured) override {
    Run report = measured;
    report.run_name.time_type.clear(); // that Google Benchmark does not measure the time itself
    const auto found = report.counters.lower_bound(std::string(model_prefix));
    const bool has_ratio = found != report.counters.end() && found->first.starts_with(model_prefix);
    if (!has_ratio || report.run_type != Run::RT_Iteration) { // not measured, or a statistic of repetitions
      ConsoleReporter::PrintRunData(report);
      return;
    }
    if (found->first != model_) {
      model_ = found->first;
      const std::string ratio = fmt::format("/ {}", model_.substr(model_prefix.size()));
      GetOutputStream() << fmt::format("\n{:<{}}{:>11}{:>10}{:>8}  {:<13} {:<15} {}\n", "kernel", name_width(), "time",
                                       "ns/entry", "copy %", ratio, "(interval)", "verdict");
    }
    const auto value = [&](const char* name) { return report.counters.at(name).value; };
    GetOutputStream() << fmt::format("{:<{}}{:>11}{:>10.3f}{:>8.0f}  {:<13.3f} {:<15} {:<12}{}\n",
                                     report.benchmark_name(), name_width(), time_text(value("median_s")),
                                     value("ns_entry"), value("copy_%"), found->second.value,
                                     interval(value("low"), value("high")), report.report_label, amounts(report))
                      << std::flush;
  }

  [[nodiscard]] std::size_t name_width() const {
    constexpr std::size_t type = std::string_view("/manual_time").size();
    return name_field_width_ - std::min(type, name_field_width_);
  }
  static std::string interval(double low, double high) {
    return std::isinf(high) ? "(too few calls)" : fmt::format("({:.3f}..{:.3f})", low, high);
  }
  static std::string amounts(const Run& report) {
    std::string text;
    for (const auto& [key, what] : {std::pair{"selected", "selected"},
                                    {"asked", "asked"},
                                    {"bits_entry", "bits/entry"},
                                    {"bits_value", "bits/value"}}) {
      const auto found = report.counters.find(key);
      if (found != report.counters.end()) text += fmt::format("  {:.6g} {}", found->second.value, what);
    }
    return text;
  }

  const machine* here_;
  std::string model_;
};

} // namespace

std::size_t run_benchmarks() {
  const machine at_start = this_machine();
  benchmark::BenchmarkReporter* shown = benchmark::CreateDefaultDisplayReporter(); // the library deletes it
  table own(at_start);
  if (dynamic_cast<benchmark::ConsoleReporter*>(shown) != nullptr) shown = &own;
  const std::size_t matching = benchmark::RunSpecifiedBenchmarks(shown);
  for (const std::string& what : disturbances(at_start, this_machine()))
    std::fprintf(stderr, "kernels: warning: %s\n", what.c_str());
  return matching;
}

} // namespace spar::perf
