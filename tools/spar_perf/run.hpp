// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement on each transport. Each is compiled by itself: all systems for all types take a while.
#pragma once

#include "options.hpp"
#include "report.hpp"

#include <string>
#include <vector>

namespace perf {

/// Each validates the whole command line before anything is sent, and throws `usage_error` or `missing`.
std::vector<row> run_threads(const options& o);
std::vector<row> run_sim(const options& o);
/// Collective over MPI_COMM_WORLD; the rows are the same on every rank.
std::vector<row> run_mpi(const options& o);

/// The parameters of the network, measured; those of a simulated one are given. Throw like the above.
spar::network_model calibrate_threads(const options& o);
spar::network_model calibrate_mpi(const options& o);

/// What `--systems` takes on the transports of this build.
std::vector<std::string> system_names();

} // namespace perf
