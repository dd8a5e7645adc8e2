// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The front door: allreduce, the collectives that make up an allreduce, the barrier and `leave`. All take their
// arguments in the same order: (net, [named,] values or stream, [root or owners,] [algorithm,] [operation]).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/basic/barrier.hpp>
#include <spar/collective/basic/binomial.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/arguments.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

inline void check_root(rank_t root, rank_t ranks) {
  if (root < 0 || root >= ranks)
    raise<invalid_argument>({"the root is rank ", root, "; expected a rank from 0 to ", ranks - 1});
}

/// An algorithm together with its root rank or with the owners of the blocks, which become one of the options that must
/// be equal on all ranks.
template <class Algorithm, class Argument>
struct with_argument {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;
  Argument argument;

  [[nodiscard]] rank_t root() const noexcept
    requires std::same_as<Argument, rank_t>
  {
    return argument;
  }
  void options(auto&& f) const {
    algorithm.options(f);
    if constexpr (std::same_as<Argument, rank_t>)
      f("root", argument);
    else
      f("owners", argument);
  }
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    if constexpr (std::same_as<Argument, rank_t>)
      check_root(argument, ranks);
    else
      argument.validate(n, ranks);
    algorithm.template validate<T>(n, ranks, op);
  }
  template <transport Net, class X, class... Op>
    requires std::invocable<const Algorithm&, channel<Net>, X, Argument, Op...>
  auto operator()(channel<Net> net, X x, Op... op) const& {
    return algorithm(net, x, argument, op...);
  }
};
template <class Algorithm, class Argument>
with_argument(Algorithm, Argument) -> with_argument<Algorithm, Argument>;

/// Whether an `Algorithm` for `Values` is in truth an operation on them.
template <class Algorithm, class Values>
constexpr bool is_operation() {
  if constexpr (dense_values<Values>)
    return reduction<Algorithm, typename decltype(view_of_values(std::declval<Values&>()))::element_type>;
  else
    return reduction<Algorithm, typename std::remove_cvref_t<Values>::value_type>;
}

template <class Algorithm, class Net, class X, class Op>
inline constexpr bool can_call = std::invocable<const Algorithm&, channel<Net>, X, Op>;
template <class Algorithm, class Net, class X>
inline constexpr bool can_call<Algorithm, Net, X, no_operation> = std::invocable<const Algorithm&, channel<Net>, X>;

/// Stops the compilation with a sentence unless `Algorithm` can be called with these arguments after the channel.
/// Returns whether it can, so that no other error follows.
template <class Algorithm, class Net, class X, class Op>
constexpr bool expect_algorithm() {
  static_assert(can_call<Algorithm, Net, X, Op>,
                "this algorithm is for another collective, or the operation does not fit the values: see the comments "
                "of the function, and spar::reduction; an algorithm with a root or with owners must be callable as "
                "algorithm(channel<Net>, values, rank_t or ownership, Op...)");
  return can_call<Algorithm, Net, X, Op>;
}

/// An argument of algorithms for `values`, only for its type.
template <class Values>
constexpr auto argument_for(Values& values) {
  if constexpr (dense_values<Values&>)
    return std::span<typename decltype(view_of_values(values))::element_type>();
  else
    return stream_view<typename Values::value_type, typename Values::index_value_type>();
}

/// Prepares a call on dense values, on a stream or on a view of a stream.
template <transport Net, class Values, class Algorithm, class Op>
auto prepare_values(Net& net, Values&& values, Algorithm algorithm, Op op) {
  if constexpr (dense_values<Values>) {
    const auto x = view_of_values(values);
    using T = typename decltype(x)::element_type;
    if constexpr (expect_element<T>() && expect_algorithm<Algorithm, Net, std::span<T>, Op>())
      return prepare<T, no_indices>(net, std::move(algorithm), op, x.size(), x);
    else
      return rejected_call{};
  } else if constexpr (requires { values.view(); }) {
    return prepare_values(net, values.view(), std::move(algorithm), op);
  } else {
    using view = std::remove_cvref_t<Values>;
    using T = typename view::value_type;
    using Index = typename view::index_value_type;
    if constexpr (expect_algorithm<Algorithm, Net, stream_view<T, Index>, Op>())
      return prepare<T, Index>(net, std::move(algorithm), op, values.dimension(), stream_view<T, Index>(values));
    else
      return rejected_call{};
  }
}

