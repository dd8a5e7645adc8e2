// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The step of SGD that does not wait for late ranks (eager-SGD, algorithm 2).
#pragma once

#include <spar/collective/partial/partial.hpp>
#include <spar/optimizer/sgd.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar {

/// One step of eager-SGD (eager-SGD, algorithm 2): the weights go down by `rate` times what a round of a partial
/// allreduce, whose operation is `average`, finds: the gradients of the ranks that are not late, and those of earlier
/// steps that were. Weights that were the same on every rank after as many steps still are. `gradient` is what was
/// subtracted. Returns whose gradients were in it.
template <class Values, transport Net, class Held, participation Participation, class Algorithm,
          class T = detail::value_of<Values>>
participants sgd_step(std::type_identity_t<std::span<T>> weights, Values&& gradient, std::type_identity_t<T> rate,
                      partial<Net, Held, Participation, Algorithm, average>& reduce) {
  const std::span<T> x(gradient);
  detail::scale_gradient<T>(weights, x, rate);
  participants by = reduce(x);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(weights[i] - x[i]);
  return by;
}

} // namespace spar
