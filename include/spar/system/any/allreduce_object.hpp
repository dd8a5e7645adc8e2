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

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1::detail {

/// The operation of an any_operation, as schedules take it. The loops over dense values choose the operation once.
struct chosen_operation {
  static constexpr std::string_view name = "an operation of the program's own";

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

/// One owner of a shared_object.
template <class Object>
class shared {
 public:
  explicit shared(const Object& object) noexcept : object_(&object) { object.retain(); }
  shared(const shared& other) noexcept : shared(*other) {}
  shared(shared&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  shared& operator=(const shared&) = delete;
  ~shared() {
    if (object_ != nullptr) object_->release();
  }
  const Object& operator*() const noexcept { return *object_; }
  const Object* operator->() const noexcept { return object_; }

 private:
  const Object* object_; // null if another object has taken over its part
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

/// The allreduce `Algorithm`.
template <class T, class Index, class Algorithm>
class allreduce_of final : public allreduce_object<T, Index> {
 public:
  explicit allreduce_of(const Algorithm& algorithm) : algorithm_(algorithm) {}

  void describe(bounded_text& to) const override { spar::describe(algorithm_, to); }
  [[nodiscard]] signature prepare_values(std::uint64_t n, rank_t ranks, any_operation op) const override {
    return prepare<no_indices>(n, ranks, op, "dense values");
  }
  [[nodiscard]] signature prepare_streams(std::uint64_t n, rank_t ranks, any_operation op) const override {
    return prepare<Index>(n, ranks, op, "sparse streams");
  }
  [[nodiscard]] task<void> reduce(channel<any_port> net, std::span<T> x, any_operation op) const override {
    if constexpr (takes<no_indices, sum>) {
      if (adds(op)) return algorithm_(net, x, sum{});
    }
    if constexpr (takes<no_indices, chosen_operation>) return algorithm_(net, x, chosen_operation{op});
    std::terminate(); // `prepare_values` has thrown
  }
  [[nodiscard]] task<sparse_stream<T, Index>> reduce(channel<any_port> net, stream_view<T, Index> mine,
                                                     any_operation op) const override {
    if constexpr (takes<Index, sum>) {
      if (adds(op)) return algorithm_(net, mine, sum{});
    }
    if constexpr (takes<Index, chosen_operation>) return algorithm_(net, mine, chosen_operation{op});
    std::terminate(); // `prepare_streams` has thrown
  }

 private:
  static bool adds(any_operation op) noexcept { return op.which() <= any_operation::kind::average; }

  /// Whether the algorithm reduces streams with indices of type Indices, or dense values if Indices is `no_indices`, by
  /// Op.
  template <class Indices, class Op>
  static constexpr bool takes_by() {
    if constexpr (!stores_values<Algorithm, T,
                                 std::conditional_t<std::same_as<Indices, no_indices>, std::uint32_t, Indices>>)
      return false;
    else if constexpr (std::same_as<Indices, no_indices>)
      return dense_allreduce<Algorithm, any_transport, T, Op>;
    else
      return stream_allreduce<Algorithm, any_transport, T, Index, Op>;
  }
  template <class Indices, class Op>
  static constexpr bool takes = takes_by<Indices, Op>();

  template <class Indices>
  signature prepare(std::uint64_t n, rank_t ranks, any_operation given, const char* what) const {
    return chosen_operation{given}.visit([&]<class Op>(const Op& op) -> signature {
      // What reduces by the sum reduces by the average.
      if constexpr (takes<Indices, std::conditional_t<std::same_as<Op, average>, sum, chosen_or_sum<Op>>>) {
        if constexpr (std::same_as<Indices, no_indices>)
          validate_values<any_port, T>(algorithm_, n, ranks, op);
        else
          algorithm_.template validate<T>(n, ranks, op);
        return signature_of<T, Indices, Op>(n, algorithm_, options_of(op));
      } else {
        raise<invalid_argument>({"the algorithm ", Algorithm::name, " does not reduce ", what, " of the type ",
                                 name_of(code_of<T>).c_str(), " by the operation ", Op::name});
      }
    });
  }
  template <class Op>
  using chosen_or_sum = std::conditional_t<std::same_as<Op, sum>, sum, chosen_operation>;

  Algorithm algorithm_;
};

/// A call of an allreduce_object, as `run_collective` and `start_collective` take it.
template <class T, class Index>
class object_call {
 public:
  explicit object_call(const allreduce_object<T, Index>& object) noexcept : object_(object) {}

  void describe(bounded_text& to) const { object_->describe(to); }

  task<void> operator()(channel<any_port> net, std::span<T> x, any_operation op) const& {
    if (op.which() == any_operation::kind::average) return averaged(net, x, op);
    return object_->reduce(net, x, op);
  }
  task<sparse_stream<T, Index>> operator()(channel<any_port> net, stream_view<T, Index> mine, any_operation op) const& {
    if (op.which() == any_operation::kind::average) return averaged(net, mine, op);
    return object_->reduce(net, mine, op);
  }

 private:
  task<void> averaged(channel<any_port> net, std::span<T> x, any_operation op) const& {
    auto running = object_->reduce(net, x, op);
    co_await std::move(running);
    net.work().finalize(x, average{}, net.size());
  }
  task<sparse_stream<T, Index>> averaged(channel<any_port> net, stream_view<T, Index> mine, any_operation op) const& {
    auto running = object_->reduce(net, mine, op);
    sparse_stream<T, Index> total = co_await std::move(running);
    net.work().finalize(total.values(), average{}, net.size());
    co_return total;
  }

  shared<allreduce_object<T, Index>> object_;
};

/// The object of the composition that `text` names.
template <class T, class Index>
const allreduce_object<T, Index>* allreduce_from(std::string_view text);

} // namespace spar::inline v0_1::detail
