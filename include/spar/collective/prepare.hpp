// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The start of a collective call, the same for all front doors: `prepare` checks the call before anything is sent, and
// returns it as an object that starts it, blocking or not, with a name or without. If the operation has a last step,
// such as the division by P that turns a sum into an average, `with_finalize` adds the step to the call.
//
// A call passes these functions: `run_call` or `start_call` (below), `prepare_or_abort`, the forms of the collective
// and `prepare_values` (system/collectives.hpp), `prepare`, `prepared_call::run` or `start`, and `run_collective` or
// `start_collective` (runtime/pending.hpp).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/memory/space.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/workspace/workspace.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1::detail {

/// Stands for the values of a call that has none: a barrier or a `leave`.
struct no_values {};

/// Stands for the operation in the signatures of allgather, broadcast and barrier, which reduce nothing.
struct no_operation {
  static constexpr std::string_view name = "none";
};

template <class Op, class T>
concept has_finalize = requires(const Op& op, T x) { op.finalize(x, 1); };

/// Wraps `algorithm`: calls `op.finalize` on every value of the algorithm's result, on every rank.
template <class Algorithm>
struct finalized {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;

  void options(auto&& f) const { algorithm.options(f); }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    sparse_stream<T, Index> sum = co_await algorithm(net, mine, op);
    net.work().finalize(sum.values(), op, net.size());
    co_return sum;
  }
  template <transport Net, element T, class Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    co_await algorithm(net, x, op);
    net.work().finalize(x, op, net.size());
  }
};

/// Returns `algorithm`, wrapped in `finalized` if the operation Op has a member `finalize`, unless the algorithm
/// `finalizes` its result itself; otherwise unchanged.
template <class Op, class T, class Algorithm>
auto with_finalize(Algorithm algorithm) {
  if constexpr (has_finalize<Op, T> && !requires { Algorithm::finalizes; })
    return finalized<Algorithm>{std::move(algorithm)};
  else
    return algorithm;
}

/// A call of `algorithm(channel, x, op)` that has been checked and can start.
template <transport Net, class Algorithm, class X, class Op>
struct prepared_call {
  Net* net;
  signature agreed; // equal on all ranks
  Algorithm algorithm;
  X x;
  Op op;

  /// Makes the call, and returns its result.
  auto run() const {
    if constexpr (std::same_as<X, no_values>)
      return run_collective(*net, agreed, algorithm);
    else if constexpr (std::same_as<Op, no_operation>)
      return run_collective(*net, agreed, algorithm, x);
    else
      return run_collective(*net, agreed, algorithm, x, op);
  }
  /// Makes the call with the name `which`, and returns its result.
  auto run(named which) { return start(which).wait(); }
  /// Starts the call, with the name `which` if there is one, and returns its handle.
  template <std::same_as<named>... Name>
  auto start(Name... which) {
    if constexpr (std::same_as<X, no_values>)
      return start_collective(*net, which..., agreed, std::move(algorithm));
    else if constexpr (std::same_as<Op, no_operation>)
      return start_collective(*net, which..., agreed, std::move(algorithm), x);
    else
      return start_collective(*net, which..., agreed, std::move(algorithm), x, op);
  }
};

/// Throws `invalid_argument` if the input and the output of an allreduce have different lengths.
inline void check_lengths(std::uint64_t in, std::uint64_t out) {
  if (in != out)
    raise<invalid_argument>({"the input of an allreduce has length ", in, ", but its output has length ", out});
}

/// Throws `invalid_argument` if the arguments `values` of a call are not in host memory, or are malformed streams, if
/// the current device is not that of the transport `net`, or if the options of `algorithm` are invalid for
/// n values of T with indices of type Index, or `no_indices` for dense values.
template <element T, class Index, transport Net, class Algorithm, class Op, class... Values>
void check_call(Net& net, const Algorithm& algorithm, const Op& op, std::uint64_t n, const Values&... values) {
  check_protocol<Algorithm, T, Op>();
  check_arguments(net, values...);
  if constexpr (std::same_as<Index, no_indices>)
    validate_values<Net, T>(algorithm, n, net.size(), op);
  else
    algorithm.template validate<T>(n, net.size(), op);
}

