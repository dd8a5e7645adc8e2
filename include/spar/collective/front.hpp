// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pieces of an allreduce as collectives of their own: reduce-scatter, allgather, reduce, broadcast.
#pragma once

#include <spar/collective/allgather.hpp>
#include <spar/collective/binomial.hpp>
#include <spar/collective/finishing.hpp>
#include <spar/collective/pending.hpp>
#include <spar/collective/ring.hpp>
#include <spar/collective/split.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace spar {

namespace detail {

/// What calls without a reduction have in its place.
struct no_operation {
  static constexpr std::string_view name = "none";
};

template <class Net>
void check_root(const Net& net, rank_t root) {
  if (root < 0 || root >= net.size()) {
    raise<invalid_argument>({"the root is rank ", root, ", but there are ", net.size(), " ranks"});
  }
}

/// An algorithm with its root.
template <class Algorithm>
struct rooted {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;
  rank_t root;

  template <class F>
  void options(F&& f) const {
    f("root", root);
  }
  template <transport Net, class X, class... Op>
  auto operator()(channel<Net> net, X x, Op... op) const& {
    return algorithm(net, x, root, op...);
  }
};
template <class Algorithm>
rooted(Algorithm, rank_t) -> rooted<Algorithm>;

} // namespace detail

/// Reduce-scatter of `x` in place: afterwards block `rank` of uniform_ownership{x.size(), P} is reduced.
template <transport Net, element T, reduction<T> Op = sum>
auto start_reduce_scatter(Net& net, std::span<T> x, Op op = {}) {
  return start(net, signature_of<T, no_indices, ring_reduce_scatter, Op>(x.size()),
               detail::with_finish<Op, T>(ring_reduce_scatter{}), x, op);
}
/// Reduce-scatter of streams: this rank's block of the sum, sparse.
template <transport Net, element T, index_type Index, reduction<T> Op = sum>
auto start_reduce_scatter(Net& net, const stream_view<T, Index>& mine, Op op = {}) {
  validate(mine);
  return start(net, signature_of<T, Index, split_reduce_scatter, Op>(mine.dimension()),
               detail::with_finish<Op, T>(split_reduce_scatter{}), mine, op);
}

/// Allgather of `x` in place: rank r brings block r of uniform_ownership{x.size(), P}.
template <transport Net, element T>
auto start_allgather(Net& net, std::span<T> x) {
  const auto agreed = signature_of<T, no_indices, bruck_allgather, detail::no_operation>(x.size());
  return start(net, agreed, bruck_allgather{}, x);
}
/// Sparse allgather: every rank's stream on every rank, as a `gathered`. Throws `invalid_argument` for a dense stream.
template <transport Net, element T, index_type Index>
auto start_allgather(Net& net, const stream_view<T, Index>& mine) {
  validate(mine);
  if (mine.is_dense()) {
    raise<invalid_argument>({"a sparse allgather takes sparse streams, not a dense one of ", mine.count(), " values"});
  }
  const auto agreed = signature_of<T, Index, bruck_allgather, detail::no_operation>(mine.dimension());
  return start(net, agreed, bruck_allgather{}, mine, false);
}

/// Reduction of `x` to the root, in place; elsewhere `x` is unspecified afterwards.
template <transport Net, element T, reduction<T> Op = sum>
auto start_reduce(Net& net, std::span<T> x, rank_t root, Op op = {}) {
  detail::check_root(net, root);
  const detail::rooted algorithm{detail::with_finish<Op, T>(binomial_reduce{}), root};
  return start(net, signature_of<T, no_indices, binomial_reduce, Op>(x.size(), digest_of(algorithm)), algorithm, x, op);
}
/// Reduction of streams to the root; elsewhere the result is an empty stream.
template <transport Net, element T, index_type Index, reduction<T> Op = sum>
auto start_reduce(Net& net, const stream_view<T, Index>& mine, rank_t root, Op op = {}) {
  validate(mine);
  detail::check_root(net, root);
  const detail::rooted algorithm{detail::with_finish<Op, T>(binomial_reduce{}), root};
  return start(net, signature_of<T, Index, binomial_reduce, Op>(mine.dimension(), digest_of(algorithm)), algorithm,
               mine, op);
}

/// The root's `x` on every rank.
template <transport Net, element T>
auto start_broadcast(Net& net, std::span<T> x, rank_t root) {
  detail::check_root(net, root);
  const detail::rooted<binomial_broadcast> algorithm{{}, root};
  const auto agreed =
      signature_of<T, no_indices, binomial_broadcast, detail::no_operation>(x.size(), digest_of(algorithm));
  return start(net, agreed, algorithm, x);
}
/// The root's stream on every rank; the others bring a stream of the same dimension, which may be empty.
template <transport Net, element T, index_type Index>
auto start_broadcast(Net& net, const stream_view<T, Index>& mine, rank_t root) {
  validate(mine);
  detail::check_root(net, root);
  const detail::rooted<binomial_broadcast> algorithm{{}, root};
  const auto agreed =
      signature_of<T, Index, binomial_broadcast, detail::no_operation>(mine.dimension(), digest_of(algorithm));
  return start(net, agreed, algorithm, mine);
}

// Streams that own their memory.
template <transport Net, element T, index_type Index, reduction<T> Op = sum>
auto start_reduce_scatter(Net& net, const stream<T, Index>& mine, Op op = {}) {
  return start_reduce_scatter(net, mine.view(), op);
}
template <transport Net, element T, index_type Index>
auto start_allgather(Net& net, const stream<T, Index>& mine) {
  return start_allgather(net, mine.view());
}
template <transport Net, element T, index_type Index, reduction<T> Op = sum>
auto start_reduce(Net& net, const stream<T, Index>& mine, rank_t root, Op op = {}) {
  return start_reduce(net, mine.view(), root, op);
}
template <transport Net, element T, index_type Index>
auto start_broadcast(Net& net, const stream<T, Index>& mine, rank_t root) {
  return start_broadcast(net, mine.view(), root);
}

// The blocking forms, with the same arguments.

template <transport Net, class First, class... Rest>
auto reduce_scatter(Net& net, First&& first, Rest&&... rest) {
  return start_reduce_scatter(net, std::forward<First>(first), std::forward<Rest>(rest)...).wait();
}
template <transport Net, class First>
auto allgather(Net& net, First&& first) {
  return start_allgather(net, std::forward<First>(first)).wait();
}
template <transport Net, class First, class... Rest>
auto reduce(Net& net, First&& first, Rest&&... rest) {
  return start_reduce(net, std::forward<First>(first), std::forward<Rest>(rest)...).wait();
}
template <transport Net, class First>
auto broadcast(Net& net, First&& first, rank_t root) {
  return start_broadcast(net, std::forward<First>(first), root).wait();
}

} // namespace spar
