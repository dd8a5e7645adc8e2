// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: each rank keeps the values that it has not sent as its residual, and adds the residual to the values
// of its next call (SparCML, algorithm 1; Ok-Topk, algorithm 2).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/composition.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/memory/space.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/optimizer/saved_state.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/storage/kernel/dense.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// Options of error feedback.
struct feedback_options {
  bool reject_nan = false; ///< true: throws `invalid_argument` if a value is NaN; false: NaN is selected first
};

/// Error feedback around the composition `Algorithm`. A call adds the residual to the caller's values, lets the
/// composition select entries of these accumulated values, and sums the selected entries of all ranks. The next
/// residual consists of the entries that this call has not sent and of the rounding errors of this rank's encodings. No
/// value is lost: the sums and the residuals of all ranks together account for all values passed to successful calls.
/// The residual and the composition's state change only when a call succeeds. Each object supports one call at a time,
/// and is not thread-safe.
template <element T, class Algorithm, index_type Index = std::uint32_t>
class error_feedback {
 public:
  using value_type = T;             ///< the type of the values
  using algorithm_type = Algorithm; ///< the composition
  static constexpr std::string_view name = Algorithm::name;

  using state = typename Algorithm::state;        ///< what the composition keeps from call to call
  using report_type = typename Algorithm::report; ///< what the composition reports about a call

  /// Wraps the composition `algorithm`, with the `options` of error feedback; the residual is empty until the first
  /// call.
  explicit error_feedback(Algorithm algorithm = {}, const feedback_options& options = {})
      : algorithm_(std::move(algorithm)), options_(options) {
    hash_state();
  }
  /// Moves the algorithm, its state and the residual. Throws `invalid_argument` if a call of `other` has not ended.
  error_feedback(error_feedback&& other)
      : algorithm_(std::move(other.idle().algorithm_)), state_(std::move(other.state_)), next_(state_),
        report_(other.report_), options_(other.options_) {
    residual_.swap(other.residual_);
    hash_state();
  }

  /// Reduces in place: `x` holds this rank's values before the call and the sum after the call, with zeros where the
  /// sum has no entry. After an error, the values of `x` are unspecified. Throws `invalid_argument` before anything is
  /// sent if an option is invalid, if `check_values(x)` throws (for example because `x` and the residual have different
  /// lengths), or if another call of this object has not ended.
  template <communicates Net, reduction<T> Op = sum>
  void operator()(Net& net, std::span<T> x, Op op = {}) {
    prepare<in_place>(net, x, op).run();
  }
  /// Starts a non-blocking call that reduces in place; `x` and this object must stay valid until the call has ended. If
  /// calls have names (`which`), ranks may start the calls of several `error_feedback` objects in different orders.
  template <communicates Net, reduction<T> Op = sum>
  pending<Net, void> start(Net& net, std::span<T> x, Op op = {}) {
    return prepare<in_place>(net, x, op).start();
  }
  template <communicates Net, reduction<T> Op = sum>
  pending<Net, void> start(Net& net, named which, std::span<T> x, Op op = {}) {
    return prepare<in_place>(net, x, op).start(which);
  }

  /// Reduces the values `x` with gaps, a `strided` (spar/strided.hpp), in place. The residual has no gaps.
  template <communicates Net, strided_values Values, reduction<T> Op = sum>
  void operator()(Net& net, Values x, Op op = {}) {
    prepare<in_place>(net, x, op).run();
  }
  /// Starts a non-blocking call that reduces the values `x` with gaps in place.
  template <communicates Net, strided_values Values, reduction<T> Op = sum>
  pending<Net, void> start(Net& net, Values x, Op op = {}) {
    return prepare<in_place>(net, x, op).start();
  }
  /// Starts a non-blocking call with the name `which` that reduces the values `x` with gaps in place.
  template <communicates Net, strided_values Values, reduction<T> Op = sum>
  pending<Net, void> start(Net& net, named which, Values x, Op op = {}) {
    return prepare<in_place>(net, x, op).start(which);
  }