/// Checks the call `algorithm(channel, x, op)`, as `check_call` does, and returns it. The last step of the operation
/// (see `finalized`) follows the algorithm, which gets no `no_operation`.
template <element T, class Index, transport Net, class Algorithm, class Op, class X>
auto prepare(Net& net, Algorithm algorithm, const Op& op, std::uint64_t n, const X& x) {
  check_call<T, Index>(net, algorithm, op, n, x);
  const signature agreed = signature_of<T, Index, Op>(n, algorithm, options_of(op));
  auto whole = for_values(x, with_finalize<Op, T>(std::move(algorithm)));
  return prepared_call<Net, decltype(whole), X, Op>{&net, agreed, std::move(whole), x, op};
}
/// The same for a call without values.
template <transport Net, class Algorithm>
prepared_call<Net, Algorithm, no_values, no_operation> prepare(Net& net, Algorithm algorithm) {
  check_arguments(net);
  return {&net, signature_of<no_operation>(algorithm), std::move(algorithm), {}, {}};
}

template <class X>
inline constexpr bool is_stream = false;
template <element T, index_type Index>
inline constexpr bool is_stream<sparse_stream<T, Index>> = true;

/// Stops the compilation with a sentence if one of `Args` is in device memory, which collectives on a communicator
/// cannot read. Returns whether none is, so that no other error follows.
template <class... Args>
constexpr bool expect_host_memory() {
  static_assert(!any_in_device_memory<Args...>,
                "these values are in device memory, which a communicator cannot read: instead of the communicator, "
                "pass a spar::on_device (compile with nvcc) or a spar::staged that was constructed from it");
  return !any_in_device_memory<Args...>;
}

/// Whether a collective takes a `Values`, the forwarded type of an argument: dense values, a stream or a view of one.
template <class Values>
concept takes_part = dense_values<Values> || requires(std::remove_cvref_t<Values>& values) { values.view(); } ||
                     requires { typename std::remove_cvref_t<Values>::index_value_type; };

/// Stops the compilation with a sentence unless `First`, the first argument of a collective, has values. Returns
/// whether it has, so that no other error follows.
template <class First = void, class...>
constexpr bool expect_values() {
  static_assert(takes_part<First>,
                "a collective takes a span, vector or array of values, or a stream: for a single value s pass "
                "std::span(&s, 1), for a pointer std::span(pointer, n), and instead of a vector<bool>, whose values "
                "are bits, a vector of std::uint32_t");
  return takes_part<First>;
}

/// Takes the place of a call that does not compile, so that no other error follows.
struct rejected_call {
  template <class... Name>
  void run(Name...) const noexcept {}
  template <class... Name>
  rejected_call start(Name...) const noexcept {
    return {};
  }
  void wait() const noexcept {}
};

/// Prepares the call `forms(net, args...)` of a collective. Aborts the communicator if this fails for another reason
/// than `invalid_argument`: other ranks may be in the call.
template <class Forms, class Net, class... Args>
auto prepare_or_abort(const Forms& forms, Net& net, Args&&... args) {
  if constexpr (!expect_host_memory<Args...>() || !expect_lasting<Args...>() || !expect_values<Args...>())
    return rejected_call{};
  else
    try {
      return forms(net, std::forward<Args>(args)...);
    } catch (...) {
      fail_to_begin(net);
    }
}

/// Makes the call `forms(net, args...)` of a collective, with the name `which` if there is one.
template <class Forms, class Net, class... Args>
auto run_call(const Forms& forms, Net& net, Args&&... args) {
  return prepare_or_abort(forms, net, std::forward<Args>(args)...).run();
}
template <class Forms, class Net, class... Args>
auto run_call(const Forms& forms, Net& net, named which, Args&&... args) {
  return prepare_or_abort(forms, net, std::forward<Args>(args)...).run(which);
}

/// Starts the call `forms(net, args...)` of a collective, with the name `which` if there is one.
template <class Forms, class Net, class... Args>
auto start_call(const Forms& forms, Net& net, Args&&... args) {
  static_assert(!(is_stream<std::remove_cv_t<Args>> || ...),
                "a non-blocking call reads its stream until the call has ended: pass a variable, not a temporary");
  return prepare_or_abort(forms, net, std::forward<Args>(args)...).start();
}
template <class Forms, class Net, class... Args>
auto start_call(const Forms& forms, Net& net, named which, Args&&... args) {
  static_assert(!(is_stream<std::remove_cv_t<Args>> || ...),
                "a non-blocking call reads its stream until the call has ended: pass a variable, not a temporary");
  return prepare_or_abort(forms, net, std::forward<Args>(args)...).start(which);
}

} // namespace spar::inline v0_1::detail
