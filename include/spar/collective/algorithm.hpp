// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The protocol of algorithms: the members that a collective's struct must have, and how spar calls the struct.
// Compositions follow this protocol, and a program's own structs can, too. Each algorithm fixes the order of reduction,
// which never depends on the order in which messages arrive. In each reduction of two sums, the left operand is the sum
// of the lower ranks, unless the algorithm documents another order or only one of the sums is dense (see
// storage/merge.hpp).
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/core/op.hpp>
#include <spar/core/policy/policy.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/topology/ownership.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// Defaults for the members `validate` and `options`. An algorithm can derive from this struct and redefine either
/// member. If users set the algorithm's options by designated initialisers, the algorithm should define both members
/// itself, because g++ warns about designated initialisers that omit a base class.
struct algorithm_defaults {
  /// Throws `invalid_argument` if the algorithm's options are invalid for a call with n values of T (first argument) on
  /// P ranks (second argument); this default accepts every call. spar calls `validate` before the call sends anything.
  template <element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const noexcept {}
  /// Calls `f(name, value)` for each option that must be equal on all ranks; the error `mismatch` prints these options
  /// if they differ. This default has no options.
  void options(auto&&) const noexcept {}
};

/// Values with gaps between them, which collectives pack: a `strided` (spar/strided.hpp). Rejects all containers and
/// spans, whose values are contiguous.
template <class X>
concept strided_values = requires { requires std::remove_cvref_t<X>::packs_values; };

/// A type of dense values whose memory outlives the expression: a span, a container that is not a temporary, or a
/// `strided`.
template <class X>
concept dense_values = strided_values<X> || requires(X&& x) { std::span(static_cast<X&&>(x)); };

/// An algorithm whose member `validate<T>(n, ranks, op)` checks a call before anything is sent. The concept rejects an
/// algorithm whose `validate` has other parameters, because spar would never call that `validate`.
template <class Algorithm, class T, class Op>
concept checked = requires(const Algorithm& algorithm, std::uint64_t n, rank_t ranks, const Op& op) {
  { algorithm.template validate<T>(n, ranks, op) } -> std::same_as<void>;
};

namespace detail {

/// Whether `Algorithm` takes the owners of blocks, as every reduce-scatter does and no allreduce.
template <class Algorithm, class Net, class X, class Op>
inline constexpr bool takes_owners = std::invocable<const Algorithm&, channel<Net>, X, bounded_ownership, Op>;

} // namespace detail

/// An allreduce of streams: a call with a channel, a stream_view<T, Index> and an Op returns a task<sparse_stream<T,
/// Index>>. The concept rejects an algorithm that can be called only on a non-const lvalue, because several calls of
/// one algorithm object may be in flight, and a reduce-scatter.
template <class Algorithm, class Net, class T, class Index, class Op>
concept stream_allreduce =
    !detail::takes_owners<Algorithm, detail::port_type_of<Net>, stream_view<T, Index>, Op> &&
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, stream_view<T, Index> mine, Op op) {
      { algorithm(net, mine, op) } -> std::same_as<task<sparse_stream<T, Index>>>;
    };

/// An allreduce of dense values in place: a call with a channel, a span<T> and an Op returns a task<void>. The concept
/// rejects a reduce-scatter, which leaves each rank one block of the result.
template <class Algorithm, class Net, class T, class Op>
concept dense_allreduce =
    !detail::takes_owners<Algorithm, detail::port_type_of<Net>, std::span<T>, Op> &&
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, std::span<T> x, Op op) {
      { algorithm(net, x, op) } -> std::same_as<task<void>>;
    };

/// An allreduce that moves some entries out of the dense values `x`, sends them, and leaves all other values in `x`.
/// Each call also takes a state, which changes from call to call, and writes a report. The concept rejects an algorithm
/// that keeps the state in its own members, because a failed call would then change the state.
template <class Algorithm, class Net, class T, class Index, class Op>
concept residual_allreduce =
    std::copyable<typename Algorithm::state> && std::copyable<typename Algorithm::report> &&
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, typename Algorithm::state* now,
             typename Algorithm::report* last, std::span<T> x, Op op, selector::nothing_to_prepare prepare) {
      {
        algorithm.template reduce<Index>(net, now, last, x, op, prepare)
      } -> std::same_as<task<selected_sum<T, Index>>>;
    };

namespace detail {

/// Stops the compilation with a one-sentence error if the algorithm's `name`, `options` or `validate` has a wrong form.
template <class Algorithm, class T, class Op>
constexpr void check_protocol() {
  static_assert(
      policy<Algorithm>,
      "this algorithm has no static member `name`, or its options(f) is not a const member template that calls "
      "f(name, value); an algorithm without options can derive from spar::algorithm_defaults");
  static_assert(
      checked<Algorithm, T, Op>,
      "this algorithm's validate() is not a const member template validate<T>(n, ranks, op) that returns void; "
      "an algorithm that checks nothing can derive from spar::algorithm_defaults");
}

/// Checks a call of n dense values before anything is sent: calls the algorithm's `validate_values<Net, T>(n, ranks,
/// op)` if the algorithm has this member, as compositions do, otherwise the algorithm's `validate<T>(n, ranks, op)`.
template <transport Net, element T, class Algorithm, class Op>
void validate_values(const Algorithm& algorithm, std::uint64_t n, rank_t ranks, const Op& op) {
  if constexpr (requires { algorithm.template validate_values<Net, T>(n, ranks, op); })
    algorithm.template validate_values<Net, T>(n, ranks, op);
  else
    algorithm.template validate<T>(n, ranks, op);
}

/// Returns `values` as an argument of algorithms: a span, or a `strided` itself.
template <class Values>
auto view_of_values(Values& values) {
  if constexpr (strided_values<Values>)
    return values;
  else
    return std::span<typename decltype(std::span(values))::element_type>(values); // also of an array: of any length
}
/// Returns `algorithm` for calls with `values`: as it is for a span, or so that it packs a `strided`.
template <class Values, class Algorithm>
auto for_values(const Values&, Algorithm algorithm) {
  if constexpr (strided_values<Values>)
    return Values::packing(std::move(algorithm));
  else
    return algorithm;
}

} // namespace detail

} // namespace spar::inline v0_1
