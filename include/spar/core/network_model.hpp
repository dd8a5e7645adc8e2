// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters of the alpha-beta-gamma model (SparCML, section 5.2).
#pragma once

namespace spar {

/// Seconds for a message, for a byte, and for local work on an entry or on a value. The defaults fit ranks on one
/// machine.
struct network_model {
  double alpha = 1e-6;        ///< a message
  double beta = 2e-10;        ///< a byte
  double gamma_sparse = 2e-9; ///< merging an entry
  double gamma_dense = 3e-10; ///< reducing a value
};

} // namespace spar
