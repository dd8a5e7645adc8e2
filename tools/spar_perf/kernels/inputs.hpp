// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The vectors and streams on which kernels are measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spar::perf {

/// - uniform: independent values from -1 to 1;
/// - gaussian: independent, with the standard normal distribution;
/// - heavy: independent, with Student's t distribution with two degrees of freedom: few values are very large;
/// - drift: normal, and each step changes a tenth of each value, as gradients of successive steps;
/// - runs: normal, and zero except in runs of 64 adjacent values, as gradients of embeddings;
/// - gradients: from a file.
enum class input_kind { uniform, gaussian, heavy, drift, runs, gradients };
inline constexpr std::string_view input_names[] = {"uniform", "gaussian", "heavy", "drift", "runs", "gradients"};

/// The numbers of values: from the first-level cache to main memory.
inline constexpr std::size_t input_sizes[] = {std::size_t{1} << 12, std::size_t{1} << 16, std::size_t{1} << 20,
                                              std::size_t{1} << 24};

/// n values of step `step`; only drift changes from step to step. `gradients` are the values of the file, of which the
/// first n are taken.
std::vector<float> input_vector(input_kind kind, std::size_t n, int step, const std::vector<float>& gradients = {});

/// Ascending indices below n: about `count` at random places, alone or in runs of 64.
std::vector<std::uint32_t> input_indices(bool runs, std::size_t n, std::size_t count, unsigned seed);

/// Reads float32 values, little-endian, without a header. Throws `usage_error` if the file cannot be read or holds no
/// value.
std::vector<float> read_gradients(const std::string& path);

} // namespace spar::perf