/// Copies the values `in` to the equally many values `out`, by way of `memory` if both have gaps.
template <class In, class Out>
void copy_values(const In& in, const Out& out, [[maybe_unused]] pool& memory) {
  if constexpr (strided_values<In> && strided_values<Out>) {
    buffer<typename Out::element_type> values(memory, in.size());
    in.copy_to(values.span());
    out.copy_from(std::as_const(values).span());
  } else if constexpr (strided_values<In>) {
    in.copy_to(out);
  } else if constexpr (strided_values<Out>) {
    out.copy_from(in);
  } else {
    std::copy(in.begin(), in.end(), out.begin());
  }
}

/// Stops the compilation with a sentence if `Algorithm`, for an allreduce, takes owners. Returns whether not, so that
/// no other error follows.
template <class Algorithm, class Net, class X, class Op>
constexpr bool expect_whole() {
  static_assert(!takes_owners<Algorithm, Net, X, Op>,
                "this algorithm is a reduce_scatter, which leaves each rank one block of the result; an allreduce "
                "needs another algorithm, such as ring, rabenseifner or split_allgather");
  return !takes_owners<Algorithm, Net, X, Op>;
}

/// Stops the compilation with a sentence unless `Op` is an operation on values of T, and `Algorithm` is none. Returns
/// whether so, so that no other error follows.
template <class Algorithm, class Op, class T>
constexpr bool expect_operation() {
  static_assert(!reduction<Algorithm, T>, "the operation of an allreduce follows the algorithm: for example "
                                          "allreduce(net, values, spar::sparcml{}, spar::maximum{})");
  static_assert(reduction<Op, T>,
                "an allreduce needs an operation on its values: see spar::reduction; minimum and maximum "
                "need values with an order");
  return !reduction<Algorithm, T> && reduction<Op, T>;
}

/// The overloads of `allreduce`, for streams and for dense values.
struct allreduce_forms {
  template <transport Net, element T, index_type Index, class Algorithm = sparcml, reduction<T> Op = sum>
  auto operator()(Net& net, const stream_view<T, Index>& mine, Algorithm algorithm = {}, Op op = {}) const {
    auto composed = as_algorithm(std::move(algorithm));
    using composed_type = decltype(composed);
    static_assert(!selects_entries<composed_type>,
                  "a selector takes entries from dense values; to reduce a stream, use a "
                  "composition with the selector everything");
    if constexpr (!selects_entries<composed_type> && expect_parts_for<composed_type, Net, T, Index>() &&
                  expect_whole<composed_type, Net, stream_view<T, Index>, Op>()) {
      constexpr bool reduces = stream_allreduce<composed_type, Net, T, Index, Op>;
      static_assert(reduces, "this algorithm does not allreduce sparse streams of this value type: it must be callable "
                             "as algorithm(channel<Net>, stream_view<T, Index>, Op) -> task<sparse_stream<T, Index>>");
      if constexpr (reduces)
        return prepare_values(net, mine, std::move(composed), op);
      else
        return rejected_call{};
    } else {
      return rejected_call{};
    }
  }
  template <transport Net, element T, index_type Index, class... Rest>
  auto operator()(Net& net, const sparse_stream<T, Index>& mine, Rest&&... rest) const {
    return (*this)(net, mine.view(), std::forward<Rest>(rest)...);
  }

