// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the command line of a suite. Compiled with SPAR_WITH_MPI, a suite measures over MPI; compiled with
// SPAR_WITH_UCX, over UCX; compiled without both, on threads and in the simulator.
#include "suite.hpp"

#include "calibrate.hpp"
#include "interrupt.hpp"
#include "measurement.hpp"
#include "partial_name.hpp"
#include "report.hpp"
#include "system_names.hpp"
#include "units.hpp"

#if defined(SPAR_WITH_MPI)
#include "surroundings_mpi.hpp"
#elif defined(SPAR_WITH_UCX)
#include "surroundings_ucx.hpp"
#else
#include "surroundings_process.hpp"
#endif

#include <spar/model/cost.hpp>
#include <spar/model/network_file.hpp>
#include <spar/transport/tracing.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

using spar::perf::surroundings, spar::perf::wrong_result;

constexpr int usage = 2, something_missing = 77, was_interrupted = 130;

void print_lists(const spar::perf::own_systems& own) {
  std::printf("systems: %s", std::string(spar::perf::system_names).c_str());
  if (std::string_view(surroundings::transport) == "mpi") std::printf(" mpi");
  if (own.device() != nullptr) std::printf(" nccl");
  for (const auto& name : own.names()) std::printf(" %s", name.c_str());
  std::printf("\npartial systems (append +SYSTEM to choose the allreduce that they run): %s",
              std::string(spar::perf::partial_names).c_str());
  std::printf("\ncompositions: SYSTEM+PART, or select=PART,store=PART,over=PART,by=PART, with options as in "
              "ok_topk:0.01:period=16+coded; append +p2p to ring+CODEC or rec_doubling+CODEC to compress each message "
              "separately");
  for (const auto& [slot, parts] : spar::perf::parts_of_slots()) std::printf("\n  %s: %s", slot.c_str(), parts.c_str());
  std::printf("\npatterns:");
  for (const auto name : spar::perf::pattern_names) std::printf(" %s", std::string(name).c_str());
  std::printf("\n");
}

/// Throws `usage_error` if a name is used twice or already has a meaning.
void check_names(const std::vector<std::string>& own) {
  std::vector<std::string> known;
  for (const std::string& name : own) {
    const bool meaning = name == "mpi" || name == spar::perf::nccl_system || spar::perf::parse_partial(name) ||
                         spar::perf::is_composition(name);
    if (meaning || std::find(known.begin(), known.end(), name) != known.end())
      throw spar::perf::usage_error("the name '" + name +
                                    "' of a system of this program is already in use; choose another");
    known.push_back(name);
  }
}

/// Throws `missing` on all ranks if the values belong in device memory, and the program or a machine cannot have them
/// there.
void check_device(const surroundings& here, const spar::perf::options& o, const spar::perf::own_systems& own) {
  if (!o.on_device) return;
  if (own.device() == nullptr) {
    throw spar::perf::missing(
        "--memory device needs spar_perf_gpu, which nvcc compiles: install NVIDIA's CUDA toolkit and run scripts/perf "
        "--memory device, or scripts/program spar_perf_gpu");
  }
  std::string why = "--memory device: another rank has no GPU";
  bool usable = true;
  try {
    own.device()->check();
  } catch (const spar::perf::missing& e) {
    why = e.what();
    usable = false;
  }
  if (here.any(!usable)) throw spar::perf::missing(why);
}

/// Throws `usage_error` on all ranks if rank 0 cannot write the file. The check appends nothing, so an existing file
/// keeps its content until `write` replaces it.
void check_writable(const surroundings& here, const char* option, const std::string& path) {
  if (path.empty()) return;
  std::string why;
  if (here.first() && !std::ofstream(path, std::ios::app)) why = std::string(": ") + std::strerror(errno);
  if (!here.agree(why.empty())) throw spar::perf::usage_error("cannot write " + std::string(option) + " " + path + why);
}

/// Throws `usage_error` on all ranks if rank 0 cannot make the folder of the timelines.
void make_folder(const surroundings& here, const std::string& path) {
  if (path.empty()) return;
  std::error_code why;
  if (here.first()) std::filesystem::create_directories(path, why);
  if (!here.agree(!why)) throw spar::perf::usage_error("cannot make the folder --trace " + path + ": " + why.message());
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("could not write all of " + path);
}

