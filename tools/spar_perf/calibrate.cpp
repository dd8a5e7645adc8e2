// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fits the parameters of the network model, and formats the file that stores them.
#include "calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spar::perf {

void fit_line(const std::vector<exchange_time>& times, spar::network_model& network) {
  // Minimise the sum of (alpha a + beta b - 1)^2 with a = 1 / seconds, b = bytes / seconds.
  double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
  for (const auto& [bytes, seconds] : times) {
    const double x = 1 / seconds, y = bytes / seconds;
    aa += x * x;
    ab += x * y;
    bb += y * y;
    a += x;
    b += y;
  }
  const double determinant = aa * bb - ab * ab;
  network.alpha = (a * bb - b * ab) / determinant;
  network.beta = (b * aa - a * ab) / determinant;
  if (network.alpha < 0) {
    network.alpha = 0;
    network.beta = b / bb;
  } else if (network.beta < 0) {
    network.beta = 0;
    network.alpha = a / aa;
  }
}

double shared_alpha(const spar::network_model& network, double one, double several, std::size_t at_once) {
  const double more = (several - one) / static_cast<double>(at_once - 1); // of each message beyond the first
  return std::clamp(network.alpha - more, 0.0, network.alpha);
}

double median(std::vector<double> x) {
  const auto half = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), half, x.end());
  if (x.size() % 2 == 1) return *half;
  return (*std::max_element(x.begin(), half) + *half) / 2;
}

std::string to_file(const spar::network_model& network, const options& o, const std::string& library) {
  return fmt::format("# spar_perf --calibrate: {}{}, {}; seconds\n"
                     "alpha {:.4g}\nbeta {:.4g}\ngamma_sparse {:.4g}\ngamma_dense {:.4g}\ngamma_coded {:.4g}\n"
                     "alpha_shared {:.4g}\n",
                     o.transport, library.empty() ? "" : " (" + library + ")",
                     o.transport == "sim" ? "as given" : fmt::format("median of {} iterations", o.iterations),
                     network.alpha, network.beta, network.gamma_sparse, network.gamma_dense, network.gamma_coded,
                     network.alpha_shared);
}

} // namespace spar::perf
