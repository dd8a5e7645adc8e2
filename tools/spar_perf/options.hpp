// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command line of spar_perf.
#pragma once

#include "patterns.hpp"
#include "skew.hpp"

#include <spar/core/network_model.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace perf {

/// As `--tau unlimited`.
inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct options {
  std::vector<std::string> systems; ///< empty: all that the transport has
  std::uint64_t count = std::uint64_t{1} << 20;
  std::vector<double> densities{0.01};
  std::string type = "float";
  int index_bits = 32;
  pattern_kind pattern = pattern_kind::uniform;
  bool dense_input = false; ///< systems for streams select from a dense vector
  int iterations = 20;
  int warmup = 5;
  bool check = false;
  bool in_place = false;
  std::string json;
  std::string transport;
  int ranks = 0; ///< 0: not given
  std::uint64_t seed = 1;
  std::string topology = "auto"; ///< a file, or auto
  perf::skew skew;
  // of Ok-Topk:
  double epsilon = 0.1;
  std::uint64_t tau = 64; ///< of partial systems as well
  int tau_prime = 32;
  // of the simulator:
  double latency = 1e-6;
  double bandwidth = 1e9;
  double compute = 0;
  int cores = 0;
  double jitter = 0;
  int ranks_per_host = 1;

  std::string calibrate;       ///< the file to write, or empty
  std::string network;         ///< the file to read, or empty
  spar::network_model model{}; ///< by which algorithms are chosen, and what the simulator simulates

  bool list = false;
};

/// What to print and end with where the command line asks for help, a version or a mistake.
struct early_end {
  int status;
  std::string text;
};

/// Throws `early_end` or `usage_error`. Depends on the arguments alone, so all ranks come to the same end.
options parse_options(int argc, char** argv, const std::string& default_transport);

/// nnz_in of a density: k = round(density * n).
std::uint64_t entries_of(const options& o, double density);

/// What each rank contributes at a density. Throws `usage_error` where the pattern has no room for it, or where sums of
/// it could not be checked exactly in the type.
workload workload_of(const options& o, double density, int ranks);

} // namespace perf