/// Only rank 0 needs the option and the file: `set_network` later sends rank 0's model to the other ranks. Throws
/// `usage_error` on all ranks if rank 0 cannot read the file.
void read_model(const surroundings& here, spar::perf::options& o) {
  std::string why;
  if (here.first() && !o.network.empty()) {
    try {
      o.model = spar::read_network(o.network);
      o.latency = spar::shared_latency(o.model);
      o.overhead = o.topology == "auto" ? spar::message_overhead(o.model) : 0; // the links of a tree have latencies
      if (o.transport == "sim") o.model.alpha_shared = o.latency;
      o.bandwidth = 1 / o.model.beta;
      o.compute = o.model.gamma_sparse;
    } catch (const spar::invalid_argument& e) {
      why = e.what();
    }
  }
  if (!here.agree(why.empty())) throw spar::perf::usage_error("the network file of rank 0: " + why);
}

/// Rank 0's file of an earlier run; null without --against and on other ranks. Throws `usage_error` on all ranks if
/// rank 0 cannot use the file.
std::unique_ptr<spar::perf::earlier_run> read_earlier(const surroundings& here, const spar::perf::options& o) {
  std::unique_ptr<spar::perf::earlier_run> earlier;
  std::string why = "--against: rank 0 cannot use the file";
  bool usable = true;
  if (here.first() && !o.against.empty()) {
    try {
      earlier = std::make_unique<spar::perf::earlier_run>(o.against);
    } catch (const spar::perf::usage_error& e) {
      why = e.what();
      usable = false;
    }
  }
  if (!here.agree(usable)) throw spar::perf::usage_error(why);
  return earlier;
}

/// Writes FOLDER/SYSTEM.json for each system, or FOLDER/SYSTEM-DENSITY.json if there are several densities.
void write_timelines(const std::string& folder, const std::vector<spar::perf::row>& rows) {
  if (folder.empty()) return;
  const bool several =
      std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r.density != rows.front().density; });
  for (const spar::perf::row& r : rows) {
    if (r.measured.timeline.empty()) continue;
    const std::string name = several ? fmt::format("{}-{:g}", r.system, r.density) : r.system;
    write(folder + "/" + name + ".json", spar::trace_file(r.measured.timeline));
  }
}

int calibrate_and_write(const surroundings& here, const spar::perf::options& o) {
  check_writable(here, "--calibrate", o.calibrate);
  const spar::network_model network = here.calibrate(o);
  if (!here.first()) return 0;
  const std::string text = spar::perf::to_file(network, o, here.library());
  std::fputs(text.c_str(), stdout);
  write(o.calibrate, text);
  return 0;
}

int measure(const surroundings& here, const spar::perf::options& o, const spar::perf::own_systems& own) {
  check_writable(here, "--json", o.json);
  make_folder(here, o.trace);
  const auto before = read_earlier(here, o);
  const spar::perf::machine at_start = spar::perf::this_machine();
  spar::perf::catch_interrupts();
  auto rows = here.run(o, own);
  const bool interrupted = here.any(spar::perf::interrupted());
  if (here.first()) {
    const auto warn = [](const std::string& what) { std::fprintf(stderr, "spar_perf: warning: %s\n", what.c_str()); };
    for (const auto& what : spar::perf::disturbances(at_start, spar::perf::this_machine())) {
      if (o.transport != "sim") warn(what);
    }
    if (before) {
      const std::string other = before->compare(rows, o, here.library(), at_start);
      if (!other.empty()) warn(other);
    }
    std::fputs(spar::perf::to_table(rows, o, here.library()).c_str(), stdout);
    write(o.json, spar::perf::to_json(rows, o, here.library(), at_start));
    write_timelines(o.trace, rows);
    if (interrupted) warn("interrupted: these are the results of the iterations that have ended");
  }
  if (interrupted) return was_interrupted;
  const bool right = !o.check || std::all_of(rows.begin(), rows.end(), [](const auto& r) { return r.correct(); });
  return right ? 0 : wrong_result;
}

} // namespace

int spar::perf::suite::run(int argc, char** argv) const {
  const surroundings here(argc, argv);
  const auto say = [&](const char* what) {
    if (here.first()) std::fprintf(stderr, "spar_perf: %s\n", what);
  };
  try {
    check_names(own_.names());
    spar::perf::options o = spar::perf::parse_options(argc, argv, surroundings::transport, own_.names());
    if (o.list) {
      if (here.first()) print_lists(own_);
      return 0;
    }
    here.check_transport(o);
    check_device(here, o, own_);
    if (!o.calibrate.empty()) return calibrate_and_write(here, o);
    read_model(here, o);
    return measure(here, o, own_);
  } catch (const spar::perf::early_end& end) {
    if (here.first()) std::fputs(end.text.c_str(), stdout);
    return end.status;
  } catch (const spar::perf::usage_error& e) { // all ranks find the same error
    say(e.what());
    return usage;
  } catch (const spar::perf::missing& e) {
    say(e.what());
    return something_missing;
  } catch (const std::bad_alloc&) {
    here.abort("out of memory");
  } catch (const std::exception& e) {
    here.abort(e.what());
  }
}
