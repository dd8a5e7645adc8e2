// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an any_feedback refers to: error feedback around an algorithm whose type only virtual functions know.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/core/op.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/optimizer/feedback_core.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/feedback.hpp>
#include <spar/transport/any.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// Error feedback around any composition. Its owners are the any_feedback and the handles of its calls, because a
/// handle may be destroyed last.
template <class T, class Index>
class feedback_object : public shared_object {
 public:
  /// Appends the name and the options of the composition to `to`.
  virtual void describe(bounded_text& to) const = 0;
  /// Checks a call on `x` by a sum or an average, marks this object as busy, and returns on what the ranks agree.
  [[nodiscard]] virtual signature prepare(any_port& net, std::span<const T> x, any_operation op) = 0;
  /// The number of the call that `prepare` has prepared last.
  [[nodiscard]] std::uint64_t prepared() const noexcept { return prepared_; }
  /// The coroutine of this call, which sums.
  [[nodiscard]] virtual task<selected_sum<T, Index>> reduce(channel<any_port> net, std::span<const T> x) = 0;
  /// Called when the call with this number is gone: this object is not busy any more, even if the call has not begun.
  virtual void forget(std::uint64_t call) noexcept = 0;

  [[nodiscard]] virtual std::span<const T> residual() const noexcept = 0;
  virtual void set_residual(std::span<const T> values) = 0;
  [[nodiscard]] virtual std::uint64_t selected() const noexcept = 0;
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
  virtual void load(std::span<const std::byte> saved) = 0;
  virtual void take_over(std::span<const std::byte> saved) = 0;

 protected:
  std::uint64_t prepared_ = 0;
};

/// Error feedback around `Algorithm`, which may refer to a part of `kept`.
template <class T, class Index, class Algorithm>
class feedback_of final : public feedback_object<T, Index>, error_feedback<T, Algorithm, Index> {
  using core = feedback_core<T, Algorithm, Index, host_store<T>>;
  using out_of_place = typename core::out_of_place;
  using under_way = typename core::under_way;
  using feedback = error_feedback<T, Algorithm, Index>;

 public:
  feedback_of(const Algorithm& algorithm, bool reject_nan, const shared_object* kept = nullptr)
      : feedback(algorithm, {.reject_nan = reject_nan}), kept_(kept) {}

  void describe(bounded_text& to) const override { spar::describe<core>(*this, to); }
  [[nodiscard]] signature prepare(any_port& net, std::span<const T> x, any_operation op) override {
    const auto by = [&]<class Op>(const Op& sums) {
      auto call = core::template prepare_call<out_of_place>(net, under_way(*this), x, x.size(), sums);
      feedback::check_values(x);
      call_.emplace(std::move(call.algorithm));
      ++this->prepared_;
      return call.agreed;
    };
    if (op.which() == any_operation::kind::sum) return by(sum{});
    if (op.which() == any_operation::kind::average) return by(average{});
    raise<invalid_argument>({"error feedback adds unsent values to the values of later calls, so its operation must be "
                             "sum or average"});
  }
  [[nodiscard]] task<selected_sum<T, Index>> reduce(channel<any_port> net, std::span<const T> x) override {
    return (*call_)(net, x, sum{});
  }
  void forget(std::uint64_t call) noexcept override {
    if (call == this->prepared_) call_.reset();
  }

  [[nodiscard]] std::span<const T> residual() const noexcept override { return feedback::residual(); }
  void set_residual(std::span<const T> values) override { core::set_residual(values); }
  [[nodiscard]] std::uint64_t selected() const noexcept override {
    if constexpr (requires { core::report().selected; })
      return core::report().selected;
    else
      return 0;
  }
  [[nodiscard]] std::vector<std::byte> save() const override { return core::save(); }
  void load(std::span<const std::byte> saved) override { core::load(saved); }
  void take_over(std::span<const std::byte> saved) override { core::take_over(saved); }

 private:
  shared<shared_object> kept_;
  std::optional<out_of_place> call_; // the call that is prepared, or that is in flight or has ended
};

/// A call of a feedback_object, as `run_collective` and `start_collective` take it.
template <class T, class Index>
class feedback_call {
 public:
  explicit feedback_call(feedback_object<T, Index>& object) noexcept : object_(&object), number_(object.prepared()) {
    object_->retain();
  }
  feedback_call(feedback_call&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), number_(other.number_) {}
  ~feedback_call() {
    if (object_ == nullptr) return;
    object_->forget(number_);
    object_->release();
  }

  void describe(bounded_text& to) const { object_->describe(to); }

  /// Reduces out of place.
  task<selected_sum<T, Index>> operator()(channel<any_port> net, std::span<const T> x, any_operation op) const& {
    auto running = object_->reduce(net, x);
    return op.which() == any_operation::kind::average ? averaged(net, std::move(running)) : std::move(running);
  }
  /// Reduces in place.
  task<void> operator()(channel<any_port> net, std::span<T> x, any_operation op) const& {
    auto running = (*this)(net, std::span<const T>(x), op);
    const selected_sum<T, Index> result = co_await std::move(running);
    net.work().write_dense(result.sum.view(), x, sum{});
  }

 private:
  static task<selected_sum<T, Index>> averaged(channel<any_port> net, task<selected_sum<T, Index>> running) {
    selected_sum<T, Index> result = co_await std::move(running);
    net.work().finalize(result.sum.values(), average{}, net.size());
    co_return result;
  }

  feedback_object<T, Index>* object_; // null if another object has taken over the call
  std::uint64_t number_;
};

/// The object of the composition that `text` names. `hosts` is empty, or has the number of the host of each rank.
template <class T, class Index>
feedback_object<T, Index>* feedback_from(std::string_view text, std::span<const rank_t> hosts, bool reject_nan);

} // namespace spar::inline v0_1::detail
