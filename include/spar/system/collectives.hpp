// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives that make up an allreduce: reduce-scatter, allgather, reduce and broadcast, and the barrier. All take
// their arguments in the same order: (net, [named,] values or stream, [root or owners,] [algorithm,] [operation]).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/basic/barrier.hpp>
#include <spar/collective/basic/binomial.hpp>
#include <spar/collective/basic/leave.hpp>
#include <spar/collective/finalize.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/memory/space.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/runtime/pending.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar {

/// A type of dense values whose memory outlives the expression: a span, a container that is not a temporary, or a
/// `strided`.
template <class X>
concept dense_values = strided_values<X> || requires(X&& x) { std::span(static_cast<X&&>(x)); };

namespace detail {

template <class X>
inline constexpr bool is_stream = false;
template <element T, index_type Index>
inline constexpr bool is_stream<sparse_stream<T, Index>> = true;

/// Rejects values in device memory, which collectives on a communicator cannot read.
template <class... Args>
constexpr void reject_device_memory() {
  static_assert(!any_in_device_memory<Args...>,
                "these values are in device memory, which a communicator cannot read: instead of the communicator, "
                "pass a spar::on_device (compile with nvcc) or a spar::staged that was constructed from it");
}

/// Whether a collective takes a `Values`, the forwarded type of an argument: dense values, a stream or a view of one.
template <class Values>
concept takes_part = dense_values<Values> || requires(std::remove_cvref_t<Values>& values) { values.view(); } ||
                     requires { typename std::remove_cvref_t<Values>::index_value_type; };

/// Stops the compilation with a sentence unless the first of the arguments of a collective, which has no name or is
/// behind it, has values. Returns whether it has, so that no other error follows.
template <class First, class... Rest>
constexpr bool expect_values() {
  constexpr bool is_name = std::same_as<std::remove_cvref_t<First>, named>;
  if constexpr (is_name && sizeof...(Rest) > 0) {
    return expect_values<Rest...>();
  } else {
    static_assert(takes_part<First>,
                  "a collective takes a span, vector or array of values, or a stream: for a single value s pass "
                  "std::span(&s, 1), for a pointer std::span(pointer, n), and instead of a vector<bool>, whose values "
                  "are bits, a vector of std::uint32_t");
    return takes_part<First>;
  }
}

/// Makes a blocking call of the collective `forms`. If `first` is a name (`named`), the call is started under this
/// name, and ended by `wait()`.
template <class Forms, class Net, class First, class... Rest>
auto begin_blocking(const Forms& forms, Net& net, First&& first, Rest&&... rest) {
  check_arguments(net, first, rest...);
  if constexpr (any_in_device_memory<First, Rest...>)
    reject_device_memory<First, Rest...>();
  else if constexpr (!expect_lasting<First, Rest...>() || !expect_values<First, Rest...>())
    return;
  else
    try {
      if constexpr (std::same_as<std::remove_cvref_t<First>, named>)
        return forms(nonblocking_by_name{first}, net, std::forward<Rest>(rest)...).wait();
      else
        return forms(blocking{}, net, std::forward<First>(first), std::forward<Rest>(rest)...);
    } catch (...) {
      fail_to_begin(net);
    }
}
/// Starts a non-blocking call of the collective `forms`. Rejects a temporary stream, which would be destroyed while the
/// call still reads it.
template <class Forms, class Net, class First, class... Rest>
auto begin_nonblocking(const Forms& forms, Net& net, First&& first, Rest&&... rest) {
  check_arguments(net, first, rest...);
  if constexpr (any_in_device_memory<First, Rest...>) {
    reject_device_memory<First, Rest...>();
  } else if constexpr (!expect_lasting<First, Rest...>() || !expect_values<First, Rest...>()) {
    return;
  } else if constexpr (std::same_as<std::remove_cvref_t<First>, named>) {
    static_assert(!(is_stream<Rest> || ...),
                  "a non-blocking call reads its stream until the call has ended: pass a variable, not a temporary");
    try {
      return forms(nonblocking_by_name{first}, net, std::forward<Rest>(rest)...);
    } catch (...) {
      fail_to_begin(net);
    }
  } else {
    static_assert(!is_stream<First>,
                  "a non-blocking call reads its stream until the call has ended: pass a variable, not a temporary");
    try {
      return forms(nonblocking{}, net, std::forward<First>(first), std::forward<Rest>(rest)...);
    } catch (...) {
      fail_to_begin(net);
    }
  }
}

/// Stands for the operation in the signatures of allgather, broadcast and barrier, which reduce nothing.
struct no_operation {
  static constexpr std::string_view name = "none";
};

template <class Net>
void check_root(const Net& net, rank_t root) {
  if (root < 0 || root >= net.size()) {
    raise<invalid_argument>({"the root is rank ", root, "; expected a rank from 0 to ", net.size() - 1});
  }
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
  template <class F>
  void options(F&& f) const {
    algorithm.options(f);
    if constexpr (std::same_as<Argument, rank_t>)
      f("root", argument);
    else
      f("owners", argument);
  }
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    algorithm.template validate<T>(n, ranks, op);
    if constexpr (!std::same_as<Argument, rank_t>) argument.validate(n, ranks);
  }
  template <transport Net, class X, class... Op>
  auto operator()(channel<Net> net, X x, Op... op) const& {
    static_assert(
        requires { algorithm(net, x, argument, op...); },
        "this algorithm takes no root or no owners: it must be callable as algorithm(channel<Net>, values, "
        "rank_t or ownership, Op...)");
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

/// Stops the compilation with a sentence unless `Algorithm` can be called with these arguments after the channel.
template <class Algorithm, class Net, class... Args>
constexpr bool expect_algorithm() {
  constexpr bool fits = std::invocable<const Algorithm&, channel<Net>, Args...>;
  static_assert(fits, "this algorithm is for another collective, or the operation does not fit the values: see the "
                      "comments of the function, and spar::reduction");
  return fits;
}

/// Starts a call on dense values, on a stream or on a view of a stream; `rest` are the arguments that the algorithm
/// takes after the values.
template <class Op, class Mode, transport Net, class Values, class Algorithm, class... Rest>
auto begin_piece(Mode begin, Net& net, Values&& values, Algorithm algorithm, Rest... rest) {
  [[maybe_unused]] const std::uint64_t option =
      (std::uint64_t{0} + ... + options_of(rest)); // of the operation, if there is one
  if constexpr (dense_values<Values>) {
    const auto x = view_of_values(values);
    using T = typename decltype(x)::element_type;
    if constexpr (expect_element<T>() && expect_algorithm<Algorithm, Net, std::span<T>, Rest...>()) {
      check_protocol<Algorithm, T, Op>();
      algorithm.template validate<T>(x.size(), net.size(), Op{});
      return begin(net, signature_of<T, no_indices, Op>(x.size(), algorithm, option),
                   for_values(x, with_finalize<Op, T>(std::move(algorithm))), x, rest...);
    }
  } else if constexpr (requires { values.view(); }) {
    return begin_piece<Op>(begin, net, values.view(), std::move(algorithm), rest...);
  } else {
    using T = typename std::remove_cvref_t<Values>::value_type;
    using Index = typename std::remove_cvref_t<Values>::index_value_type;
    if constexpr (expect_algorithm<Algorithm, Net, stream_view<T, Index>, Rest...>()) {
      check_protocol<Algorithm, T, Op>();
      validate(values);
      algorithm.template validate<T>(values.dimension(), net.size(), Op{});
      const stream_view<T, Index> mine = values;
      return begin(net, signature_of<T, Index, Op>(mine.dimension(), algorithm, option),
                   with_finalize<Op, T>(std::move(algorithm)), mine, rest...);
    }
  }
}

/// Whether the arguments after the values begin with the rank of a root.
template <class...>
inline constexpr bool begin_with_root = false;
template <class First, class... Rest>
inline constexpr bool begin_with_root<First, Rest...> = std::convertible_to<First, rank_t>;

/// The form without a root of `reduce` and `broadcast`, which stops the compilation with a sentence.
struct rootless_form {
  template <class Mode, class Net, class Values, class... Rest>
    requires(!begin_with_root<Rest...>)
  void operator()(Mode, Net&, Values&&, Rest&&...) const {
    static_assert(begin_with_root<Rest...>,
                  "a reduce or a broadcast works in place, and the rank of the root follows the values: for example "
                  "reduce(net, values, 0) or broadcast(net, values, 0)");
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
  template <class Mode, class Net, class Values>
  auto operator()(Mode begin, Net& net, Values&& values) const {
    if constexpr (dense_values<Values>)
      return (*this)(begin, net, std::forward<Values>(values), ring_reduce_scatter{});
    else
      return (*this)(begin, net, std::forward<Values>(values), split_reduce_scatter{});
  }
  template <class Mode, class Net, class Values, class Algorithm, class Op = sum>
  auto operator()(Mode begin, Net& net, Values&& values, Algorithm algorithm, Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce_scatter follows the algorithm: for example reduce_scatter(net, values, "
                  "spar::ring_reduce_scatter{}, spar::maximum{})");
    return begin_piece<Op>(begin, net, std::forward<Values>(values), std::move(algorithm), op);
  }
  template <class Mode, class Net, class Values>
  auto operator()(Mode begin, Net& net, Values&& values, bounded_ownership owner) const {
    if constexpr (dense_values<Values>)
      return (*this)(begin, net, std::forward<Values>(values), owner, ring_reduce_scatter{});
    else
      return (*this)(begin, net, std::forward<Values>(values), owner, split_reduce_scatter{});
  }
  template <class Mode, class Net, class Values, class Algorithm, class Op = sum>
  auto operator()(Mode begin, Net& net, Values&& values, bounded_ownership owner, Algorithm algorithm,
                  Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce_scatter follows the algorithm: for example reduce_scatter(net, values, "
                  "owners, spar::ring_reduce_scatter{}, spar::maximum{})");
    with_argument to_owners{std::move(algorithm), owner};
    return begin_piece<Op>(begin, net, std::forward<Values>(values), std::move(to_owners), op);
  }
};

struct allgather_forms {
  template <class Mode, class Net, class Values, class Algorithm = bruck_allgather>
  auto operator()(Mode begin, Net& net, Values&& values, Algorithm algorithm = {}) const {
    if constexpr (!dense_values<Values>) {
      if constexpr (requires { values.view(); })
        validate(values.view());
      else
        validate(values);
      if (values.is_dense()) {
        raise<invalid_argument>(
            {"a sparse allgather got a dense stream of ", values.count(), " values; expected a sparse stream"});
      }
    }
    return begin_piece<no_operation>(begin, net, std::forward<Values>(values), std::move(algorithm));
  }
};

struct reduce_forms : rootless_form {
  using rootless_form::operator();
  template <class Mode, class Net, class Values, class Algorithm = binomial_reduce, class Op = sum>
  auto operator()(Mode begin, Net& net, Values&& values, rank_t root, Algorithm algorithm = {}, Op op = {}) const {
    static_assert(!is_operation<Algorithm, Values>(),
                  "the operation of a reduce follows the algorithm: for example reduce(net, values, root, "
                  "spar::binomial_reduce{}, spar::maximum{})");
    check_root(net, root);
    with_argument to_root{std::move(algorithm), root};
    return begin_piece<Op>(begin, net, std::forward<Values>(values), std::move(to_root), op);
  }
};

struct broadcast_forms : rootless_form {
  using rootless_form::operator();
  template <class Mode, class Net, class Values, class Algorithm = binomial_broadcast>
  auto operator()(Mode begin, Net& net, Values&& values, rank_t root, Algorithm algorithm = {}) const {
    check_root(net, root);
    with_argument from_root{std::move(algorithm), root};
    return begin_piece<no_operation>(begin, net, std::forward<Values>(values), std::move(from_root));
  }
};

template <class Mode, class Net>
auto begin_barrier(Mode begin, Net& net) {
  check_arguments(net);
  const dissemination_barrier algorithm;
  return begin(net, signature_of<no_operation>(algorithm), algorithm);
}

template <class Mode, class Net>
auto begin_leave(Mode begin, Net& net) {
  check_arguments(net);
  {
    const rank_lock lock(net.node().shared());
    if (net.node().busy())
      raise<invalid_argument>({"rank ", net.rank(), " leaves while a call is in flight; wait for the call first"});
  }
  const agreed_leave algorithm;
  return begin(net, signature_of<no_operation>(algorithm), algorithm);
}

} // namespace detail

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
    return detail::begin_blocking(detail::reduce_scatter_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `reduce_scatter` as a non-blocking call with the same arguments `args`, and returns its handle (see
/// `pending`).
template <communicates Net, class... Args>
auto start_reduce_scatter(Net& net, Args&&... args) {
  if constexpr (detail::expect_bounds<Args...>())
    return detail::begin_nonblocking(detail::reduce_scatter_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Gathers the contributions of all ranks on every rank.
/// - `allgather(net, x, algorithm = bruck_allgather{})` gathers dense values in place: rank r contributes block r of
///   `uniform_ownership{x.size(), P}`.
/// - `allgather(net, mine, algorithm = bruck_allgather{})` gathers sparse streams, and returns the streams of all ranks
///   as a `gathered`. Throws `invalid_argument` for a dense stream.
template <communicates Net, class... Args>
auto allgather(Net& net, Args&&... args) {
  return detail::begin_blocking(detail::allgather_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `allgather` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_allgather(Net& net, Args&&... args) {
  return detail::begin_nonblocking(detail::allgather_forms{}, detail::port_of(net), std::forward<Args>(args)...);
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
  return detail::begin_blocking(detail::reduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `reduce` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_reduce(Net& net, Args&&... args) {
  return detail::begin_nonblocking(detail::reduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
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
  return detail::begin_blocking(detail::broadcast_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts `broadcast` as a non-blocking call with the same arguments `args`, and returns its handle (see `pending`).
template <communicates Net, class... Args>
auto start_broadcast(Net& net, Args&&... args) {
  return detail::begin_nonblocking(detail::broadcast_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

/// Waits until all ranks have entered the barrier (see `dissemination_barrier`).
template <communicates Net>
void barrier(Net& net) {
  detail::begin_barrier(detail::blocking{}, detail::port_of(net));
}
/// A barrier with the name `which`. The barrier may come in another order on each rank than calls with other names.
template <communicates Net>
void barrier(Net& net, named which) {
  detail::begin_barrier(detail::nonblocking_by_name{which}, detail::port_of(net)).wait();
}
/// Enters a barrier without waiting, and returns its handle (see `pending`). The call ends once all ranks have entered
/// the barrier.
template <communicates Net>
auto start_barrier(Net& net) {
  return detail::begin_barrier(detail::nonblocking{}, detail::port_of(net));
}
/// Enters the barrier with the name `which` without waiting, and returns its handle (see `pending`).
template <communicates Net>
auto start_barrier(Net& net, named which) {
  return detail::begin_barrier(detail::nonblocking_by_name{which}, detail::port_of(net));
}

/// Leaves the communicator together with all other ranks: waits until all ranks have called `leave`, so that all calls
/// of all ranks have ended. Later calls on the communicator, and on other decorators of it, throw `invalid_argument`.
/// Throws `mismatch` if another rank makes another call, and `invalid_argument` if a call of this rank is in flight.
template <communicates Net>
void leave(Net& net) {
  detail::begin_leave(detail::blocking{}, detail::port_of(net));
}
/// Starts `leave` without waiting, and returns its handle (see `pending`). This rank can start no call any more.
template <communicates Net>
auto start_leave(Net& net) {
  return detail::begin_leave(detail::nonblocking{}, detail::port_of(net));
}

} // namespace spar
