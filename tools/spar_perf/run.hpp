// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement on each transport.
#pragma once

#include "options.hpp"
#include "own_systems.hpp"
#include "report.hpp"

#include <spar/rendezvous/rendezvous.hpp>

#include <string>
#include <vector>

namespace spar::perf {

/// Measure spar's systems and the program's own, and return their rows. Each function validates the whole command line
/// before any message is sent, and throws `usage_error` or `missing`.
std::vector<row> run_threads(const options& o, const own_systems& own);
std::vector<row> run_sim(const options& o, const own_systems& own);
/// Collective over MPI_COMM_WORLD; the rows are the same on every rank.
std::vector<row> run_mpi(const options& o, const own_systems& own);
/// Collective over `ranks`; the rows are the same on every rank.
std::vector<row> run_ucx(const options& o, const own_systems& own, const spar::rendezvous& ranks);

/// Measure the parameters of the network model; the simulator's parameters are given by options. Throw `usage_error`.
spar::network_model calibrate_threads(const options& o);
spar::network_model calibrate_mpi(const options& o);
spar::network_model calibrate_ucx(const options& o, const spar::rendezvous& ranks);

} // namespace spar::perf
