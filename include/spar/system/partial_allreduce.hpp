// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any allreduce as a partial collective: solo, majority, quorum or everyone (eager-SGD, section 4).
#pragma once

#include <spar/collective/partial.hpp>
#include <spar/system/allreduce.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
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
struct held_back<stream<T, Index>, Op> {
  using type = held_stream<T, Index, Op>;
  using value = T;
  using index = Index;
};

/// An algorithm of a partial allreduce may have a state, as its rounds run one after the other.
template <class Algorithm, class Net, class Argument, class Op>
concept reduces = requires(Algorithm& algorithm, channel<Net> net, Argument mine, Op op) {
  { Algorithm::name } -> std::convertible_to<std::string_view>;
  algorithm(net, mine, op).done();
};

} // namespace detail

/// A partial allreduce of n values of T in place, `partial_allreduce<float>(net, n, majority{})`, or of streams,
/// `partial_allreduce<stream<float>>(net, n, solo{}, sparcml{})`; see `partial` for what it returns. Any algorithm that
/// `allreduce` takes can be within. Collective: all ranks make theirs in the same order.
/// Throws `invalid_argument` for a quorum that is no number of ranks, and for an algorithm's options.
template <class T, transport Net, class Participation = solo,
          class Algorithm = std::conditional_t<element<T>, dense, sparcml>, class Op = sum>
auto partial_allreduce(Net& net, std::uint64_t n, const Participation& who = {}, Algorithm algorithm = {}, Op op = {},
                       const partial_options& options = {}) {
  using held = detail::held_back<T, Op>;
  using value = typename held::value;
  using index = typename held::index;
  using argument = typename held::type::argument;
  static_assert(participation<Participation>,
                "this participation does not say who must take part: it must be everyone, or have initiates(rank, "
                "round, P), or q and counter(round, P); and a name, agreed() and validate(P)");
  static_assert(reduction<Op, value>, "a partial allreduce needs an operation on its values");
  static_assert(detail::reduces<Algorithm, Net, argument, Op>,
                "this algorithm has no name or does not allreduce what the partial allreduce is of: dense values or "
                "sparse streams");
  who.validate(net.size());
  if constexpr (requires { algorithm.validate_ranks(net.size()); }) algorithm.validate_ranks(net.size());
  using terms = detail::partial_terms<Algorithm, Participation>;
  const signature agreed = signature_of<value, index, terms, Op>(n, digest_of(terms{&algorithm, &who, options.tau}));
  return partial<Net, typename held::type, Participation, Algorithm, Op>(
      net, n, agreed, typename held::type(n, op, net.memory()), who, std::move(algorithm), op, options);
}

} // namespace spar
