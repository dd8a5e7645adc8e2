// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an any_allreduce refers to: an algorithm whose type only virtual functions know. The code that checks, starts
// and awaits a call is then compiled once for all algorithms.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/composition.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/endpoint/call_table.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/system/any/allreduce.hpp>
#include <spar/transport/any.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1::detail {

/// The operation of an any_operation, as schedules take it. The loops over dense values choose the operation once.
struct chosen_operation {
  static constexpr std::string_view name = "of the program's own";

  any_operation chosen;

  /// Calls `f` with the operation of the library, or with this object if the operation is the program's own.
  template <class F>
  auto visit(const F& f) const {
    switch (chosen.which()) {
    case any_operation::kind::sum:
      return f(sum{});
    case any_operation::kind::average:
      return f(average{});
    case any_operation::kind::product:
      return f(product{});
    case any_operation::kind::minimum:
      return f(minimum{});
    case any_operation::kind::maximum:
      return f(maximum{});
    case any_operation::kind::own:
      break;
    }
    return f(*this);
  }

  template <class T>
  T operator()(T a, T b) const {
    return visit([&]<class Op>(const Op& op) {
      if constexpr (std::same_as<Op, chosen_operation>) {
        chosen.own()->reduce(&b, &a, 1, chosen.own()->context);
        return a;
      } else {
        return op(a, b);
      }
    });
  }
  template <class T>
  [[nodiscard]] T neutral() const {
    return visit([&]<class Op>(const Op& op) {
      if constexpr (std::same_as<Op, chosen_operation>)
        return *static_cast<const T*>(chosen.own()->neutral);
      else
        return op.template neutral<T>();
    });
  }
  /// Computes `inout[e] = op(inout[e], right[e])` for all e in [0, n).
  template <class T>
  void reduce(T* __restrict inout, const T* __restrict right, std::size_t n) const {
    visit([&]<class Op>(const Op& op) {
      if constexpr (std::same_as<Op, chosen_operation>)
        chosen.own()->reduce(right, inout, n, chosen.own()->context);
      else
        kernel::reduce(inout, right, n, op);
    });
  }
  template <class T>
  void reduce_left(T* __restrict inout, const T* __restrict left, std::size_t n) const {
    visit([&]<class Op>(const Op& op) {
      if constexpr (std::same_as<Op, chosen_operation>)
        chosen.own()->reduce(left, inout, n, chosen.own()->context);
      else
        kernel::reduce_left(inout, left, n, op);
    });
  }
  void options(auto&& f) const { f("name", chosen.own() == nullptr ? std::string_view() : chosen.own()->name); }
};

/// An object with several owners, each of which holds a `shared`.
class shared_object {
 public:
  shared_object() = default;
  shared_object(const shared_object&) = delete;
  virtual ~shared_object() = default;

  void retain() const noexcept { __atomic_fetch_add(&owners_, 1, __ATOMIC_RELAXED); }
  void release() const noexcept {
    if (__atomic_sub_fetch(&owners_, 1, __ATOMIC_ACQ_REL) == 0) delete this;
  }

 private:
  mutable std::uint64_t owners_ = 1;
};

