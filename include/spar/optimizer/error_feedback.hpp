// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: each rank keeps the values that it has not sent as its residual, and adds the residual to the values
// of its next call (SparCML, algorithm 1; Ok-Topk, algorithm 2).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/composition.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/memory/space.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/rows.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/optimizer/feedback_core.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/storage/kernel/dense.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Options of error feedback.
struct feedback_options {
  bool reject_nan = false; ///< true: throws `invalid_argument` if a value is NaN; false: NaN is selected first
};

namespace detail {

/// The residual and the accumulated values of an `error_feedback` object.
template <element T>
class host_store {
 public:
  static constexpr const char* owner = "error_feedback";
  static constexpr bool ends_later = false; // the residual changes when the coroutine of a call ends

  /// Computes the values from which the selector selects: the values at `x` plus the residual. A selector may request
  /// all sums at once, or the sums of each block just before it reads the block.
  struct accumulation {
    T* to;
    const T* residual; // null before the first call, when the residual is empty
    const T* x;
    void operator()(std::size_t begin, std::size_t end) const noexcept {
      if (residual == nullptr)
        std::copy(x + begin, x + end, to + begin);
      else
        kernel::combine(to + begin, residual + begin, x + begin, end - begin, sum{});
    }
  };
  /// Makes room for the sums of `x` and the residual, and returns their computation.
  template <class Channel>
  accumulation accumulate(const Channel&, std::span<const T> x) {
    residual_.reserve(x.size()); // both vectors need room for n values: a call that succeeds swaps them
    accumulated_.resize(x.size());
    return {accumulated_.data(), residual_.empty() ? nullptr : residual_.data(), x.data()};
  }
  [[nodiscard]] std::span<T> accumulated() noexcept { return accumulated_; }
  /// Called when the collective has ended.
  template <class Channel>
  static void reduced(const Channel&) noexcept {}
  /// Makes the accumulated values the residual.
  void keep() noexcept { residual_.swap(accumulated_); }

  /// The residual.
  [[nodiscard]] const std::vector<T>& values() const noexcept { return residual_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return residual_.size(); }
  void replace(std::vector<T> residual) noexcept { residual_ = std::move(residual); }

 private:
  std::vector<T> residual_;
  std::vector<T> accumulated_;
};

} // namespace detail

/// Error feedback around the composition `Algorithm`. A call adds the residual to the caller's values, lets the
/// composition select entries of these accumulated values, and sums the selected entries of all ranks. The next
/// residual consists of the entries that this call has not sent and of the rounding errors of this rank's encodings. No
/// value is lost: the sums and the residuals of all ranks together account for all values passed to successful calls.
/// The residual and the composition's state change only when a call succeeds. Each object supports one call at a time,
/// and is not thread-safe.
template <element T, class Algorithm, index_type Index = std::uint32_t>
class error_feedback : public feedback_core<T, Algorithm, Index, detail::host_store<T>> {
  using core = feedback_core<T, Algorithm, Index, detail::host_store<T>>;
  using typename core::in_place, typename core::out_of_place, typename core::under_way;

 public:
  /// Wraps the composition `algorithm`, with the `options` of error feedback; the residual is empty until the first
  /// call.
  explicit error_feedback(Algorithm algorithm = {}, const feedback_options& options = {})
      : core(std::move(algorithm)), options_(options) {}
  /// Moves the algorithm, its state and the residual. Throws `invalid_argument` if a call of `other` has not ended.
  error_feedback(error_feedback&& other) = default;

  /// Reduces in place: the `values`, a span, vector or array of T or a `strided` (spar/strided.hpp), are those of this
  /// rank before the call and the sum after the call, with zeros where the sum has no entry. The residual has no gaps.
  /// After an error, the values are unspecified. Throws `invalid_argument` before anything is sent if an option is
  /// invalid, if `check_values(values)` throws (for example because they and the residual have different lengths), or
  /// if another call of this object has not ended.
  template <communicates Net, class Values, reduction<T> Op = sum>
  void operator()(Net& net, Values&& values, Op op = {}) {
    prepare<in_place, Values>(net, values, op).run();
  }
  /// Starts a non-blocking call that reduces in place, and returns its handle, a `pending<Net, void>`; the `values` and
  /// this object must stay valid until the call has ended. If calls have names (`which`), ranks may start the calls of
  /// several `error_feedback` objects in different orders.
  template <communicates Net, class Values, reduction<T> Op = sum>
  auto start(Net& net, Values&& values, Op op = {}) {
    return prepare<in_place, Values>(net, values, op).start();
  }
  template <communicates Net, class Values, reduction<T> Op = sum>
  auto start(Net& net, named which, Values&& values, Op op = {}) {
    return prepare<in_place, Values>(net, values, op).start(which);
  }

