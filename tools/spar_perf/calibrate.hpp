// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Computes the parameters of the network model from measurements, and formats the file that stores them.
#pragma once

#include "options.hpp"

#include <spar/core/network_model.hpp>
#include <spar/transport/any.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace spar::perf {

/// The measured time of a message of a given size.
struct exchange_time {
  double bytes = 0;
  double seconds = 0;
};

/// Fits `seconds = alpha + beta * bytes` and stores alpha and beta in `network`. Minimises the squares of the relative
/// errors, so that messages of all sizes have the same weight; neither parameter is below 0. Requires at least two
/// different sizes and times above 0.
void fit_line(const std::vector<exchange_time>& times, spar::network_model& network);

/// The part of `network.alpha` that messages in flight at once share: `one` is the time of a short message, `several`
/// that of `at_once` of them that are in flight at once.
double shared_alpha(const spar::network_model& network, double one, double several, std::size_t at_once);

double median(std::vector<double> x);

/// The parameters in the format that `spar::read_network` reads, after a comment that says what was measured.
std::string to_file(const spar::network_model& network, const options& o, const std::string& library);

/// The parameters of the network model, the same on every rank: medians over the iterations of the slowest rank's time.
/// Each iteration measures all quantities, so that disturbances by other programs affect all of them alike. All ranks
/// work at the same time, as in a collective. Throws `usage_error` with fewer than two ranks.
spar::network_model calibrate(spar::any_transport& net, const options& o);

} // namespace spar::perf
