// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of selected entries: what a selector takes from dense values, summed by an algorithm for streams.
#pragma once

#include <spar/collective/finishing.hpp>
#include <spar/core/task.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/stream.hpp>
#include <spar/transport/channel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// What an allreduce of selected entries returns.
template <element T, index_type Index>
struct selected_sum {
  selected_sum() = default;
  selected_sum(stream<T, Index> all, stream<T, Index> own) noexcept
      : sum(std::move(all)), contributed(std::move(own)) {}

  stream<T, Index> sum;         ///< the same on every rank
  stream<T, Index> contributed; ///< what this rank brought; an inner node of gTopk may have kept part of it
};

/// Puts those entries of `mine` back to `x` that have no place in `sum`; the others stay.
template <element T, index_type Index>
void put_back_losers(stream<T, Index>& mine, const stream_view<T, Index>& sum, std::span<T> x, pool& memory) {
  auto losers = stream<T, Index>::sparse(memory, x.size(), mine.count());
  Index* const indices = mine.indices().data();
  T* const values = mine.values().data();
  Index* const lost_indices = losers.indices().data();
  T* const lost_values = losers.values().data();
  const std::span<const Index> winners = sum.indices();
  const std::size_t count = mine.count();
  std::size_t kept = 0;
  std::size_t lost = 0;
  std::size_t w = 0;
  std::size_t e = 0;
  while (e < count && w < winners.size()) { // one index further at a time, without branches
    const Index own = indices[e];
    const T value = values[e];
    const Index winner = winners[w];
    lost_indices[lost] = own;
    lost_values[lost] = value;
    lost += static_cast<std::size_t>(own < winner);
    indices[kept] = own;
    values[kept] = value;
    kept += static_cast<std::size_t>(own == winner);
    e += static_cast<std::size_t>(own <= winner);
    w += static_cast<std::size_t>(winner <= own);
  }
  const kernel::coo_span<T, Index> behind{{indices + e, count - e}, {values + e, count - e}};
  kernel::scatter_assign(kernel::coo_span<T, Index>{{lost_indices, lost}, {lost_values, lost}}, 0, x.data());
  kernel::scatter_assign(behind, 0, x.data());
  mine.shrink(kept);
}

/// Sums what `Selector` takes from each rank's values by `Algorithm`. The values keep what was not selected, and what
/// an algorithm loses that can be called with them as a fourth argument.
template <class Selector, class Algorithm>
struct selected {
  static constexpr std::string_view name = Algorithm::name;

  Selector select{};
  Algorithm algorithm{};

  /// What the selector says of its options, for `n` values.
  void validate(std::uint64_t n) const {
    if constexpr (requires { select.validate(n); }) select.validate(n);
  }
  template <class F>
  void options(F&& f) const {
    f("select", select), f("algorithm", algorithm);
  }
  template <class F>
  void own_state(F&& f) {
    if constexpr (requires { select.own_state(f); }) select.own_state(f);
  }

  template <index_type Index, transport Net, element T, reduction<T> Op>
    requires selects<Selector, T, Index>
  task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<T> x, Op op) & {
    stream<T, Index> mine = select.template operator()<Index>(x, net.memory());
    spar::validate(mine.view()); // a user's selector may err
    detail::validate_call(algorithm, net.size(), mine.view(), op);
    const auto start = [&] {
      if constexpr (requires { algorithm(net, mine.view(), op, x); })
        return algorithm(net, mine.view(), op, x);
      else
        return algorithm(net, mine.view(), op);
    };
    auto running = start();
    stream<T, Index> sum = co_await std::move(running);
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }
};

} // namespace spar
