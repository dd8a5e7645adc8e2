// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a suite does before it measures, and how its ranks agree: processes that meet without MPI.
#pragma once

#include "run.hpp"
#include "units.hpp"

#include <spar/rendezvous/rendezvous.hpp>

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace spar::perf {

class surroundings {
 public:
  static constexpr const char* transport = "ucx";

  surroundings(int&, char**&) {}
  [[nodiscard]] bool first() const { return ranks_.rank() == 0; }
  /// Sends rank 0's answer to all ranks.
  [[nodiscard]] bool agree(bool answer) const { return answers(answer).front() == "yes"; }
  /// Whether the answer is true on a rank.
  [[nodiscard]] bool any(bool answer) const {
    const auto all = answers(answer);
    return std::find(all.begin(), all.end(), "yes") != all.end();
  }
  /// Ends this process after an error. The launcher, or the end of this process, ends the others.
  [[noreturn]] void abort(const char* what) const {
    std::fprintf(stderr, "spar_perf: rank %d: %s\n", static_cast<int>(ranks_.rank()), what);
    std::exit(wrong_result);
  }
  [[nodiscard]] static std::string library() { return std::string("UCX ") + ucp_get_version_string(); }
  static void check_transport(const options& o) {
    if (o.transport == transport) return;
    throw missing("this spar_perf is built for UCX; --transport " + o.transport + " needs the spar_perf built for it");
  }
  [[nodiscard]] std::vector<row> run(const options& o, const own_systems& own) const { return run_ucx(o, own, ranks_); }
  [[nodiscard]] spar::network_model calibrate(const options& o) const { return calibrate_ucx(o, ranks_); }

 private:
  [[nodiscard]] std::vector<std::string> answers(bool own) const { return ranks_.exchange(own ? "yes" : "no"); }

  [[nodiscard]] static spar::rendezvous meet() {
    try {
      return spar::rendezvous::from_environment();
    } catch (const spar::error& e) {
      std::fprintf(stderr, "spar_perf: %s\n", e.what());
      std::exit(wrong_result);
    }
  }

  spar::rendezvous ranks_ = meet();
};

} // namespace spar::perf
