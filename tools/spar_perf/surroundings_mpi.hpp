// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a suite does before it measures, and how its ranks agree: over MPI.
#pragma once

#include "run.hpp"
#include "units.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace spar::perf {

/// Initialises MPI, and finalises MPI at the end of the scope.
class surroundings {
 public:
  static constexpr const char* transport = "mpi";

  surroundings(int& argc, char**& argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  }
  surroundings(const surroundings&) = delete;
  ~surroundings() { MPI_Finalize(); }
  [[nodiscard]] bool first() const { return rank_ == 0; }
  /// Broadcasts rank 0's answer to all ranks.
  [[nodiscard]] static bool agree(bool answer) {
    int value = answer ? 1 : 0;
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value != 0;
  }
  /// Whether the answer is true on a rank.
  [[nodiscard]] static bool any(bool answer) {
    int value = answer ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return value != 0;
  }
  /// Ends the job after an error on this rank, because the other ranks would wait for this rank forever.
  [[noreturn]] void abort(const char* what) const {
    std::fprintf(stderr, "spar_perf: rank %d: %s\n", rank_, what);
    MPI_Abort(MPI_COMM_WORLD, wrong_result);
    std::abort();
  }
  [[nodiscard]] static std::string library() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string_view all(text, static_cast<std::size_t>(length));
    std::string line(all.substr(0, all.find_first_of(",\n")));
    std::replace(line.begin(), line.end(), '\t', ' ');
    return line;
  }
  static void check_transport(const options& o) {
    if (o.transport == "mpi") return;
    throw missing("this spar_perf is built with MPI; --transport " + o.transport +
                  " needs the spar_perf built without MPI");
  }
  [[nodiscard]] static std::vector<row> run(const options& o, const own_systems& own) { return run_mpi(o, own); }
  [[nodiscard]] static spar::network_model calibrate(const options& o) { return calibrate_mpi(o); }

 private:
  int rank_ = 0;
};

} // namespace spar::perf
