// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The protocol of algorithms: the members of a collective, and how it is called. Compositions follow this protocol, and
// any struct of a user may. Each algorithm fixes the order of reduction: the sum of the lower ranks is the left
// operand, and the order of merging follows from the schedule, never from the order of arrival.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/core/op.hpp>
#include <spar/core/policy/policy.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace spar {

/// Defaults for what an algorithm may leave out: derive from this struct and replace what differs. (A struct whose
/// options users set by designated initialisers has these members itself: g++ warns of initialisers without the base.)
struct algorithm_defaults {
  /// Throws `invalid_argument` for options that are invalid for a call with n values of T (first argument) on P ranks
  /// (second argument). Called before anything is sent.
  template <element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const noexcept {}
  /// Calls `f(name, value)` with each option that must be equal on all ranks; a mismatch names these options.
  template <class F>
  void options(F&&) const noexcept {}
};

/// An algorithm that checks a call before anything is sent. Rejects an algorithm whose `validate` has other parameters,
/// as it would never be called.
template <class Algorithm, class T, class Op>
concept checked = requires(const Algorithm& algorithm, std::uint64_t n, rank_t ranks, const Op& op) {
  { algorithm.template validate<T>(n, ranks, op) } -> std::same_as<void>;
};

/// An allreduce of streams: called on a channel with a stream_view<T, Index> and an Op, it returns a
/// task<sparse_stream<T, Index>>. Rejects an algorithm that can be called only on a non-const lvalue: several calls of
/// one algorithm may be in flight.
template <class Algorithm, class Net, class T, class Index, class Op>
concept stream_allreduce =
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, stream_view<T, Index> mine, Op op) {
      { algorithm(net, mine, op) } -> std::same_as<task<sparse_stream<T, Index>>>;
    };

/// An allreduce of dense values in place, which returns a task<void>.
template <class Algorithm, class Net, class T, class Op>
concept dense_allreduce =
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, std::span<T> x, Op op) {
      { algorithm(net, x, op) } -> std::same_as<task<void>>;
    };

/// An allreduce that takes the entries that it sends from dense values and leaves the rest, with a state that changes
/// from call to call and a report of the last call. Rejects an algorithm that keeps its state in itself: a call that
/// fails would change it.
template <class Algorithm, class Net, class T, class Index, class Op>
concept selecting_allreduce =
    std::copyable<typename Algorithm::state> && std::copyable<typename Algorithm::report> &&
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, typename Algorithm::state* now,
             typename Algorithm::report* last, std::span<T> x, Op op, selector::nothing_to_prepare prepare) {
      {
        algorithm.template selected<Index>(net, now, last, x, op, prepare)
      } -> std::same_as<task<selected_sum<T, Index>>>;
    };

namespace detail {

/// Rejects members of a wrong form, each with one sentence.
template <class Algorithm, class T, class Op>
constexpr void check_protocol() {
  static_assert(policy<Algorithm>,
                "this algorithm has no name, or its options() is not a const member template that calls f(name, "
                "value): derive from spar::algorithm_defaults where it has no options");
  static_assert(checked<Algorithm, T, Op>,
                "this algorithm's validate() is not a const member template validate<T>(n, ranks, op) -> void: derive "
                "from spar::algorithm_defaults where it has nothing to check");
}

/// Checks a call of n dense values before anything is sent: by the algorithm's `validate_values<Net, T>(n, ranks, op)`
/// if it has one, as compositions do, else by its `validate`.
template <transport Net, element T, class Algorithm, class Op>
void validate_values(const Algorithm& algorithm, std::uint64_t n, rank_t ranks, const Op& op) {
  if constexpr (requires { algorithm.template validate_values<Net, T>(n, ranks, op); })
    algorithm.template validate_values<Net, T>(n, ranks, op);
  else
    algorithm.template validate<T>(n, ranks, op);
}

} // namespace detail

} // namespace spar
