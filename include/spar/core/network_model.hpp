// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters of the alpha-beta-gamma model of the cost of messages and local work (SparCML, section 5.2).
#pragma once

#include <spar/core/check_number.hpp>

#include <concepts>
#include <utility>

namespace spar::inline v0_1 {

/// The costs, in seconds, of messages, bytes and local work, from which spar predicts the durations of algorithms. The
/// default values were fitted to ranks on one machine. `spar_perf --calibrate FILE` measures the costs on a network and
/// writes them to FILE, which `read_network(FILE)` reads.
struct network_model {
  double alpha = 1e-6;        ///< seconds per message
  double beta = 1e-10;        ///< seconds per byte
  double gamma_sparse = 2e-9; ///< seconds per merged entry; adding an entry to a dense vector costs a third as much
  double gamma_dense = 1e-10; ///< seconds per value in a pass over a dense vector, such as an addition
  double gamma_coded = 8e-9;  ///< seconds to encode and then decode an entry of a sparse stream by `storage::coded`
  /// The part of alpha that messages in flight at once share: m of them take alpha_shared + m (alpha - alpha_shared)
  /// seconds. With 0, each of them costs alpha, as in the papers. More than alpha has the same effect as alpha.
  double alpha_shared = 0;

  friend bool operator==(const network_model&, const network_model&) = default; ///< whether all costs are equal
};

namespace detail {

/// Whether a codec states its `cost`: the seconds to encode a value of T, or to decode it, by a model of the network.
template <class Codec, class T>
concept states_cost = requires(const Codec& codec, const network_model& network) {
  { codec.template cost<T>(network) } -> std::convertible_to<double>;
};

/// Throws `invalid_argument` if a parameter of `network` is negative, infinite or NaN; `what` names the network model.
[[gnu::cold]] inline void check_network(const network_model& network, const char* what) {
  const std::pair<const char*, double> parameters[] = {
      {"alpha", network.alpha},
      {"beta", network.beta},
      {"gamma_sparse", network.gamma_sparse},
      {"gamma_dense", network.gamma_dense},
      {"gamma_coded", network.gamma_coded},
      {"alpha_shared", network.alpha_shared},
  };
  for (const auto& [name, x] : parameters) check_number(x, valid::duration, name, " of ", what);
}

} // namespace detail

} // namespace spar::inline v0_1
