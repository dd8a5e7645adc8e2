// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any allreduce as a partial collective: solo, majority, quorum or everyone (eager-SGD, section 4).
#pragma once

#include <spar/collective/partial/partial.hpp>
#include <spar/system/allreduce.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

namespace detail {

/// What is held back of values of T, or of a stream.
template <class T, class Op>
struct held_back {
  using type = held_values<T, Op>;
  using value = T;
  using index = std::uint32_t;
};
template <class T, class Index, class Op>
struct held_back<sparse_stream<T, Index>, Op> {
  using type = held_stream<T, Index, Op>;
  using value = T;
  using index = Index;
};

/// A composition in a partial allreduce: its rounds run one after the other, so a state is kept from one to the next.
template <class Composition>
struct with_state {
  static constexpr std::string_view name = Composition::name;

  Composition algorithm;
  typename Composition::state now{};
  typename Composition::state next{};
  typename Composition::report last{};

  template <class F>
  void options(F&& f) const {
    algorithm.options(f);
  }
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    algorithm.template validate<T>(n, ranks, op);
  }
  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) & {
    next = now;
    const selector::nothing_to_prepare prepare;
    auto running = algorithm.template selected<std::uint32_t>(net, &next, &last, x, op, prepare);
    const selected_sum<T, std::uint32_t> result = co_await std::move(running);
    result.sum.to_dense(x);
    std::swap(now, next);
  }
};

template <class Algorithm>
constexpr auto as_partial(Algorithm given) {
  if constexpr (part<Algorithm>) {
    return as_partial(compose(given));
  } else if constexpr (selects_entries<Algorithm>) {
    return with_state<Algorithm>{std::move(given)};
  } else {
    return given;
  }
}

/// An algorithm of a partial allreduce may have a state, as its rounds run one after the other.
template <class Algorithm, class Net, class Argument, class Op>
concept reduces =
    requires(Algorithm& algorithm, channel<Net> net, Argument mine, Op op) { algorithm(net, mine, op).done(); };

} // namespace detail

/// A partial allreduce of n values of T in place, `partial_allreduce<float>(net, n, majority{})`, or of streams,
/// `partial_allreduce<sparse_stream<float>>(net, n, solo{}, sparcml{})`; see `partial` for what it returns. `given` is
/// any algorithm that `allreduce` takes, or an error_feedback. Collective: all ranks make theirs in the same order.
/// Throws `invalid_argument` for a quorum that is no number of ranks, and for an algorithm's options.
template <class T, communicates Net, class Participation = solo, class Given = sparcml, class Op = sum>
auto partial_allreduce(Net& on, std::uint64_t n, const Participation& who = {}, Given given = {}, Op op = {},
                       const partial_options& options = {}) {
  using held = detail::held_back<T, Op>;
  using value = typename held::value;
  using index = typename held::index;
  using argument = typename held::type::argument;
  using port_type = detail::port_type_of<Net>;
  port_type& net = detail::port_of(on);
  auto algorithm = detail::as_partial(std::move(given));
  using Algorithm = decltype(algorithm);
  static_assert(participation<Participation>,
                "this participation does not say who must take part: it must be everyone, or have initiates(rank, "
                "round, P), or q and counter(round, P); and a name, options(f) and validate(P)");
  static_assert(reduction<Op, value>, "a partial allreduce needs an operation on its values");
  detail::check_protocol<Algorithm, value, Op>();
  static_assert(detail::reduces<Algorithm, port_type, argument, Op>,
                "this algorithm does not allreduce what the partial allreduce is of: dense values or sparse streams");
  who.validate(net.size());
  algorithm.template validate<value>(n, net.size(), op);
  const detail::partial_terms<Algorithm, Participation> terms{&algorithm, &who, options.tau};
  const signature agreed = signature_of<value, index, Op>(n, terms);
  return partial<port_type, typename held::type, Participation, Algorithm, Op>(
      net, n, agreed, typename held::type(n, op, net.memory()), who, std::move(algorithm), op, options);
}

} // namespace spar
