// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement of all systems at one density. The types of values and indices are known only to the files typed_*,
// each of which compiles all systems for some types, for all transports.
#pragma once

#include "measured_net.hpp"
#include "options.hpp"
#include "own_systems.hpp"
#include "report.hpp"

#include <spar/topology/tree.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace spar::perf {

class measurement {
 public:
  virtual ~measurement() = default;
  /// Measures all systems on one of the ranks that run in parallel: all ranks call this function. Every rank gets the
  /// records of all ranks, combined.
  virtual std::vector<record> on_rank(measured_net& net) const = 0;
  /// Measures all systems in the simulator.
  virtual std::vector<record> simulated() const = 0;
  /// The number of timed calls of each system, unless the measurement is interrupted.
  [[nodiscard]] virtual std::size_t iterations() const = 0;
  /// The rows of combined records.
  [[nodiscard]] virtual std::vector<row> rows(std::vector<record> records) const = 0;
};

/// What a measurement measures.
struct measured_systems {
  const options& o;
  double density;
  int ranks;
  const spar::tree& topology;
  const own_systems& own;
  mpi_allreduce mpi{}; ///< MPI_Allreduce of the values' type; empty for other transports
};

/// Throws `usage_error` for a system that does not exist, and `missing` for types or systems that were not compiled.
std::unique_ptr<measurement> measurement_of(const measured_systems& what);

/// Appends the rows of the records to `rows`. Returns false if the measurement was interrupted; the rows then have
/// fewer iterations, and there are none if no iteration has ended. Systems with fewer iterations than others have no
/// row: they cannot be compared, and the simulator runs all calls of a partial system before the next system. All ranks
/// get the same answer.
bool take_rows(const measurement& systems, std::vector<record> records, std::vector<row>& rows);

} // namespace spar::perf
