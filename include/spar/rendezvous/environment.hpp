// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the environment says about a process: its rank, the number of ranks, and where the job meets. Reads the
// variables of torchrun, Open MPI, MPICH and Intel MPI (Hydra), and Slurm, and those of spar.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/rendezvous/options.hpp>

#include <string>
#include <string_view>

namespace spar::inline v0_1::detail {

struct place_in_job {
  rank_t rank = 0;
  rank_t size = 1;
  rendezvous_options where;
};

/// Completes `options` by the variables of the environment. Throws `invalid_argument`, which names the variable, its
/// value and what was expected, if a variable is missing or malformed.
place_in_job place_from_environment(const rendezvous_options& options);
/// The same for a process that joins a job, which has no rank there: where the job meets.
rendezvous_options job_to_join(const rendezvous_options& options);

/// The deadline of `options` or, if that is the default, the number of seconds in the variable SPAR_DEADLINE if it is
/// set. Throws `invalid_argument` if the variable is malformed.
double deadline_in_environment(const rendezvous_options& options);

/// The first host of a list of Slurm, such as node01 of `node[01-03,07],login`. Throws `invalid_argument` with the name
/// of the `variable` if the list is malformed.
std::string first_slurm_host(const char* variable, std::string_view list);

/// How far the port of a rendezvous is above MASTER_PORT, which torchrun's own store holds.
inline constexpr int port_distance = 101;

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/environment-inl.hpp>
#endif
