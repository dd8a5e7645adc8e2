// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters of the alpha-beta-gamma model (SparCML, section 5.2).
#pragma once

#include <limits>

namespace spar {

/// Seconds for a message, for a byte, and for local work. The defaults were fitted to ranks on one machine; `spar_perf
/// --calibrate FILE` measures them, and `read_network(FILE)` reads what it has written.
struct network_model {
  double alpha = 1e-6;        ///< a message
  double beta = 1e-10;        ///< a byte
  double gamma_sparse = 2e-9; ///< merging an entry; adding one to a dense vector takes a third of it
  double gamma_dense = 1e-10; ///< going over a value of a dense vector
};

/// Whether `x` is a time that passes: neither negative, infinite nor NaN.
constexpr bool is_duration(double x) noexcept { return x >= 0 && x <= std::numeric_limits<double>::max(); }

} // namespace spar