  template <transport Net, dense_values Values, class Algorithm = sparcml, class Op = sum>
    requires(!dense_values<Algorithm&>)
  auto operator()(Net& net, Values&& values, Algorithm algorithm = {}, Op op = {}) const {
    auto composed = as_algorithm(std::move(algorithm));
    using composed_type = decltype(composed);
    const auto x = view_of_values(values);
    using T = typename decltype(x)::element_type;
    if constexpr (expect_element<T>() && expect_operation<Algorithm, Op, T>() &&
                  expect_parts_for<composed_type, Net, T>() && expect_whole<composed_type, Net, std::span<T>, Op>()) {
      constexpr bool reduces = dense_allreduce<composed_type, Net, T, Op>;
      static_assert(reduces, "this algorithm does not allreduce dense values of this type: it must be callable as "
                             "algorithm(channel<Net>, std::span<T>, Op) -> task<void>, and what keeps the largest "
                             "values takes numbers only");
      if constexpr (reduces)
        return prepare_values(net, x, std::move(composed), op);
      else
        return rejected_call{};
    } else {
      return rejected_call{};
    }
  }
  template <transport Net, dense_values In, dense_values Out, class... Rest>
  auto operator()(Net& net, In&& input, Out&& output, Rest&&... rest) const {
    const auto in = view_of_values(input);
    const auto out = view_of_values(output);
    constexpr bool same =
        std::same_as<std::remove_const_t<typename decltype(in)::element_type>, typename decltype(out)::element_type>;
    static_assert(same, "the input and the output of an allreduce have different types of values, or the output cannot "
                        "be written: an allreduce does not convert values, because a narrower type would change them");
    if constexpr (same) {
      check_arguments(net, in, out);
      check_lengths(in.size(), out.size());
      auto call = (*this)(net, output, std::forward<Rest>(rest)...);
      copy_values(in, out, net.memory());
      return call;
    } else {
      return rejected_call{};
    }
  }
};

/// Whether the arguments after the values begin with the rank of a root.
template <class...>
inline constexpr bool begin_with_root = false;
template <class First, class... Rest>
inline constexpr bool begin_with_root<First, Rest...> = std::convertible_to<First, rank_t>;

/// The form without a root of `reduce` and `broadcast`, which stops the compilation with a sentence.
struct rootless_form {
  template <class Net, class Values, class... Rest>
    requires(!begin_with_root<Rest...>)
  rejected_call operator()(Net&, Values&&, Rest&&...) const {
    static_assert(begin_with_root<Rest...>,
                  "a reduce or a broadcast works in place, and the rank of the root follows the values: for example "
                  "reduce(net, values, 0) or broadcast(net, values, 0)");
    return {};
  }
};

/// Stops the compilation with a sentence if two of `Args`, the forwarded arguments of a reduce_scatter, are containers.
/// Returns whether not, so that no other error follows.
template <class... Args>
constexpr bool expect_bounds() {
  constexpr bool one = (0 + ... + int{std::ranges::range<Args>}) <= 1;
  static_assert(one, "a reduce_scatter works in place, and takes bounds of blocks instead of counts: P + 1 values of "
                     "std::uint64_t, 0 and the sums of the counts, as spar::bounded_ownership{bounds}");
  return one;
}

struct reduce_scatter_forms {
  template <class Values>
  using usual = std::conditional_t<dense_values<Values>, ring_reduce_scatter, split_reduce_scatter>;

  template <class Net, class Values, class Algorithm = usual<Values>, class Op = sum>
  auto operator()(Net& net, Values&& values, Algorithm algorithm = {}, Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce_scatter follows the algorithm: for example reduce_scatter(net, values, "
                  "spar::ring_reduce_scatter{}, spar::maximum{})");
    using X = decltype(argument_for(values));
    constexpr bool operation = is_operation<Algorithm, Values>();
    constexpr bool scatters = operation || takes_owners<Algorithm, Net, X, Op> || !can_call<Algorithm, Net, X, Op>;
    static_assert(scatters,
                  "this algorithm is an allreduce, whose result is whole on all ranks; a reduce_scatter needs "
                  "ring_reduce_scatter, split_reduce_scatter or another algorithm that takes the owners of "
                  "the blocks: algorithm(channel<Net>, values, ownership, Op)");
    if constexpr (scatters && !operation)
      return prepare_values(net, std::forward<Values>(values), std::move(algorithm), op);
    else
      return rejected_call{};
  }
  template <class Net, class Values, class Algorithm = usual<Values>, class Op = sum>
  auto operator()(Net& net, Values&& values, bounded_ownership owner, Algorithm algorithm = {}, Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce_scatter follows the algorithm: for example reduce_scatter(net, values, "
                  "owners, spar::ring_reduce_scatter{}, spar::maximum{})");
    if constexpr (is_operation<Algorithm, Values>())
      return rejected_call{};
    else
      return prepare_values(net, std::forward<Values>(values), with_argument{std::move(algorithm), owner}, op);
  }
};

