// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of the kernels.
#pragma once

#include <cstddef>
#include <string_view>

namespace spar::perf {

/// The name of the counter with the ratio of a policy and a model begins with this prefix, before the model's name.
inline constexpr std::string_view model_prefix = "vs_";

/// Runs the benchmarks that Google Benchmark knows. Prints a line for each policy, unless `--benchmark_format` asks for
/// another output; warns if the machine was not quiet. Returns the number of benchmarks that match
/// `--benchmark_filter`.
std::size_t run_benchmarks();

} // namespace spar::perf
