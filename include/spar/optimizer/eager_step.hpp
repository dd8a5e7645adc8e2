// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One step of stochastic gradient descent that does not wait for late ranks (eager-SGD, algorithm 2).
#pragma once

#include <spar/collective/partial/partial.hpp>
#include <spar/optimizer/sgd.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar {

/// Makes one step of eager-SGD (eager-SGD, algorithm 2): multiplies the gradient by `rate`, averages the scaled
/// gradients over the ranks in one round of the partial allreduce `reduce`, and subtracts the average from the weights.
/// The average includes the gradients of the ranks that are not late, and gradients of earlier steps that missed their
/// own rounds and were scaled by the rates of those steps.
///
/// If the weights were equal on every rank before the first step, they are equal again once all ranks have made the
/// same number of steps. On return, `gradient` holds the subtracted update. Returns the ranks whose gradients the
/// average includes. Throws `invalid_argument` if `rate` is infinite or NaN, or if `weights` and `gradient` have
/// different lengths.
template <class Values, transport Net, class Held, participation Participation, class Algorithm,
          class T = detail::value_of<Values>>
participants sgd_step(std::type_identity_t<std::span<T>> weights, Values&& gradient, component_of<T> rate,
                      partial<Net, Held, Participation, Algorithm, average>& reduce) {
  const std::span<T> x(gradient);
  detail::check_step<T>(reduce.transport(), weights, x, rate);
  detail::scale_gradient<T>(x, rate);
  participants by = reduce(x);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = detail::difference(weights[i], x[i]);
  return by;
}

} // namespace spar