struct allgather_forms {
  template <class Net, class Values, class Algorithm = bruck_allgather>
  auto operator()(Net& net, Values&& values, Algorithm algorithm = {}) const {
    auto call = prepare_values(net, std::forward<Values>(values), std::move(algorithm), no_operation{});
    if constexpr (!dense_values<Values>) {
      if (values.is_dense()) {
        raise<invalid_argument>(
            {"a sparse allgather got a dense stream of ", values.count(), " values; expected a sparse stream"});
      }
    }
    return call;
  }
};

struct reduce_forms : rootless_form {
  using rootless_form::operator();
  template <class Net, class Values, class Algorithm = binomial_reduce, class Op = sum>
  auto operator()(Net& net, Values&& values, rank_t root, Algorithm algorithm = {}, Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce follows the algorithm: for example reduce(net, values, root, "
                  "spar::binomial_reduce{}, spar::maximum{})");
    if constexpr (is_operation<Algorithm, Values>())
      return rejected_call{};
    else
      return prepare_values(net, std::forward<Values>(values), with_argument{std::move(algorithm), root}, op);
  }
};

struct broadcast_forms : rootless_form {
  using rootless_form::operator();
  template <class Net, class Values, class Algorithm = binomial_broadcast>
  auto operator()(Net& net, Values&& values, rank_t root, Algorithm algorithm = {}) const {
    return prepare_values(net, std::forward<Values>(values), with_argument{std::move(algorithm), root}, no_operation{});
  }
};

template <class Net>
auto prepare_leave(Net& net) {
  const rank_lock lock(net.node().shared());
  if (net.node().busy())
    raise<invalid_argument>({"rank ", net.rank(), " leaves while a call is in flight; wait for the call first"});
  return prepare(net, agreed_leave{});
}

} // namespace detail

