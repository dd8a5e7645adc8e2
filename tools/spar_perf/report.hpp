// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurements of each system, and their output as a table and as JSON.
#pragma once

#include "machine.hpp"
#include "options.hpp"
#include "phases.hpp"
#include "verdict.hpp"

#include <spar/core/statistics.hpp>
#include <spar/topology/flex_plan.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spar::perf {

/// What a rank has asked of the CUDA runtime.
struct device_calls {
  std::uint64_t launches = 0;       ///< kernels
  std::uint64_t graph_launches = 0; ///< of CUDA graphs
  std::uint64_t waits = 0;          ///< of the host for the device: events that it polls or awaits, and streams

  device_calls& operator+=(const device_calls& more) {
    launches += more.launches, graph_launches += more.graph_launches, waits += more.waits;
    return *this;
  }
};

/// The measurements of one system: first of one rank, then combined over all ranks.
struct record {
  std::vector<double> seconds;        ///< of each iteration; combined: the slowest rank's
  std::vector<double> select_seconds; ///< part of `seconds` for selection; empty if the system does not report it
  std::vector<double> codec_seconds;  ///< part of `seconds` for encoding and decoding
  bool counted = false;               ///< whether messages and bytes are known
  spar::statistics largest{};         ///< each count: the largest of any call on any rank
  spar::statistics total{};           ///< sum over all calls and ranks

  /// Payload of all calls and ranks over each link below the tree's root: for each link, up and then down.
  std::vector<std::uint64_t> root_link_bytes{};

  std::optional<device_calls> device{}; ///< sum over all calls and ranks, if they are counted

  std::uint64_t nnz_out = 0;       ///< nonzero entries of the result, the largest number of any call
  std::uint64_t total_nnz_out = 0; ///< sum over all calls
  double max_error = 0;
  double mean_error = 0; ///< magnitude of the mean of the errors of a call; the largest of any call
  double rms_error = 0;  ///< root mean square of the errors of a call; the largest of any call
  double error_bound = 0;
  bool same_bits = true; ///< whether all ranks have bitwise identical results

  // Of the traced calls:
  std::optional<spar::perf::phases> phases{};
  std::vector<std::string> timeline{}; ///< of the last traced call, for each rank; only on the rank that reports

  // If ranks are late:
  std::vector<double> latencies{}; ///< of each iteration: the mean over all ranks of the time of the rank's own call
  double total_active = 0;         ///< number of ranks whose own call is in the result, summed over all calls
  int least_active = std::numeric_limits<int>::max();
  std::uint64_t most_stale = 0; ///< largest number of rounds by which a call in a result was late
};

/// The integer counts of `spar::statistics`.
inline constexpr std::array counts{
    &spar::statistics::messages_sent,     &spar::statistics::messages_received,
    &spar::statistics::bytes_sent,        &spar::statistics::bytes_received,
    &spar::statistics::header_bytes_sent, &spar::statistics::header_bytes_received,
    &spar::statistics::plain_bytes_sent,  &spar::statistics::compressions,
    &spar::statistics::decompressions,    &spar::statistics::coded_indices,
    &spar::statistics::coded_index_bytes, &spar::statistics::coded_values,
    &spar::statistics::coded_value_bytes,
};

struct row {
  std::string system;
  bool partial = false;
  std::string memory = "host"; ///< where the values are: host, staged or device
  workload work;
  double density = 0;
  record measured;
  std::optional<double> model_seconds; ///< expected time by the bandwidth and latency of the tree's links
  std::optional<spar::flex_plan::call_counts> plan_calls; ///< if the system has a plan
  double vector_bytes = 0;                                ///< size of a dense vector
  std::optional<double> bound_bytes; ///< least payload that a rank sends, the mean over ranks; see least_bytes
  bool is_mpi = false;               ///< whether the system is MPI_Allreduce
  bool compared_to_mpi = false;
  std::string compared_to;               ///< name of the system in the denominator of the ratios
  std::vector<double> ratios;            ///< time / time of `compared_to`, of each iteration
  verdict against_reference;             ///< of the times against those of `compared_to`
  std::optional<verdict> against_before; ///< of the times against those of the earlier run; null if it lacks the row

  [[nodiscard]] bool correct() const { return measured.same_bits && measured.max_error <= measured.error_bound; }
};

/// Compares the rows of one workload with the reference: mpi if it was measured; otherwise, if ranks are late, the
/// first system that is not partial; otherwise the first system.
void compare(std::vector<row>& rows, const options& o);

/// The rows of an earlier run, and the machine on which the run took place.
class earlier_run {
 public:
  /// Reads the output of --json. Throws `usage_error` if the file is unreadable or was written by another version.
  explicit earlier_run(const std::string& path);
  ~earlier_run();

  /// Compares each row with the row of the same system and workload. Returns a sentence if the earlier run took place
  /// on a machine other than `here`, else an empty text.
  std::string compare(std::vector<row>& rows, const options& o, const std::string& library, const machine& here) const;

 private:
  struct content;
  std::unique_ptr<content> content_;
};

/// A table for people. `library` names the MPI library in the heading; it may be empty.
std::string to_table(const std::vector<row>& rows, const options& o, const std::string& library);

/// A JSON array with one object per row.
std::string to_json(const std::vector<row>& rows, const options& o, const std::string& library, const machine& here);

} // namespace spar::perf
