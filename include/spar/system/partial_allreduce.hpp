// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs any allreduce as a partial collective (eager-SGD, section 4), in which a round starts after the first call of
// any rank (solo), the call of a random rank (majority), the calls of q ranks (quorum) or the calls of all ranks
// (everyone).
#pragma once

#include <spar/collective/partial/partial.hpp>
#include <spar/system/collectives.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Maps the argument of a partial allreduce (values of T or a stream) to the type of the backlog, the object that holds
/// the values of calls that missed their rounds.
template <class T, class Op>
struct backlog_for {
  using type = value_backlog<T, Op>;
  using value = T;
  using index = std::uint32_t;
};
template <class T, class Index, class Op>
struct backlog_for<sparse_stream<T, Index>, Op> {
  using type = stream_backlog<T, Index, Op>;
  using value = T;
  using index = Index;
};

/// Adapts a composition with a state for use in a partial allreduce. Rounds run one after the other, so each round
/// starts with the state that the previous round left; a round that fails leaves the state unchanged.
template <class Composition>
struct with_state {
  static constexpr std::string_view name = Composition::name;

  Composition algorithm;
  typename Composition::state now{};
  typename Composition::state next{};
  typename Composition::report last{};

  void options(auto&& f) const { algorithm.options(f); }
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    algorithm.template validate<T>(n, ranks, op);
  }
  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) & {
    next = now;
    const selector::nothing_to_prepare prepare;
    auto running = algorithm.template reduce<std::uint32_t>(net, &next, &last, x, op, prepare);
    const selected_sum<T, std::uint32_t> result = co_await std::move(running);
    result.sum.to_dense(x, op);
    std::swap(now, next);
  }
};

template <class Algorithm>
constexpr auto as_partial(Algorithm algorithm) {
  if constexpr (selects_entries<Algorithm>)
    return with_state<Algorithm>{std::move(algorithm)};
  else
    return algorithm;
}

/// Whether `algorithm` can be called to reduce an `Argument`. The concept also accepts an algorithm that changes when
/// it is called, because the rounds of a partial allreduce run one after the other.
template <class Algorithm, class Net, class Argument, class Op>
concept reduces =
    requires(Algorithm& algorithm, channel<Net> net, Argument mine, Op op) { algorithm(net, mine, op).done(); };

} // namespace detail

/// Creates this rank's object of a partial allreduce (see `partial` for its calls and their results):
/// - `partial_allreduce<float>(net, n, majority{})` reduces n dense values in place;
/// - `partial_allreduce<sparse_stream<float>>(net, n, solo{}, sparcml{})` reduces streams of dimension n.
///
/// `on` is this rank, `who` the participation, and `algorithm` any algorithm that `allreduce` takes, or an
/// `error_feedback`. All ranks must create their partial allreduces in the same order. Throws `invalid_argument` for a
/// quorum that is not in [1, P], and for invalid options of the algorithm.
template <class T, communicates Net, class Participation = solo, class Algorithm = sparcml, class Op = sum>
auto partial_allreduce(Net& on, std::uint64_t n, const Participation& who = {}, Algorithm algorithm = {}, Op op = {},
                       const partial_options& options = {}) {
  using backlog = detail::backlog_for<T, Op>;
  using value = typename backlog::value;
  using index = typename backlog::index;
  using argument = typename backlog::type::argument;
  using port_type = detail::port_type_of<Net>;
  port_type& net = detail::port_of(on);
  auto given = detail::as_algorithm(std::move(algorithm));
  auto composed = detail::as_partial(std::move(given));
  using composed_type = decltype(composed);
  static_assert(
      participation<Participation>,
      "this type is not a participation: expected the type everyone, or a copyable type with a name, options(f), "
      "validate(P), and either initiates(rank, round, P) or both q and counter(round, P)");
  static_assert(reduction<Op, value>, "a partial allreduce needs an operation that reduces its values");
  constexpr bool reduces = detail::reduces<composed_type, port_type, argument, Op> &&
                           !detail::takes_owners<composed_type, port_type, argument, Op>;
  if constexpr (detail::expect_parts_for<decltype(given), port_type, value, index>()) {
    static_assert(reduces, "this algorithm cannot reduce the argument of the partial allreduce: dense values, or a "
                           "sparse stream if T is a stream");
    if constexpr (reduces) {
      who.validate(net.size());
      return detail::or_abort(net, [&] {
        detail::check_call<value, typename backlog::type::index_type>(net, composed, op, n);
        const detail::partial_terms<composed_type, Participation> terms{&composed, &who, options.tau};
        const signature agreed = signature_of<value, index, Op>(n, terms, detail::options_of(op));
        return partial<port_type, typename backlog::type, Participation, composed_type, Op>(
            net, n, agreed, typename backlog::type(n, op, net.memory()), who, std::move(composed), op, options);
      });
    } else {
      return detail::rejected_call{};
    }
  } else {
    return detail::rejected_call{};
  }
}

} // namespace spar::inline v0_1
