// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The front door: allreduce of sparse streams and of dense spans, blocking or not.
#pragma once

#include <spar/collective/finishing.hpp>
#include <spar/collective/pending.hpp>
#include <spar/system/dense.hpp>
#include <spar/system/sparcml.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace spar {

/// An algorithm for streams: called on a channel with a stream_view<T, Index> and an Op it is a task<stream<T, Index>>.
/// Rejects one that can only be called on an lvalue that changes: a call may be in flight more than once.
template <class Algorithm, class Net, class T, class Index, class Op>
concept stream_allreduce = requires(const Algorithm& algorithm, channel<Net> net, stream_view<T, Index> mine, Op op) {
  { Algorithm::name } -> std::convertible_to<std::string_view>;
  { algorithm(net, mine, op) } -> std::same_as<task<stream<T, Index>>>;
};

/// An algorithm for dense values in place.
template <class Algorithm, class Net, class T, class Op>
concept dense_allreduce = requires(const Algorithm& algorithm, channel<Net> net, std::span<T> x, Op op) {
  { Algorithm::name } -> std::convertible_to<std::string_view>;
  { algorithm(net, x, op) } -> std::same_as<task<void>>;
};

/// Contiguous values in memory that outlives the expression: a span or an lvalue container.
template <class X>
concept dense_values = requires(X&& x) { std::span(static_cast<X&&>(x)); };

namespace detail {

// The forms of an allreduce, each begun in a `Mode`: blocking or nonblocking.

template <class Mode, transport Net, element T, index_type Index, class Algorithm = sparcml, reduction<T> Op = sum>
auto allreduce(Mode begin, Net& net, const stream_view<T, Index>& mine, Algorithm algorithm = {}, Op op = {}) {
  static_assert(stream_allreduce<Algorithm, Net, T, Index, Op>,
                "this algorithm has no name or does not allreduce sparse streams: it must be callable as "
                "algorithm(channel<Net>, stream_view<T, Index>, Op) -> task<stream<T, Index>>");
  validate(mine);
  validate_call(algorithm, net.size(), mine, op);
  const auto agreed = signature_of<T, Index, Algorithm, Op>(mine.dimension(), digest_of(algorithm));
  return begin(net, agreed, with_finish<Op, T>(std::move(algorithm)), mine, op);
}
template <class Mode, transport Net, element T, index_type Index, class Algorithm = sparcml, reduction<T> Op = sum>
auto allreduce(Mode begin, Net& net, const stream<T, Index>& mine, Algorithm algorithm = {}, Op op = {}) {
  return allreduce(begin, net, mine.view(), std::move(algorithm), op);
}

template <class Mode, transport Net, dense_values Values, class Algorithm = dense, class Op = sum>
  requires(!dense_values<Algorithm&>)
auto allreduce(Mode begin, Net& net, Values&& values, Algorithm algorithm = {}, Op op = {}) {
  const std::span x(values);
  using T = typename decltype(x)::element_type;
  static_assert(element<T> && reduction<Op, T>,
                "an allreduce in place takes values that can be written, of an element type, "
                "and an operation on them");
  static_assert(dense_allreduce<Algorithm, Net, T, Op>,
                "this algorithm has no name or does not allreduce dense values: it must be callable as "
                "algorithm(channel<Net>, std::span<T>, Op) -> task<void>");
  validate_call(algorithm, net.size(), std::span<T>(x), op);
  const auto agreed = signature_of<T, no_indices, Algorithm, Op>(x.size(), digest_of(algorithm));
  return begin(net, agreed, with_finish<Op, T>(std::move(algorithm)), std::span<T>(x), op);
}
template <class Mode, transport Net, dense_values In, dense_values Out, class Algorithm = dense, class Op = sum>
auto allreduce(Mode begin, Net& net, In&& input, Out&& output, Algorithm algorithm = {}, Op op = {}) {
  const std::span in(input);
  const std::span out(output);
  if (in.size() != out.size()) {
    raise<invalid_argument>({"the input of an allreduce has length ", in.size(), ", its output ", out.size()});
  }
  std::copy(in.begin(), in.end(), out.begin());
  return allreduce(begin, net, output, std::move(algorithm), op);
}

} // namespace detail

/// The sum, or another reduction, of what every rank brings; the same bits on every rank. What is borrowed must outlive
/// the call.
///
/// - `allreduce(net, mine, algorithm = sparcml{}, op = sum{})` for a stream or a view of one: the result is a new
/// stream.
///   Throws `invalid_argument` for a stream that is not well formed (see `validate`), before anything is sent.
/// - `allreduce(net, values, algorithm = dense{}, op = sum{})` for a span, vector or array of the same length on every
///   rank: in place. The values are unspecified after an error.
/// - `allreduce(net, input, output, algorithm = dense{}, op = sum{})`: out of place. Throws `invalid_argument` where
/// the
///   lengths differ.
template <transport Net, class First, class... Rest>
auto allreduce(Net& net, First&& first, Rest&&... rest) {
  return detail::allreduce(detail::blocking{}, net, first, std::forward<Rest>(rest)...);
}

/// The non-blocking form of each: a `pending` handle. The arguments are borrowed until the call has ended.
template <transport Net, class First, class... Rest>
auto start_allreduce(Net& net, First&& first, Rest&&... rest) {
  return detail::allreduce(detail::nonblocking{}, net, first, std::forward<Rest>(rest)...);
}
/// The same for a collective with a name: ranks may start those in any order.
template <transport Net, class First, class... Rest>
auto start_allreduce(Net& net, named which, First&& first, Rest&&... rest) {
  return detail::allreduce(detail::nonblocking_by_name{which}, net, first, std::forward<Rest>(rest)...);
}
template <transport Net, element T, index_type Index, class... Rest>
void start_allreduce(Net& net, stream<T, Index>&& gone, Rest...) = delete; // it is borrowed until the call has ended

} // namespace spar
