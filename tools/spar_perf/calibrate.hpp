// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters of the cost model from measurements, and the file that keeps them.
#pragma once

#include "options.hpp"

#include <spar/core/network_model.hpp>

#include <string>
#include <vector>

namespace perf {

/// How long a message of so many bytes took.
struct exchange_time {
  double bytes = 0;
  double seconds = 0;
};

/// alpha and beta of `seconds = alpha + beta bytes`, by least squares of the relative errors: messages of every size
/// count alike. None is below 0; with fewer than two sizes, or times of 0, there is nothing to fit.
void fit_line(const std::vector<exchange_time>& times, spar::network_model& network);

double median(std::vector<double> x);

/// What `spar::read_network` reads, after a line that says what was measured.
std::string to_file(const spar::network_model& network, const options& o, const std::string& library);

} // namespace perf
