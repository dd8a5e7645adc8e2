// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of error feedback that does not depend on the place of the values: the composition with its state, the
// calls, and the bytes from which another run resumes.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/collective/selected_sum.hpp>
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

namespace spar::inline v0_1 {

/// The members that `error_feedback` and `device_feedback` share. A `Store` holds the residual and the accumulated
/// values, which are the residual plus the values of the call in flight: in host memory or in device memory. The
/// accumulated values become the residual if the call succeeds. If `Store::ends_later` is false, the coroutine of the
/// call makes them the residual at its end; if it is true, the handle of the call does so, after the coroutine.
template <element T, class Algorithm, index_type Index, class Store>
class feedback_core {
  static_assert(
      requires {
        typename Algorithm::state;
        typename Algorithm::report;
      }, "error feedback needs an algorithm that selects, such as a composition with a selector: see "
         "spar::residual_allreduce");

 public:
  using value_type = T;             ///< the type of the values
  using algorithm_type = Algorithm; ///< the composition
  static constexpr std::string_view name = Algorithm::name;

  using state = typename Algorithm::state;        ///< what the composition keeps from call to call
  using report_type = typename Algorithm::report; ///< what the composition reports about a call

  feedback_core& operator=(feedback_core&&) = delete;

  template <element U, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op&) const {
    check_operation<Op>();
    check_length(n);
    algorithm_.template validate_parts<T>(n, ranks);
  }
  /// Calls `f(name, value)` for each option that must be equal on all ranks, and for a digest of the part of the state
  /// that must be equal on all ranks.
  void options(auto&& f) const {
    algorithm_.options(f);
    f("digest_of_state", shared_state_);
  }

