// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The protocol of algorithms: what a collective says of itself, and how it is called. Compositions keep this protocol,
// and so may any struct of a user.
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

/// What an algorithm may leave out: derive from it, and replace what differs. (A struct with options that users set by
/// designated initialisers has these members itself: g++ warns of initialisers without the base.)
struct algorithm_defaults {
  /// Throws `invalid_argument` for options that do not fit a call with n values of T on so many ranks. Called before
  /// anything is sent.
  template <element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const noexcept {}
  /// Calls `f(name, value)` with each option that all ranks must have alike; a mismatch names these.
  template <class F>
  void options(F&&) const noexcept {}
};

/// What checks a call before anything is sent. Rejects an algorithm whose `validate` takes something else: its checks
/// would never be made.
template <class Algorithm, class T, class Op>
concept checked = requires(const Algorithm& algorithm, std::uint64_t n, rank_t ranks, const Op& op) {
  { algorithm.template validate<T>(n, ranks, op) } -> std::same_as<void>;
};

/// An allreduce of streams: called on a channel with a stream_view<T, Index> and an Op it is a task<sparse_stream<T,
/// Index>>. Rejects one that can only be called on an lvalue that changes: a call may be in flight more than once.
template <class Algorithm, class Net, class T, class Index, class Op>
concept stream_allreduce =
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, stream_view<T, Index> mine, Op op) {
      { algorithm(net, mine, op) } -> std::same_as<task<sparse_stream<T, Index>>>;
    };

/// An allreduce of dense values in place.
template <class Algorithm, class Net, class T, class Op>
concept dense_allreduce =
    requires(const Algorithm& algorithm, channel<detail::port_type_of<Net>> net, std::span<T> x, Op op) {
      { algorithm(net, x, op) } -> std::same_as<task<void>>;
    };

/// An allreduce that takes from dense values what it sends and leaves the rest, with a state that changes from call to
/// call and a report of the last one. Rejects one that keeps its state in itself: a call that fails would change it.
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

/// Refuses, each in one sentence, what has a member of a wrong form.
template <class Algorithm, class T, class Op>
constexpr void check_protocol() {
  static_assert(policy<Algorithm>,
                "this algorithm has no name, or its options() is not a const member template that calls f(name, "
                "value): derive from spar::algorithm_defaults where it has no options");
  static_assert(checked<Algorithm, T, Op>,
                "this algorithm's validate() is not a const member template validate<T>(n, ranks, op) -> void: derive "
                "from spar::algorithm_defaults where it has nothing to check");
}

} // namespace detail

} // namespace spar
