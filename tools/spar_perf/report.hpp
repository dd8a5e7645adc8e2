// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What was measured of a system, as a table for people and as JSON.
#pragma once

#include "options.hpp"

#include <spar/topology/flex_plan.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace perf {

/// Of one system: on one rank first, then over all ranks.
struct record {
  std::vector<double> seconds;        ///< of each iteration; the slowest rank's
  std::vector<double> select_seconds; ///< of these for selection; empty where nobody tells
  std::vector<double> codec_seconds;  ///< of these for encoding and decoding
  bool counted = false;               ///< messages and bytes are known
  // The largest of any call and rank:
  std::uint64_t messages = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t compressions = 0;
  std::uint64_t decompressions = 0;
  // and of all calls and ranks together:
  std::uint64_t total_bytes_sent = 0;
  std::uint64_t total_bytes_received = 0;

  /// Of all calls and ranks, over each link of the tree's root: up and down, one after the other.
  std::vector<std::uint64_t> root_link_bytes{};

  std::uint64_t nnz_out = 0;       ///< entries of the result other than 0, the most in any call
  std::uint64_t total_nnz_out = 0; ///< of all calls together
  double max_error = 0;
  double error_bound = 0;
  bool same_bits = true; ///< on all ranks

  // Where ranks are late:
  std::vector<double> latencies{}; ///< of each iteration: the mean over the ranks of their own calls' times
  double total_active = 0;         ///< ranks whose own call is in the result, of all calls together
  int least_active = std::numeric_limits<int>::max();
  std::uint64_t most_stale = 0; ///< rounds
};

struct row {
  std::string system;
  bool partial = false;
  workload work;
  double density = 0;
  record measured;
  std::optional<double> model_seconds;                    ///< by the model of the tree's links
  std::optional<spar::flex_plan::call_counts> plan_calls; ///< where the system has a plan
  std::string compared_to;                                ///< the system, or empty
  std::vector<double> ratios;                             ///< to it, of each iteration
  double ratio = 0;                                       ///< the median; where ranks are late, of the mean latencies

  [[nodiscard]] bool correct() const { return measured.same_bits && measured.max_error <= measured.error_bound; }
};

/// Fills the ratios of the rows of one workload, to mpi if it is there; where ranks are late, else to the first system
/// that waits for all.
void compare(std::vector<row>& rows);

/// `ranks` and `library` (may be empty) for the head of the table.
std::string to_table(const std::vector<row>& rows, const options& o, const std::string& library);

/// An array with an object for each row.
std::string to_json(const std::vector<row>& rows, const options& o, const std::string& library);

} // namespace perf