  /// Reduces out of place: leaves `x` unchanged, and returns the sum and this rank's contribution to the sum, both as
  /// streams.
  template <communicates Net, reduction<T> Op = sum>
  selected_sum<T, Index> reduce(Net& net, std::span<const T> x, Op op = {}) {
    return prepare<out_of_place>(net, x, op).run();
  }
  /// Starts `reduce` as a non-blocking call, with or without a name (`which`); `x` and this object must stay valid
  /// until the call has ended.
  template <communicates Net, reduction<T> Op = sum>
  pending<Net, selected_sum<T, Index>> start_reduce(Net& net, std::span<const T> x, Op op = {}) {
    return prepare<out_of_place>(net, x, op).start();
  }
  template <communicates Net, reduction<T> Op = sum>
  pending<Net, selected_sum<T, Index>> start_reduce(Net& net, named which, std::span<const T> x, Op op = {}) {
    return prepare<out_of_place>(net, x, op).start(which);
  }

  /// \cond
  // Values in device memory are rejected by a sentence, whatever they are called with.
  template <class Net, class... Args>
    requires detail::any_in_device_memory<Args...>
  void operator()(Net&, const Args&...) {
    reject_device_memory<Args...>();
  }
  template <class Net, class... Args>
    requires detail::any_in_device_memory<Args...>
  void start(Net&, const Args&...) {
    reject_device_memory<Args...>();
  }
  template <class Net, class... Args>
    requires detail::any_in_device_memory<Args...>
  void reduce(Net&, const Args&...) {
    reject_device_memory<Args...>();
  }
  template <class Net, class... Args>
    requires detail::any_in_device_memory<Args...>
  void start_reduce(Net&, const Args&...) {
    reject_device_memory<Args...>();
  }
  // A non-blocking call reads its values until it ends, so a temporary vector is rejected by a sentence, too.
  template <class Net, class... Args>
    requires(detail::owning_temporary<Args> || ...)
  void start_reduce(Net&, Args&&...) {
    detail::expect_lasting<Args...>();
  }
  /// \endcond

