// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of the k largest entries by a reduction tree that selects again at every inner node, and a broadcast
// (gTopk: Shi et al., ICDCS 2019; Ok-Topk, section 2).
#pragma once

#include <spar/collective/binomial.hpp>
#include <spar/collective/selected.hpp>
#include <spar/collective/stream_wire.hpp>
#include <spar/core/task.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/keep_largest.hpp>
#include <spar/storage/merge.hpp>
#include <spar/transport/channel.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// left plus right, of which the k largest entries are kept, of equal ones those with the lowest indices; the others
/// are added to the residual.
template <element T, index_type Index, reduction<T> Op>
stream<T, Index> merge_topk(const stream_view<T, Index>& left, const stream_view<T, Index>& right, std::uint64_t k,
                            std::span<T> residual, Op op, pool& memory) {
  constexpr auto never_dense = std::numeric_limits<std::uint64_t>::max();
  auto both = merge(left, right, {0, left.dimension()}, never_dense, op, memory);
  const auto dropped = selector::keep_largest(both, k, memory);
  dropped.for_each([&](Index i, T value) {
    T& x = residual[i];
    x = op(x, value);
  });
  return both;
}

/// 2 ceil(log2 P) rounds with at most k entries in each message. An inner node keeps what it drops in its own residual:
/// the sum and all residuals are what all ranks brought. Of what a rank contributed, part may be in another's residual.
/// `Selector` is asked for k entries, or for a density.
template <class Selector = selector::exact_topk>
struct gtopk_allreduce {
  static constexpr std::string_view name = "gtopk";

  Selector select{};

  void validate(std::uint64_t n) const { select.validate(n); }
  template <class F>
  void options(F&& f) const {
    select.options(f);
  }

  /// What this rank's encodings lose stays in `x`, too.
  template <index_type Index, transport Net, element T, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<T> x, Op op, Storage store = {}) & {
    const index_range all{0, x.size()};
    const rank_t p = net.size();
    const std::uint64_t k = selector::detail::amount(select.k, select.density, x.size());
    selected_sum<T, Index> result;
    result.contributed = select.template operator()<Index>(x, net.memory());
    stream<T, Index> sum;
    stream_view<T, Index> have = result.contributed.view();
    for (rank_t distance = 1; distance < p; distance *= 2) {
      if ((net.rank() & distance) != 0) {
        outgoing<Storage, T, Index> out;
        co_await net.send(net.rank() - distance, out(net, store, have, all, step_of(0, net.rank())));
        out.keep_lost(net, store, have, all, x);
        break;
      }
      if (net.rank() + distance >= p) continue;
      incoming<Storage, T, Index> in(net.memory());
      co_await net.receive(net.rank() + distance, in);
      const auto theirs = in.view(net, store, all);
      if (theirs.is_dense()) throw corrupt_message("a dense stream arrived where the k largest entries are due");
      sum = merge_topk(have, theirs, k, x, op, net.memory());
      net.compute(have.count() + theirs.count());
      have = sum.view();
    }
    const binomial_broadcast broadcast;
    result.sum = co_await broadcast(net, have, 0, store, x);
    co_return result;
  }
};

} // namespace spar