/// One owner of a shared_object, or null.
template <class Object>
class shared {
 public:
  /// A further owner of `object`.
  explicit shared(const Object* object = nullptr) noexcept : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  /// The first owner of a new object.
  static shared first(const Object* object) noexcept {
    shared owner(object);
    object->release();
    return owner;
  }
  shared(const shared& other) noexcept : shared(other.object_) {}
  shared(shared&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  shared& operator=(shared other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~shared() {
    if (object_ != nullptr) object_->release();
  }
  [[nodiscard]] const Object* get() const noexcept { return object_; }
  const Object* operator->() const noexcept { return object_; }

 private:
  const Object* object_;
};

/// An allreduce of dense values and of streams.
template <class T, class Index>
class allreduce_object : public shared_object {
 public:
  /// Appends the name and the options of the algorithm to `to`.
  virtual void describe(bounded_text& to) const = 0;
  /// Checks a call of n dense values on `ranks` ranks, and returns on what the ranks agree. Throws `invalid_argument`
  /// if an option of the algorithm is invalid, or if the algorithm does not reduce such values by `op`.
  [[nodiscard]] virtual signature prepare_values(std::uint64_t n, rank_t ranks, any_operation op) const = 0;
  /// The same for streams.
  [[nodiscard]] virtual signature prepare_streams(std::uint64_t n, rank_t ranks, any_operation op) const = 0;
  /// Reduces dense values in place. An average is the sum here.
  [[nodiscard]] virtual task<void> reduce(channel<any_port> net, std::span<T> x, any_operation op) const = 0;
  /// The same for streams.
  [[nodiscard]] virtual task<sparse_stream<T, Index>> reduce(channel<any_port> net, stream_view<T, Index> mine,
                                                             any_operation op) const = 0;
};

/// The task of a call that reduces by an average: `running` sums, and the result is divided.
template <class T>
task<void> averaged(channel<any_port> net, task<void> running, std::span<T> x) {
  co_await std::move(running);
  net.work().finalize(x, average{}, net.size());
}
template <class T, class Index>
task<sparse_stream<T, Index>> averaged(channel<any_port> net, task<sparse_stream<T, Index>> running) {
  sparse_stream<T, Index> total = co_await std::move(running);
  net.work().finalize(total.values(), average{}, net.size());
  co_return total;
}

/// Whether the storage of a composition sums codes, and so reduces by no operation but the sum.
template <class Algorithm>
inline constexpr bool sums_in_code_within = requires { requires sums_in_code<typename Algorithm::storage_type>; };

/// `Algorithm`, whose call takes an any_operation: any one, or if `SumsOnly` is true, a sum or an average.
template <class Algorithm, bool SumsOnly = false>
struct by_any_operation {
  Algorithm algorithm;

  void describe(bounded_text& to) const { spar::describe(algorithm, to); }

  /// Checks a call on n values of T on `ranks` ranks, and returns on what the ranks agree. Indices is the type of the
  /// indices of streams, or `no_indices` for dense values. Throws `invalid_argument` if an option of the algorithm is
  /// invalid, or if the algorithm does not reduce such values by `op`.
  template <element T, class Indices>
  [[nodiscard]] signature prepare(std::uint64_t n, rank_t ranks, any_operation given) const {
    return chosen_operation{given}.visit([&]<class Op>(const Op& op) -> signature {
      if constexpr (std::same_as<Indices, no_indices>)
        validate_values<any_port, T>(algorithm, n, ranks, op);
      else
        algorithm.template validate<T>(n, ranks, op);
      // What reduces by the sum reduces by the average.
      if constexpr (takes<T, Indices, std::conditional_t<adds<Op>, sum, chosen_operation>>) {
        return signature_of<T, Indices, Op>(n, algorithm, options_of(op));
      } else if constexpr (!std::same_as<Indices, no_indices> && selects_entries<Algorithm>) {
        raise<invalid_argument>(
            {"the selector takes entries from dense values, so this composition of ", Algorithm::name,
             " reduces no sparse vectors: pass dense values or, to keep what is not selected for the next call, use "
             "error feedback (any_feedback in C++, spar_feedback_create in C and Fortran)"});
      } else {
        constexpr const char* what = std::same_as<Indices, no_indices> ? "dense values" : "sparse vectors";
        constexpr const char* taken =
            takes<T, Indices, sum> ? "; with this selector or codec, expected the sum or the average" : "";
        raise<invalid_argument>({"the algorithm ", Algorithm::name, " does not reduce ", what, " of the type ",
                                 name_of(code_of<T>).c_str(), " by the operation ", Op::name, taken});
      }
    });
  }
  /// Reduces dense values in place. An average is the sum here.
  template <element T>
  task<void> reduce(channel<any_port> net, std::span<T> x, any_operation op) const {
    return call<T, no_indices, task<void>>(net, x, op);
  }
  /// The same for streams.
  template <element T, index_type Index>
  task<sparse_stream<T, Index>> reduce(channel<any_port> net, stream_view<T, Index> mine, any_operation op) const {
    return call<T, Index, task<sparse_stream<T, Index>>>(net, mine, op);
  }

  template <element T>
  task<void> operator()(channel<any_port> net, std::span<T> x, any_operation op) const& {
    auto running = reduce(net, x, op);
    return op.which() == any_operation::kind::average ? averaged(net, std::move(running), x) : std::move(running);
  }
  template <element T, index_type Index>
  task<sparse_stream<T, Index>> operator()(channel<any_port> net, stream_view<T, Index> mine, any_operation op) const& {
    auto running = reduce(net, mine, op);
    return op.which() == any_operation::kind::average ? averaged(net, std::move(running)) : std::move(running);
  }

 private:
  template <class T, class Indices>
  struct argument : std::type_identity<stream_view<T, Indices>> {};
  template <class T>
  struct argument<T, no_indices> : std::type_identity<std::span<T>> {};

  template <class T, class Indices, class Op>
  static constexpr bool takes_by() {
    if constexpr (!stores_values<Algorithm, T,
                                 std::conditional_t<std::same_as<Indices, no_indices>, std::uint32_t, Indices>>)
      return false;
    else if constexpr ((SumsOnly || sums_in_code_within<Algorithm>) && !adds<Op>)
      return false;
    else
      return std::invocable<const Algorithm&, channel<any_port>, typename argument<T, Indices>::type, Op>;
  }
  /// Whether the algorithm reduces such values by Op.
  template <class T, class Indices, class Op>
  static constexpr bool takes = takes_by<T, Indices, Op>();

  template <class T, class Indices, class Task, class X>
  Task call(channel<any_port> net, X x, any_operation op) const {
    if constexpr (takes<T, Indices, sum>) {
      if (op.which() <= any_operation::kind::average) return algorithm(net, x, sum{});
    }
    if constexpr (takes<T, Indices, chosen_operation>) return algorithm(net, x, chosen_operation{op});
    std::terminate(); // `prepare` has thrown
  }
};

/// The allreduce `Algorithm`, which may refer to a part of `kept`.
template <class T, class Index, class Algorithm, bool SumsOnly = false>
class allreduce_of final : public allreduce_object<T, Index> {
 public:
  explicit allreduce_of(const Algorithm& algorithm, const shared_object* kept = nullptr)
      : by_{algorithm}, kept_(kept) {}

  void describe(bounded_text& to) const override { by_.describe(to); }
  [[nodiscard]] signature prepare_values(std::uint64_t n, rank_t ranks, any_operation op) const override {
    return by_.template prepare<T, no_indices>(n, ranks, op);
  }
  [[nodiscard]] signature prepare_streams(std::uint64_t n, rank_t ranks, any_operation op) const override {
    return by_.template prepare<T, Index>(n, ranks, op);
  }
  [[nodiscard]] task<void> reduce(channel<any_port> net, std::span<T> x, any_operation op) const override {
    return by_.reduce(net, x, op);
  }
  [[nodiscard]] task<sparse_stream<T, Index>> reduce(channel<any_port> net, stream_view<T, Index> mine,
                                                     any_operation op) const override {
    return by_.reduce(net, mine, op);
  }

 private:
  by_any_operation<Algorithm, SumsOnly> by_;
  shared<shared_object> kept_;
};

/// A call of an allreduce_object, as `run_collective` and `start_collective` take it.
template <class T, class Index>
class object_call {
 public:
  explicit object_call(const allreduce_object<T, Index>& object) noexcept : object_(&object) {}

  void describe(bounded_text& to) const { object_->describe(to); }

  task<void> operator()(channel<any_port> net, std::span<T> x, any_operation op) const& {
    auto running = object_->reduce(net, x, op);
    return op.which() == any_operation::kind::average ? averaged(net, std::move(running), x) : std::move(running);
  }
  task<sparse_stream<T, Index>> operator()(channel<any_port> net, stream_view<T, Index> mine, any_operation op) const& {
    auto running = object_->reduce(net, mine, op);
    return op.which() == any_operation::kind::average ? averaged(net, std::move(running)) : std::move(running);
  }

 private:
  shared<allreduce_object<T, Index>> object_;
};

/// The object of the composition that `text` names. `hosts` is empty, or has the number of the host of each rank.
template <class T, class Index>
const allreduce_object<T, Index>* allreduce_from(std::string_view text, std::span<const rank_t> hosts = {});

} // namespace spar::inline v0_1::detail
