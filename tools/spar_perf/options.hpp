// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options of spar_perf.
#pragma once

#include "patterns.hpp"
#include "skew.hpp"

#include <spar/core/network_model.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace spar::perf {

/// The value of `tau` for `--tau unlimited`.
inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct options {
  std::vector<std::string> systems; ///< in the order given; `parse_options` fills in the default set
  std::vector<std::string> names;   ///< of the systems in the output: `--systems mine=ring` gives ring the name mine
  std::uint64_t count = std::uint64_t{1} << 20;
  std::vector<double> densities{0.01};
  std::string type = "float";
  int index_bits = 32;
  pattern_kind pattern = pattern_kind::uniform;
  bool dense_input = false; ///< systems for sparse streams select their entries from a dense vector
  int iterations = 20;
  int warmup = 5;
  bool check = false;
  bool in_place = false;
  bool on_device = false; ///< the values are in device memory (--memory device)
  std::string json;       ///< file to write; empty for none
  bool phases = false;    ///< also measures where the time goes, in traced calls after the others
  std::string trace;      ///< folder for a timeline of each system; empty for none
  std::string against;    ///< JSON of an earlier run to compare with; empty for none
  std::string transport;
  int ranks = 0; ///< 0 if not given
  std::uint64_t seed = 1;
  std::string topology = "auto"; ///< a JSON file, or "auto"
  spar::perf::skew skew;
  // Options of Ok-Topk:
  double epsilon = 0.1;
  std::uint64_t tau = 64; ///< also an option of partial systems
  int tau_prime = 32;
  // Options of the simulator, in seconds and bytes per second:
  double latency = 1e-6;
  double overhead = 0;
  double bandwidth = 1e9;
  double compute = 0;
  int cores = 0;
  double jitter = 0;
  int ranks_per_host = 1;

  std::string calibrate;       ///< file to write; empty to measure systems
  std::string network;         ///< file to read; empty for the default model
  spar::network_model model{}; ///< chooses algorithms; the simulator also simulates this network

  bool list = false;

  [[nodiscard]] bool traces() const noexcept { return phases || !trace.empty(); }
};

/// Thrown for --help: suite::run prints the text and ends with the status.
struct early_end {
  int status;
  std::string text;
};

/// `own` names the systems of the program, which the default set of systems includes.
/// Throws `early_end` for --help and `usage_error` for invalid arguments; all ranks get the same arguments, so all
/// throw alike.
options parse_options(int argc, char** argv, const std::string& default_transport,
                      const std::vector<std::string>& own = {});

/// The number of entries k that each rank sends at a density: round(density * n), at most n.
std::uint64_t entries_of(const options& o, double density);

/// The contribution of each rank at a density. Throws `usage_error` if `--pattern disjoint` needs more than n entries.
workload workload_of(const options& o, double density, int ranks);

} // namespace spar::perf