  /// Replaces the residual by `values`, which are in host memory. A program needs this function if, for example,
  /// tensors have moved to other buckets, or if a rank takes over the residuals of ranks that have left. Throws
  /// `invalid_argument` if a call has not ended.
  void set_residual(std::span<const T> values) {
    check_idle();
    store_.replace(std::vector<T>(values.begin(), values.end()));
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

  /// Returns the residual and the state as bytes, from which another run with the same number of ranks can resume, on
  /// the host or on a device. Throws `invalid_argument` if a call has not ended.
  [[nodiscard]] std::vector<std::byte> save() const {
    check_idle();
    const auto& residual = store_.values();
    return detail::save_reducer<T>(algorithm_, state_, residual);
  }
  /// Restores a residual and a state that `save` returned. Throws `invalid_argument`, and changes nothing, if `saved`
  /// is damaged, if `saved` comes from a different value type, selector, storage, topology or schedule, if `saved` has
  /// an old layout that lacks their names, or if a call has not ended.
  void load(std::span<const std::byte> saved) {
    check_idle();
    state loaded = state_;
    store_.replace(detail::load_reducer<T>(algorithm_, loaded, saved));
    state_ = std::move(loaded);
    hash_state();
  }
  /// Adds the residual in `saved`, which a rank of an earlier job saved, to this rank's residual. If the new job has a
  /// different number of ranks, each saved residual must go to exactly one rank of the new job, so that no value is
  /// lost or added twice. Throws `invalid_argument` if `saved` is damaged, if its residual has a different value type
  /// or length, or if a call has not ended.
  void take_over(std::span<const std::byte> saved) {
    check_idle();
    const std::vector<T> theirs = detail::from_bytes<T>(saved).residual;
    std::vector<T> residual = store_.values();
    if (residual.empty()) residual.resize(theirs.size());
    if (!theirs.empty() && theirs.size() != residual.size()) {
      raise<invalid_argument>({"the saved residual has length ", theirs.size(),
                               ", but this reducer's residual has length ", residual.size()});
    }
    kernel::reduce(residual.data(), theirs.data(), theirs.size(), sum{});
    store_.replace(std::move(residual));
  }

  /// \cond
 protected:
  explicit feedback_core(Algorithm algorithm) : algorithm_(std::move(algorithm)) { hash_state(); }
  /// The same with the store that `make_store()` returns.
  feedback_core(Algorithm algorithm, const std::invocable auto& make_store)
      : algorithm_(std::move(algorithm)), store_(make_store()) {
    hash_state();
  }
  /// Moves the algorithm, its state and the residual. Throws `invalid_argument` if a call of `other` has not ended.
  feedback_core(feedback_core&& other)
      : algorithm_(std::move(other.idle().algorithm_)), store_(std::move(other.store_)),
        state_(std::move(other.state_)), next_(state_), report_(other.report_) {
    hash_state();
  }
  ~feedback_core() = default;

  /// Marks a reducer as busy from the start of a call until the call ends or, if the call never begins, until the
  /// call's handle is destroyed. While the reducer is busy, another call of it throws `invalid_argument`.
  class under_way {
   public:
    under_way() = default;
    explicit under_way(feedback_core& reducer) : reducer_(&reducer.idle()) { reducer.busy_ = true; }
    under_way(under_way&& other) noexcept : reducer_(std::exchange(other.reducer_, nullptr)) {}
    ~under_way() {
      if (reducer_ != nullptr) reducer_->busy_ = false;
    }
    /// Called when the call has succeeded.
    void keep() { reducer_->keep(); }

   private:
    feedback_core* reducer_ = nullptr;
  };

  /// The function object of a call that reduces out of place. Its operator() is the coroutine of the call. The reducer
  /// is busy until the coroutine ends. If `call` is empty, the caller keeps the `under_way` object.
  struct out_of_place {
    static constexpr std::string_view name = Algorithm::name;
    static constexpr bool finalizes = true;
    feedback_core* reducer;
    mutable under_way call;

    out_of_place(feedback_core& on, under_way its_call) noexcept : reducer(&on), call(std::move(its_call)) {}

    void options(auto&& f) const { reducer->options(f); }
    template <element U, class Op>
    void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
      reducer->template validate<U>(n, ranks, op);
    }

    template <transport Net, class Op>
    task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<const T> x, Op op) const& {
      const under_way until_the_end(std::move(call));
      const auto add_residual = reducer->store_.accumulate(net, x);
      const std::span<T> values = reducer->store_.accumulated();
      auto running =
          reducer->algorithm_.template reduce<Index>(net, &reducer->next_, &reducer->report_, values, op, add_residual);
      selected_sum<T, Index> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) net.work().finalize(result.sum.values(), op, net.size());
      reducer->store_.reduced(net);
      if constexpr (!Store::ends_later) reducer->keep();
      co_return result;
    }
  };
  struct in_place : out_of_place {
    using out_of_place::out_of_place;

    template <transport Net, class Op>
    task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
      const selected_sum<T, Index> result = co_await out_of_place::operator()(net, std::span<const T>(x), op);
      net.work().write_dense(result.sum.view(), x, op);
    }
  };

  /// Prepares a call of type `Call` on `x`, which holds n values. The call begins with the current state.
  template <class Call, class Net, class X, class Op>
  auto prepare_call(Net& net, under_way call, X x, std::uint64_t n, Op op) {
    auto prepared = detail::prepare<T, Index>(net, Call(*this, std::move(call)), op, n, x);
    next_ = state_;
    return prepared;
  }
  /// Keeps the residual and the state of a call that has succeeded.
  void keep() {
    store_.keep();
    std::swap(state_, next_);
    hash_state();
    make_room();
  }

  /// Changes the state between two calls by `change(state)`; all ranks must make the same change.
  template <class Change>
  void change_state(Change change) {
    check_idle();
    change(state_);
    hash_state();
  }

  template <class Op>
  static constexpr void check_operation() {
    static_assert(
        std::same_as<Op, sum> || std::same_as<Op, average>,
        "error feedback adds unsent values to the values of later calls, so its operation must be sum or average");
  }
  void check_length(std::uint64_t n) const {
    if (store_.size() > 0 && store_.size() != n)
      raise<invalid_argument>({"the vector has length ", n, ", but the residual has length ", store_.size()});
    if (n > 0 && n - 1 > std::numeric_limits<Index>::max()) {
      raise<invalid_argument>(
          {n, " values are too many for the ", 8 * sizeof(Index), "-bit indices of this ", Store::owner, " object"});
    }
  }
  feedback_core& idle() {
    check_idle();
    return *this;
  }
  void check_idle() const {
    if (busy_)
      raise<invalid_argument>(
          {"a call of this ", Store::owner, " object has not ended; the object allows one call at a time"});
  }

  Algorithm algorithm_;
  Store store_;
  state state_{};
  state next_{}; // the state that the call in flight is changing
  report_type report_{};
  /// \endcond

 private:
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

  std::uint64_t shared_state_ = 0; // digest of the part of `state_` that must be equal on all ranks
  bool busy_ = false;
};

} // namespace spar::inline v0_1
