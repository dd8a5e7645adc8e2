// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// eager-SGD: stochastic gradient descent whose steps need not wait for late ranks (eager-SGD, section 5).
#pragma once

#include <spar/collective/partial/partial.hpp>
#include <spar/optimizer/sgd.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

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

/// Options of eager_sgd, equal on all ranks.
struct eager_sgd_options {
  partial_options rounds{}; ///< options of the partial allreduce that averages the gradients
  /// The ranks average their weights after every `period` steps; 0 means never. Weights that are equal on all ranks at
  /// the start stay equal without averaging, because all ranks get the result of every round. Averaging is needed if a
  /// program changes its weights outside `step`. All ranks wait for each other there, so no gradient is late by more
  /// than `period` steps.
  std::uint64_t period = 0;
};

/// One rank's part of the optimizer eager-SGD, for n weights. `Participation` may be any participation; `Algorithm` may
/// be any algorithm for dense values, including a composition or `error_feedback`. All ranks must use the same
/// participation and algorithm, and make the same number of steps. The communicator must outlive this object.
/// Construction and steps may throw the
/// \ref call_errors; `finish` throws `mismatch` if ranks have made different numbers of steps.
template <element T, communicates Net, participation Participation = solo, class Algorithm = sparcml>
class eager_sgd {
 public:
  /// Prepares the rank `net` for `n` weights. All ranks must create their objects in the same order. Throws
  /// `invalid_argument` if an option of the participation `who`, of `algorithm` or of `options` is invalid.
  eager_sgd(Net& net, std::uint64_t n, const Participation& who = {}, Algorithm algorithm = {},
            const eager_sgd_options& options = {})
      : net_(&detail::port_of(net)), period_(options.period),
        reduce_(partial_allreduce<T>(net, n, who, std::move(algorithm), average{}, options.rounds)) {}

  /// Makes one step with the learning rate `rate`: subtracts from `weights` the update that one round of the partial
  /// allreduce computes, and returns the ranks whose gradients the update includes (see `sgd_step`). Throws
  /// `invalid_argument`, before anything is sent, if `rate` is infinite or NaN, or if the lengths of `weights` and
  /// `gradient` differ.
  participants step(std::span<T> weights, std::span<T> gradient, component_of<T> rate) {
    participants by = sgd_step(weights, gradient, rate, reduce_);
    if (period_ > 0 && reduce_.calls() % period_ == 0) allreduce(*net_, weights, sparcml{}, average{});
    return by;
  }

  /// Subtracts from `weights` the update from all gradients that have missed their rounds, and returns the ranks that
  /// contributed such gradients. All ranks must call `finish` after their last step.
  participants finish(std::span<T> weights) {
    buffer<T> rest = detail::or_abort(*net_, [&] { return buffer<T>(net_->memory(), weights.size()); });
    participants by = reduce_.drain(rest.span());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = detail::difference(weights[i], rest.data()[i]);
    return by;
  }

  /// Makes progress on messages that have arrived; returns whether a round is in progress (see `partial::progress`).
  bool progress() { return reduce_.progress(); }
  /// The number of steps so far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return reduce_.calls(); }

 private:
  using partial_type = decltype(partial_allreduce<T>(std::declval<Net&>(), 0, std::declval<Participation>(),
                                                     std::declval<Algorithm>(), average{}, partial_options{}));
  detail::port_type_of<Net>* net_;
  std::uint64_t period_;
  partial_type reduce_;
};

} // namespace spar::inline v0_1
