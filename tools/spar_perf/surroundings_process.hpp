// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a suite does before it measures, and how its ranks agree: in one process.
#pragma once

#include "run.hpp"
#include "units.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace spar::perf {

/// The ranks are threads of this process, or simulated.
class surroundings {
 public:
  static constexpr const char* transport = "threads"; // unless an option names another one

  surroundings(int&, char**&) {}
  [[nodiscard]] static bool first() { return true; }
  [[nodiscard]] static bool agree(bool answer) { return answer; }
  [[nodiscard]] static bool any(bool answer) { return answer; }
  [[noreturn]] static void abort(const char* what) {
    std::fprintf(stderr, "spar_perf: %s\n", what);
    std::exit(wrong_result);
  }
  [[nodiscard]] static std::string library() { return {}; }
  static void check_transport(const options& o) {
    if (o.transport == "threads" || o.transport == "sim") return;
    throw missing("this spar_perf is built without MPI and without UCX; --transport " + o.transport +
                  " needs the spar_perf built with it");
  }
  [[nodiscard]] static std::vector<row> run(const options& o, const own_systems& own) {
    return o.transport == "threads" ? run_threads(o, own) : run_sim(o, own);
  }
  [[nodiscard]] static spar::network_model calibrate(const options& o) {
    return o.transport == "threads" ? calibrate_threads(o) : o.model;
  }
};

} // namespace spar::perf
