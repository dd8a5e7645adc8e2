// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two overloads of `sgd_step`, a step of data-parallel SGD. The overload with error feedback serves top-k SGD,
// quantised top-k SGD (SparCML, algorithm 1) and Ok-Topk SGD (Ok-Topk, algorithm 2), which differ only in the
// reduction. The overload without error feedback averages the whole gradients by a dense allreduce.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/core/check_number.hpp>
#include <spar/core/rows.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/runtime/arguments.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Returns a - b; for rows, the differences of their values.
template <element T>
constexpr T difference(T a, const T& b) {
  if constexpr (is_row<T>)
    return of_rows(a, b, [](auto x, auto y) { return difference(x, y); });
  else
    return static_cast<T>(a - b);
}

template <class Values>
using value_of = typename decltype(std::span(std::declval<Values&>()))::element_type;

/// Throws `invalid_argument` if the learning rate `rate` is infinite or NaN, if `net` cannot take `weights` or
/// `gradient` (see `check_arguments`), or if their lengths differ.
template <element T, transport Net>
void check_step(Net& net, std::span<const T> weights, std::span<const T> gradient, component_of<T> rate) {
  check_number(static_cast<double>(rate), valid::finite, "the learning rate");
  check_arguments(net, weights, gradient);
  if (weights.size() != gradient.size()) {
    raise<invalid_argument>({"there are ", weights.size(), " weights, but the gradient has length ", gradient.size()});
  }
}

/// Multiplies the gradient by `rate` in place, so that the mean of the gradients over all ranks is the update of the
/// weights.
template <element T>
  requires is_floating<component_of<T>>
void scale_gradient(std::span<T> gradient, component_of<T> rate) {
  for (auto& g : components(gradient)) g = static_cast<component_of<T>>(rate * g);
}

} // namespace detail

/// Subtracts `update` from the weights. A program that starts the reduction itself calls `descend` as the second half
/// of a step of SGD:
///
///     auto call = reduce.start_reduce(net, scaled_gradient, average{}); ... descend(weights, call.wait().sum);
///
/// Throws `invalid_argument` if the number of weights differs from the dimension of `update`.
template <element T, index_type Index>
void descend(std::type_identity_t<std::span<T>> weights, const sparse_stream<T, Index>& update) {
  if (weights.size() != update.dimension()) {
    raise<invalid_argument>(
        {"there are ", weights.size(), " weights, but the update has dimension ", update.dimension()});
  }
  update.for_each([&](Index i, const T& u) { weights[i] = detail::difference(weights[i], u); });
}

/// One step of SGD with error feedback, a collective call. `reduce` adds `rate` times this rank's gradient to its
/// residual and selects entries from the result. The step subtracts the mean of the selected entries over all ranks
/// from the weights; entries that are not selected stay in the residuals. If the weights are equal on every rank before
/// the step, they are equal after it.
///
/// Returns the subtracted update, and this rank's contribution to the update (see `selected_sum`). `gradient` is
/// unspecified afterwards; the weights and the residual change only when the call succeeds. Throws `invalid_argument`,
/// before anything is sent, if `rate` is infinite or NaN, if the lengths of `weights` and `gradient` differ, or if the
/// residual is not empty and its length differs from that of `gradient`.
template <communicates Net, element T, class Algorithm, index_type Index>
selected_sum<T, Index> sgd_step(Net& net, std::type_identity_t<std::span<T>> weights,
                                std::type_identity_t<std::span<T>> gradient, component_of<T> rate,
                                error_feedback<T, Algorithm, Index>& reduce) {
  detail::check_step<T>(detail::port_of(net), weights, gradient, rate);
  detail::scale_gradient<T>(gradient, rate);
  auto update = reduce.reduce(net, std::span<const T>(gradient), average{});
  descend(weights, update.sum);
  return update;
}

/// One step of plain SGD, a collective call: subtracts from the weights `rate` times the mean of the gradients of all
/// ranks. `algorithm` is any allreduce of dense values with the operation `average`. `gradient` is a span or a
/// container, and holds the subtracted update on return. Throws `invalid_argument`, before anything is sent, if `rate`
/// is infinite or NaN, or if the lengths of `weights` and `gradient` differ.
template <communicates Net, class Gradient, class Algorithm, class T = detail::value_of<Gradient>>
  requires dense_allreduce<decltype(detail::as_algorithm(std::declval<const Algorithm&>())), detail::port_type_of<Net>,
                           T, average>
void sgd_step(Net& net, std::type_identity_t<std::span<T>> weights, Gradient&& gradient, component_of<T> rate,
              const Algorithm& algorithm) {
  const std::span<T> x(gradient);
  auto& port = detail::port_of(net);
  detail::check_step<T>(port, weights, x, rate);
  const auto call = detail::or_abort(port, [&] {
    return detail::prepare<T, no_indices>(port, detail::as_algorithm(algorithm), average{}, x.size(), x);
  });
  detail::scale_gradient<T>(x, rate);
  call.run();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = detail::difference(weights[i], x[i]);
}

} // namespace spar::inline v0_1