  /// Runs one round of a partial allreduce whose algorithm is this object. The rounds of a partial allreduce run one
  /// after the other, so at most one call of this object is in flight.
  template <transport Net, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op) & {
    next_ = state_;
    const in_place call{{under_way(*this)}};
    co_await call(net, x,
                  sum{}); // `sum` even for an average: the partial allreduce itself divides by the number of ranks
  }
  /// Throws `invalid_argument` if `x` and the residual have different lengths, if `x` is too long for `Index`, or if
  /// `x` contains NaN and `reject_nan` is set.
  void check_values(std::span<const T> x) const {
    check_length(x.size());
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
      check_length(x.size());
    }
  }
  template <element U, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op&) const {
    check_operation<Op>();
    check_length(n);
    algorithm_.template validate_parts<T>(n, ranks);
  }
  /// Calls `f(name, value)` for each option that must be equal on all ranks, and for a digest of the part of the state
  /// that must be equal on all ranks.
  template <class F>
  void options(F&& f) const {
    algorithm_.options(f);
    f("digest_of_state", shared_state_);
  }

  /// The residual: the values that this rank has not sent yet. Empty before the first call.
  [[nodiscard]] std::span<const T> residual() const noexcept { return residual_; }
  /// Replaces the residual. A program needs this function if, for example, tensors have moved to other buckets, or if a
  /// rank takes over the residuals of ranks that have left. Throws `invalid_argument` if a call has not ended.
  void set_residual(std::span<const T> values) {
    check_idle();
    residual_.assign(values.begin(), values.end());
  }
  /// The composition that this object calls, including its options.
  [[nodiscard]] const Algorithm& algorithm() const noexcept { return algorithm_; }
  /// Replaces the composition with `algorithm`, one of the same type with other options, for example with a higher
  /// density after a warm-up; keeps the residual and the state. All ranks must make the same change between the same
  /// two calls; otherwise, their next call ends in `mismatch`. Throws `invalid_argument` if a call has not ended.
  void set_algorithm(Algorithm algorithm) { idle().algorithm_ = std::move(algorithm); }
  /// The state after the last successful call: the thresholds, boundaries and counters that the next call uses.
  [[nodiscard]] const state& current_state() const noexcept { return state_; }
  /// What the last call did on this rank, for example how many entries it selected.
  [[nodiscard]] const report_type& report() const noexcept { return report_; }

  /// Returns the residual and the state as bytes, from which another run with the same number of ranks can resume.
  /// Throws `invalid_argument` if a call has not ended.
  [[nodiscard]] std::vector<std::byte> save() const {
    check_idle();
    return detail::save_reducer<T>(algorithm_, state_, residual_);
  }
  /// Restores a residual and a state that `save` returned. Throws `invalid_argument`, and changes nothing, if `saved`
  /// is damaged, if `saved` comes from a different value type, selector, storage, topology or schedule, if `saved` has
  /// an old layout that lacks their names, or if a call has not ended.
  void load(std::span<const std::byte> saved) {
    check_idle();
    residual_ = detail::load_reducer<T>(algorithm_, state_, saved);
    hash_state();
  }
  /// Adds the residual in `saved`, which a rank of an earlier job saved, to this rank's residual. If the new job has a
  /// different number of ranks, each saved residual must go to exactly one rank of the new job, so that no value is
  /// lost or added twice. Throws `invalid_argument` if `saved` is damaged, if its residual has a different value type
  /// or length, or if a call has not ended.
  void take_over(std::span<const std::byte> saved) {
    check_idle();
    const std::vector<T> theirs = detail::from_bytes<T>(saved).residual;
    if (residual_.empty()) residual_.resize(theirs.size());
    if (!theirs.empty() && theirs.size() != residual_.size()) {
      raise<invalid_argument>({"the saved residual has length ", theirs.size(),
                               ", but this reducer's residual has length ", residual_.size()});
    }
    kernel::reduce(residual_.data(), theirs.data(), theirs.size(), sum{});
  }

 private:
  /// Marks the `error_feedback` object as busy from the construction of a call until the call ends or, if the call
  /// never begins, until the call's handle is destroyed. While the object is busy, another call of the object throws
  /// `invalid_argument`.
  class under_way {
   public:
    explicit under_way(error_feedback& its) : its_(&its.idle()) { its.busy_ = true; }
    under_way(under_way&& other) noexcept : its_(std::exchange(other.its_, nullptr)) {}
    ~under_way() { end(); }
    error_feedback& its() const noexcept { return *its_; }
    void end() noexcept {
      if (its_ != nullptr) std::exchange(its_, nullptr)->busy_ = false;
    }

   private:
    error_feedback* its_;
  };
  /// Marks the `error_feedback` object as idle when the coroutine that runs `call` ends, whether by a result or by an
  /// exception.
  class end_of_call {
   public:
    explicit end_of_call(under_way& call) noexcept : call_(&call) {}
    end_of_call(const end_of_call&) = delete;
    ~end_of_call() { call_->end(); }

   private:
    under_way* call_;
  };

  /// The function object of a call that reduces out of place. Its operator() is the coroutine of the call. Refers to
  /// the `error_feedback` object that the call uses.
  struct out_of_place {
    static constexpr std::string_view name = Algorithm::name;
    static constexpr bool finalizes = true;
    mutable under_way call;
    const error_feedback* reducer = &call.its(); // `options` needs the reducer even after the call has ended

    template <class F>
    void options(F&& f) const {
      reducer->options(f);
    }
    template <element U, class Op>
    void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
      reducer->template validate<U>(n, ranks, op);
    }

    template <transport Net, class Op>
    task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<const T> x, Op op) const& {
      const end_of_call end(call);
      error_feedback& its = call.its();
      const accumulation add = its.accumulate(x);
      const std::span<T> values(its.accumulated_);
      auto running = its.algorithm_.template reduce<Index>(net, &its.next_, &its.report_, values, op, add);
      selected_sum<T, Index> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) host_work::finalize(result.sum.values(), op, net.size());
      std::swap(its.residual_, its.accumulated_);
      std::swap(its.state_, its.next_);
      its.hash_state();
      its.make_room();
      co_return result;
    }
  };
  struct in_place : out_of_place {
    template <transport Net, class Op>
    task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
      const selected_sum<T, Index> result = co_await out_of_place::operator()(net, std::span<const T>(x), op);
      result.sum.to_dense(x, op);
    }
  };

  /// Prepares a call of type `Call` on the values `x`. The call begins with the current state.
  template <class Call, class Net, class Values, class Op>
  auto prepare(Net& on, Values x, Op op) {
    check_operation<Op>();
    constexpr bool selects = residual_allreduce<Algorithm, Net, T, Index, Op>;
    if constexpr (!selects) {
      static_assert(!residual_allreduce<Algorithm, Net, float, Index, Op>,
                    "this algorithm selects no values of this type: what keeps the largest values takes numbers only");
    }
    static_assert(selects || residual_allreduce<Algorithm, Net, float, Index, Op>,
                  "error feedback needs an algorithm that selects: a composition, or a type with members state, report "
                  "and reduce<Index>(net, state*, report*, x, op, prepare) -> task<selected_sum<T, Index>>");
    auto& net = detail::port_of(on);
    return detail::or_abort(net, [&] {
      auto call = detail::prepare<T, Index>(net, Call{{under_way(*this)}}, op, x.size(), x);
      check_values(x);
      next_ = state_;
      return call;
    });
  }

  template <class... Args>
  static constexpr void reject_device_memory() {
    static_assert(!detail::any_in_device_memory<Args...>,
                  "these values are in device memory, which error_feedback cannot read: use spar::device_feedback "
                  "(compile with nvcc), or call error_feedback in the function on_host of a spar::staged");
  }
  template <class Op>
  static void check_operation() {
    static_assert(
        std::same_as<Op, sum> || std::same_as<Op, average>,
        "error feedback adds unsent values to the values of later calls, so its operation must be sum or average");
  }
  void check_length(std::uint64_t n) const {
    if (!residual_.empty() && residual_.size() != n) {
      raise<invalid_argument>({"the vector has length ", n, ", but the residual has length ", residual_.size()});
    }
    if (n > 0 && n - 1 > std::numeric_limits<Index>::max()) {
      raise<invalid_argument>(
          {n, " values are too many for the ", 8 * sizeof(Index), "-bit indices of this error_feedback object"});
    }
  }

  error_feedback& idle() {
    check_idle();
    return *this;
  }
  void check_idle() const {
    if (busy_)
      raise<invalid_argument>(
          {"a call of this error_feedback object has not ended; the object allows one call at a time"});
  }

  static void check_numbers(std::span<const T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (const auto value : components(x.subspan(i, 1))) {
        if (detail::is_nan(value))
          raise<invalid_argument>({"the value at index ", i, " is NaN, which the option reject_nan forbids"});
      }
    }
  }

  /// Computes the values from which the selector selects: `x` plus the residual. A selector may request all sums at
  /// once, or the sums of each block just before it reads the block.
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
  accumulation accumulate(std::span<const T> x) {
    residual_.reserve(x.size()); // both vectors need room for n values: a call that succeeds swaps them
    accumulated_.resize(x.size());
    return {accumulated_.data(), residual_.empty() ? nullptr : residual_.data(), x.data()};
  }

  /// Computes the digest of the shared state in advance, because `options`, which reports the digest, is const and
  /// could visit the state only by copying the state.
  void hash_state() {
    detail::state_digest hash;
    state_.shared_state(hash);
    shared_state_ = hash.value;
  }

  /// Copies the state for the next call in advance, so that the next call allocates no memory even if the state
  /// contains vectors.
  void make_room() noexcept {
    try {
      next_ = state_;
    } catch (...) { // not an error: the next call copies the state again before it sends anything
    }
  }

  Algorithm algorithm_;
  state state_{};
  state next_{};                   // the state that the call in flight is changing
  std::uint64_t shared_state_ = 0; // digest of the part of `state_` that must be equal on all ranks
  report_type report_{};
  feedback_options options_;
  std::vector<T> residual_;
  std::vector<T> accumulated_; // residual plus values of the call in flight; the next residual if the call succeeds
  bool busy_ = false;
};

/// Wraps the composition `algorithm` in error feedback with these `options`, for values of T: `auto reduce =
/// with_error_feedback<float>(compose(...))`.
template <element T, index_type Index = std::uint32_t, class Algorithm>
error_feedback<T, Algorithm, Index> with_error_feedback(Algorithm algorithm, const feedback_options& options = {}) {
  return error_feedback<T, Algorithm, Index>(std::move(algorithm), options);
}

} // namespace spar