  /// Reduces out of place: leaves the `values`, a span, vector or array of T, unchanged, and returns the sum and this
  /// rank's contribution to the sum, both as streams, in a `selected_sum<T, Index>`.
  template <communicates Net, class Values, reduction<T> Op = sum>
  auto reduce(Net& net, const Values& values, Op op = {}) {
    return prepare<out_of_place, const Values&>(net, values, op).run();
  }
  /// Starts `reduce` as a non-blocking call, with or without a name (`which`), and returns its handle; the `values` and
  /// this object must stay valid until the call has ended.
  template <communicates Net, class Values, reduction<T> Op = sum>
  auto start_reduce(Net& net, Values&& values, Op op = {}) {
    return prepare<out_of_place, Values>(net, values, op).start();
  }
  template <communicates Net, class Values, reduction<T> Op = sum>
  auto start_reduce(Net& net, named which, Values&& values, Op op = {}) {
    return prepare<out_of_place, Values>(net, values, op).start(which);
  }

  /// Runs one round of a partial allreduce whose algorithm is this object. The rounds of a partial allreduce run one
  /// after the other, so at most one call of this object is in flight.
  template <transport Net, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op) & {
    this->next_ = this->state_;
    const in_place call(*this, under_way(*this));
    co_await call(net, x,
                  sum{}); // `sum` even for an average: the partial allreduce itself divides by the number of ranks
  }
  /// Throws `invalid_argument` if `x` and the residual have different lengths, if `x` is too long for `Index`, or if
  /// `x` contains NaN and `reject_nan` is set.
  void check_values(std::span<const T> x) const {
    this->check_length(x.size());
    if constexpr (is_floating<component_of<T>>) {
      if (options_.reject_nan) check_numbers(x);
    }
  }
  template <strided_values Values>
  void check_values(const Values& x) const {
    if (options_.reject_nan) {
      std::vector<T> values(x.size());
      x.copy_to(values);
      check_values(std::span<const T>(values));
    } else {
      this->check_length(x.size());
    }
  }
  /// The residual: the values that this rank has not sent yet. Empty before the first call.
  [[nodiscard]] std::span<const T> residual() const noexcept { return this->store_.values(); }

 private:
  /// Prepares a call of type `Call` on `values`, an argument of the forwarded type `Values`.
  template <class Call, class Values, class Net, class Op>
  auto prepare(Net& on, std::remove_reference_t<Values>& values, Op op) {
    core::template check_operation<Op>();
    static_assert(!detail::any_in_device_memory<Values>,
                  "these values are in device memory, which error_feedback cannot read: use spar::device_feedback "
                  "(compile with nvcc), or call error_feedback in the function on_host of a spar::staged");
    constexpr bool fit = detail::expect_parts_for<Algorithm, detail::port_type_of<Net>, T, Index>();
    if constexpr (fit) {
      static_assert(residual_allreduce<Algorithm, Net, T, Index, Op>,
                    "error feedback needs an algorithm that selects values of this type: a composition, or a type with "
                    "members state, report and reduce<Index>(net, state*, report*, x, op, prepare) -> "
                    "task<selected_sum<T, Index>>; what keeps the largest values takes numbers only");
    }
    if constexpr (!fit || detail::any_in_device_memory<Values> || !detail::expect_lasting<Values>() ||
                  !expect_values_for<Call, Values>()) {
      return detail::rejected_call{};
    } else {
      const auto x = view_of<Call>(values);
      auto& net = detail::port_of(on);
      return detail::or_abort(net, [&] {
        auto call = this->template prepare_call<Call>(net, under_way(*this), x, x.size(), op);
        check_values(x);
        return call;
      });
    }
  }
  template <class Call, class Values>
  static constexpr bool expect_values_for() {
    using view = std::conditional_t<std::same_as<Call, in_place>, std::span<T>, std::span<const T>>;
    constexpr bool takes = strided_values<Values> || std::constructible_from<view, std::remove_reference_t<Values>&>;
    static_assert(takes, "error feedback takes a span, vector or array of values of its own type, which it overwrites: "
                         "for values that are const, use the members reduce and start_reduce, which leave them as they "
                         "are");
    return takes;
  }
  template <class Call, class Values>
  static auto view_of(Values& values) {
    if constexpr (strided_values<Values>)
      return values;
    else if constexpr (std::same_as<Call, in_place>)
      return std::span<T>(values);
    else
      return std::span<const T>(values);
  }

  static void check_numbers(std::span<const T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (const auto value : components(x.subspan(i, 1))) {
        if (detail::is_nan(value))
          raise<invalid_argument>({"the value at index ", i, " is NaN, which the option reject_nan forbids"});
      }
    }
  }

  feedback_options options_;
};

/// Wraps the composition `algorithm` in error feedback with these `options`, for values of T: `auto reduce =
/// with_error_feedback<float>(compose(...))`.
template <element T, index_type Index = std::uint32_t, class Algorithm>
error_feedback<T, Algorithm, Index> with_error_feedback(Algorithm algorithm, const feedback_options& options = {}) {
  return error_feedback<T, Algorithm, Index>(std::move(algorithm), options);
}

} // namespace spar::inline v0_1