/// Reduces the contributions of all ranks to their sum, or with another operation; the result has the same bits on all
/// ranks. The arguments must outlive the call.
///
/// - `allreduce(net, mine, algorithm = sparcml{}, op = sum{})` reduces streams: `mine` is a stream or a view of a
///   stream, and the result is returned as a new stream. Throws `invalid_argument`, before anything is sent, for a
///   malformed stream (see `validate`).
/// - `allreduce(net, values, algorithm = sparcml{}, op = sum{})` reduces dense values in place: `values` is a span,
///   vector or array of the same length on every rank, or a `strided`. After an error, `values` is unspecified.
/// - `allreduce(net, input, output, algorithm = sparcml{}, op = sum{})` reduces dense values, leaves `input` unchanged
///   and writes the result to `output`, which has values of the same type. Throws `invalid_argument` if the lengths
///   differ.
///
/// `algorithm` is a composition (see `compose`), a single part of a composition such as `ring{}`, or any struct that
/// follows the protocol in collective/algorithm.hpp. Calls with a name, which is the argument `named{"..."}` before the
/// values, may be made in different orders on different ranks.
template <communicates Net, class... Args>
auto allreduce(Net& net, Args&&... args) {
  return detail::run_call(detail::allreduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts a non-blocking call and returns its handle (see `pending`). Takes the same arguments as `allreduce`, in any
/// of its forms; the arguments must stay valid until the call has ended.
template <communicates Net, class... Args>
auto start_allreduce(Net& net, Args&&... args) {
  return detail::start_call(detail::allreduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Reduces the contributions of all ranks, and leaves one block of the result on each rank.
/// - `reduce_scatter(net, x, algorithm = ring_reduce_scatter{}, op = sum{})` reduces dense values in place: afterwards,
///   on rank r, block r of `uniform_ownership{x.size(), P}` holds the result, and the rest of `x` is unspecified.
/// - `reduce_scatter(net, mine, algorithm = split_reduce_scatter{}, op = sum{})` reduces streams, and returns this
///   rank's block of the result as a sparse stream.
/// - `reduce_scatter(net, x or mine, bounded_ownership{bounds}, ...)` divides [0, n) into the caller's blocks, in place
///   of those of a `uniform_ownership`: rank r gets the block [bounds[r], bounds[r + 1]), which may be empty. The P + 1
///   bounds ascend from 0 to n, must be equal on all ranks, and must outlive the call.
///
/// Throws `invalid_argument` if the bounds do not divide [0, n) into P blocks.
template <communicates Net, class... Args>
auto reduce_scatter(Net& net, Args&&... args) {
  if constexpr (detail::expect_bounds<Args...>())
    return detail::run_call(detail::reduce_scatter_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `reduce_scatter` as a non-blocking call with the same arguments `args`, and returns its handle (see
/// `pending`).
template <communicates Net, class... Args>
auto start_reduce_scatter(Net& net, Args&&... args) {
  if constexpr (detail::expect_bounds<Args...>())
    return detail::start_call(detail::reduce_scatter_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Gathers the contributions of all ranks on every rank.
/// - `allgather(net, x, algorithm = bruck_allgather{})` gathers dense values in place: rank r contributes block r of
///   `uniform_ownership{x.size(), P}`.
/// - `allgather(net, mine, algorithm = bruck_allgather{})` gathers sparse streams, and returns the streams of all ranks
///   as a `gathered`. Throws `invalid_argument` for a dense stream.
template <communicates Net, class... Args>
auto allgather(Net& net, Args&&... args) {
  return detail::run_call(detail::allgather_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `allgather` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_allgather(Net& net, Args&&... args) {
  return detail::start_call(detail::allgather_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Reduces the contributions of all ranks to the rank `root`.
/// - `reduce(net, x, root, algorithm = binomial_reduce{}, op = sum{})` reduces dense values in place; on all ranks
///   except the root, `x` is unspecified afterwards.
/// - `reduce(net, mine, root, algorithm = binomial_reduce{}, op = sum{})` reduces streams, and returns the result on
///   the root and an empty stream on all other ranks.
///
/// Throws `invalid_argument` if `root` is not a rank.
template <communicates Net, class... Args>
auto reduce(Net& net, Args&&... args) {
  return detail::run_call(detail::reduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `reduce` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_reduce(Net& net, Args&&... args) {
  return detail::start_call(detail::reduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Copies the contribution of the rank `root` to all ranks.
/// - `broadcast(net, x, root, algorithm = binomial_broadcast{})` copies the dense values `x` of the root to the `x` of
///   every rank.
/// - `broadcast(net, mine, root, algorithm = binomial_broadcast{})` returns the root's stream on every rank. The other
///   ranks pass any stream of the same dimension, for example an empty one.
///
/// Throws `invalid_argument` if `root` is not a rank.
template <communicates Net, class... Args>
auto broadcast(Net& net, Args&&... args) {
  return detail::run_call(detail::broadcast_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `broadcast` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_broadcast(Net& net, Args&&... args) {
  return detail::start_call(detail::broadcast_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Waits until all ranks have entered the barrier (see `dissemination_barrier`). A barrier with a name, the argument
/// `which`, may come in another order on each rank than calls with other names.
template <communicates Net, std::same_as<named>... Name>
void barrier(Net& net, Name... which) {
  detail::prepare(detail::port_of(net), dissemination_barrier{}).run(which...);
}
/// Enters the barrier, with the name `which` if there is one, without waiting, and returns its handle (see `pending`).
/// The call ends once all ranks have entered the barrier.
template <communicates Net, std::same_as<named>... Name>
auto start_barrier(Net& net, Name... which) {
  return detail::prepare(detail::port_of(net), dissemination_barrier{}).start(which...);
}

/// Leaves the communicator together with all other ranks: waits until all ranks have called `leave`, so that all calls
/// of all ranks have ended. Later calls on the communicator, and on other decorators of it, throw `invalid_argument`.
/// Throws `mismatch` if another rank makes another call, and `invalid_argument` if a call of this rank is in flight.
template <communicates Net>
void leave(Net& net) {
  detail::prepare_leave(detail::port_of(net)).run();
}
/// Starts `leave` without waiting, and returns its handle (see `pending`). This rank can start no call any more.
template <communicates Net>
auto start_leave(Net& net) {
  return detail::prepare_leave(detail::port_of(net)).start();
}

} // namespace spar::inline v0_1
