// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of environment.hpp.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/rendezvous/environment.hpp>

#include <cstdint>
#include <cstdlib>
#include <limits>

namespace spar::inline v0_1 {

namespace detail {

/// The value of a variable; empty if it is not set.
inline std::string_view text_in(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The value of the first of the variables that is set and not empty.
template <class... Variables>
std::string_view first_text_in(Variables... variables) {
  std::string_view value;
  for (const char* const variable : {variables...}) {
    if (value.empty()) value = text_in(variable);
  }
  return value;
}

/// The number that the variable contains. Throws `invalid_argument` if it contains none from `least` to `most`.
inline std::int64_t number_in(const char* variable, std::int64_t least, std::int64_t most) {
  const std::string_view text = text_in(variable);
  std::int64_t number = 0;
  bool valid = !text.empty() && text.size() <= 18;
  for (const char digit : text) {
    valid = valid && digit >= '0' && digit <= '9';
    if (valid) number = 10 * number + (digit - '0');
  }
  if (valid && number >= least && number <= most) return number;
  raise<invalid_argument>({"the variable ", variable, text.empty() ? " is not set or empty" : " is \"", text,
                           text.empty() ? "" : "\"", "; expected a number from ", least, " to ", most});
}

/// The variables of a launcher.
struct launcher {
  const char* rank;
  const char* size;
  const char* local_size;      // the number of ranks on this host; null if the launcher does not say
  const char* nodes = nullptr; // the number of hosts
};

/// The launcher that has started this process. One launcher can start another, which then says more about the process:
/// srun starts torchrun, for example. So the order matters.
inline launcher launcher_in_environment() {
  const bool step = !text_in("SLURM_STEP_NUM_TASKS").empty();
  launcher incomplete{nullptr, nullptr, nullptr}; // the first that says how many ranks there are, but not which
  for (const launcher& one : {
           launcher{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
           launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
           launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
           launcher{"SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", nullptr,
                    step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES"},
       }) {
    if (!text_in(one.rank).empty()) return one;
    if (incomplete.rank == nullptr && !text_in(one.size).empty()) incomplete = one;
  }
  if (incomplete.rank != nullptr) { // throws, because there is no rank
    number_in(incomplete.rank, 0, number_in(incomplete.size, 1, std::numeric_limits<rank_t>::max()) - 1);
  }
  raise<invalid_argument>({"the environment does not say which rank this process is: expected the variables RANK and "
                           "WORLD_SIZE, or those of Open MPI, MPICH or Slurm; start the program by scripts/ranks, "
                           "torchrun, mpiexec or srun"});
}

SPAR_INLINE std::string first_slurm_host(const char* variable, std::string_view list) {
  std::string host;
  bool valid = true;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host.push_back(list[i]);
      continue;
    }
    const std::size_t end = list.find(']', i);
    const std::size_t first = list.find_first_of("-,]", i);
    valid = valid && end != list.npos && first > i + 1;
    if (!valid) break;
    host.append(list.substr(i + 1, first - i - 1));
    i = end;
  }
  if (host.empty() || !valid) {
    raise<invalid_argument>(
        {"the variable ", variable, " is \"", list,
         "\"; expected hosts of Slurm such as node[01-03,07], or SPAR_ADDR with the host of rank 0"});
  }
  return host;
}

/// The identity that the launcher gives the job; empty if it gives none.
inline std::string job_in_environment() {
  if (const auto run = text_in("TORCHELASTIC_RUN_ID"); !run.empty()) return std::string(run);
  if (const auto job = text_in("SLURM_JOB_ID"); !job.empty()) return sentence(job, ".", text_in("SLURM_STEP_ID"));
  return std::string(first_text_in("PMIX_NAMESPACE", "PMI_JOBID"));
}

/// The host of rank 0 that the user or the launcher names; empty if none does. Throws `invalid_argument` if the value
/// also has a port, or cannot be a host.
inline std::string host_in_environment() {
  const char* const variable = text_in("SPAR_ADDR").empty() ? "MASTER_ADDR" : "SPAR_ADDR";
  const std::string_view host = text_in(variable);
  const std::size_t colon = host.find(':'); // an address of IPv6 has two or more
  const bool has_port = colon != host.npos && host.find(':', colon + 1) == host.npos;
  if (has_port || host.find_first_of("[]/ ") != host.npos) {
    raise<invalid_argument>({"the variable ", variable, " is \"", host,
                             "\"; expected the name or the address of a host alone; SPAR_PORT has the port"});
  }
  return std::string(host);
}

inline std::string address_in_environment(const launcher& by, rank_t size) {
  if (std::string host = host_in_environment(); !host.empty()) return host;
  const bool local =
      by.local_size != nullptr && !text_in(by.local_size).empty() && number_in(by.local_size, 1, size) == size;
  if (local || size == 1 || (by.nodes != nullptr && text_in(by.nodes) == "1")) return "127.0.0.1";
  for (const char* const variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (const auto list = text_in(variable); !list.empty()) return first_slurm_host(variable, list);
  }
  raise<invalid_argument>({"the environment does not say where rank 0 runs; expected the variable SPAR_ADDR or "
                           "MASTER_ADDR with its host, the same on all ranks"});
}

inline int port_in_environment(std::string_view job, rank_t size) {
  constexpr int most = 65535;
  if (!text_in("SPAR_PORT").empty()) return static_cast<int>(number_in("SPAR_PORT", 1, most));
  if (!text_in("MASTER_PORT").empty()) {
    const auto port = static_cast<int>(number_in("MASTER_PORT", 1, most));
    return port + port_distance <= most ? port + port_distance : port - port_distance;
  }
  if (size == 1) return 0; // any
  if (job.empty()) {
    raise<invalid_argument>({"the environment does not say on which port rank 0 listens; expected the variable "
                             "SPAR_PORT, or SPAR_JOB with the identity of the job, the same on all ranks"});
  }
  constexpr std::uint64_t lowest = 20'000, count = 10'000; // below those that systems give to clients
  return static_cast<int>(lowest + fnv1a(job) % count);
}

SPAR_INLINE double deadline_in_environment(const rendezvous_options& options) {
  const bool is_default = options.deadline == rendezvous_options().deadline;
  if (!is_default || text_in("SPAR_DEADLINE").empty()) return options.deadline;
  return static_cast<double>(number_in("SPAR_DEADLINE", 1, 1'000'000'000));
}

/// `options`, completed by the variables that say which job this is, and how long to wait.
inline rendezvous_options job_from_environment(rendezvous_options options) {
  const auto complete = [](std::string& option, std::string_view by_default) {
    if (option.empty()) option = by_default;
  };
  complete(options.job, text_in("SPAR_JOB"));
  complete(options.job, job_in_environment());
  complete(options.secret, text_in("SPAR_SECRET"));
  complete(options.network_interface, text_in("SPAR_INTERFACE"));
  options.deadline = deadline_in_environment(options);
  return options;
}

SPAR_INLINE place_in_job place_from_environment(const rendezvous_options& options) {
  const launcher by = launcher_in_environment();
  place_in_job place;
  place.size = static_cast<rank_t>(number_in(by.size, 1, std::numeric_limits<rank_t>::max()));
  place.rank = static_cast<rank_t>(number_in(by.rank, 0, place.size - 1));
  place.where = job_from_environment(options);
  if (place.where.address.empty()) place.where.address = address_in_environment(by, place.size);
  if (place.where.port == 0) place.where.port = port_in_environment(place.where.job, place.size);
  return place;
}

SPAR_INLINE rendezvous_options job_to_join(const rendezvous_options& options) {
  rendezvous_options where = job_from_environment(options);
  if (where.address.empty()) where.address = host_in_environment();
  if (where.address.empty()) {
    raise<invalid_argument>({"the environment does not say where the job to join meets; expected the variable "
                             "SPAR_ADDR or MASTER_ADDR with the host of its rank 0"});
  }
  constexpr rank_t several = 2;
  if (where.port == 0) where.port = port_in_environment(where.job, several);
  return where;
}

} // namespace detail

} // namespace spar::inline v0_1
