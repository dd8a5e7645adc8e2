// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduce and broadcast along a binomial tree, for any number of ranks and any root (Thakur, Rabenseifner and Gropp
// 2005).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/workspace/workspace.hpp>

#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Reduction to one rank, the root, in ceil(log2 P) rounds; every other rank sends one message. The operands have the
/// order root, root + 1, ... (modulo P).
struct binomial_reduce : algorithm_defaults {
  static constexpr std::string_view name = "binomial_reduce";

  /// Reduces dense values in place: at the end, `x` contains the result on the root and unspecified values on all other
  /// ranks.
  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, rank_t root, Op op) const& {
    const rank_t p = net.size();
    const rank_t relative = (net.rank() + p - root) % p;
    for (rank_t distance = 1; distance < p; distance *= 2) {
      if ((relative & distance) != 0) {
        co_await net.send((net.rank() + p - distance) % p, view_message<T>(x));
        co_return;
      }
      if (relative + distance >= p) continue;
      message_buffer in(net.work().memory());
      co_await net.receive((net.rank() + distance) % p, in);
      const auto theirs = in.piece<T>(0);
      if (theirs.size() != x.size())
        raise<corrupt_message>(
            {"binomial_reduce: a vector of ", theirs.size(), " values arrived; expected ", x.size(), " values"});
      net.work().reduce(x, theirs.data(), op);
      net.compute(x.size());
    }
  }

  /// Returns the sum of all ranks' streams on the root, and an empty stream on all other ranks. Adds the rounding
  /// errors of the encoding of this rank's partial sum to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, rank_t root, Op op,
                                           Storage store = {}, residual_view<T> residual = {}) const& {
    const rank_t p = net.size();
    const rank_t relative = (net.rank() + p - root) % p;
    const index_range all{0, mine.dimension()};
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = mine;
    for (rank_t distance = 1; distance < p; distance *= 2) {
      if ((relative & distance) != 0) {
        outgoing<Storage, T, Index> out;
        const rank_t parent = (net.rank() + p - distance) % p;
        co_await net.send(parent, co_await out(net, store, have, all, step_of(0, net.rank())));
        co_await out.keep_error(net, store, have, all, residual);
        co_return sparse_stream<T, Index>::sparse(net.work().memory(), mine.dimension(), 0);
      }
      if (relative + distance >= p) continue;
      incoming<Storage, T, Index> in(net.work().memory());
      co_await net.receive((net.rank() + distance) % p, in);
      const auto theirs = co_await in.view(net, store, all);
      sum = co_await net.work().merge(have, theirs, all, storage::delta<T, Index>(store, mine.dimension()), op);
      net.compute(theirs.count() + have.count());
      have = sum.view();
    }
    if (p == 1) sum = net.work().duplicate(mine);
    co_return sum;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

/// Broadcast from one rank, the root, in ceil(log2 P) rounds; every other rank receives one message.
struct binomial_broadcast : algorithm_defaults {
  static constexpr std::string_view name = "binomial_broadcast";

  /// Copies the dense values of the root to `x` on every rank.
  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x, rank_t root) const& {
    const rank_t p = net.size();
    const rank_t relative = (net.rank() + p - root) % p;
    rank_t distance = 1;
    for (; distance < p && (relative & distance) == 0; distance *= 2) {
    }
    if (relative != 0) {
      message_buffer in(net.work().memory());
      in.place(0, x);
      co_await net.receive((net.rank() + p - distance) % p, in);
    }
    for (distance /= 2; distance > 0; distance /= 2) {
      if (relative + distance < p) co_await net.send((net.rank() + distance) % p, view_message<T>(x));
    }
  }

  /// Returns the root's stream on every rank. All other ranks pass a stream of the same dimension, whose entries are
  /// ignored. Adds the rounding errors of the root's encoding to the root's `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, rank_t root,
                                           Storage store = {}, residual_view<T> residual = {}) const& {
    const index_range all{0, mine.dimension()};
    const rank_t p = net.size();
    const rank_t relative = (net.rank() + p - root) % p;
    rank_t distance = 1;
    for (; distance < p && (relative & distance) == 0; distance *= 2) {
    }
    relayed<Storage, T, Index> whole;
    if (relative == 0) {
      co_await whole.encode(net, store, mine, all, residual);
    } else {
      incoming<Storage, T, Index> in(net.work().memory());
      co_await net.receive((net.rank() + p - distance) % p, in);
      co_await whole.take(net, store, in, all);
    }
    for (distance /= 2; distance > 0; distance /= 2) {
      if (relative + distance < p) co_await net.send((net.rank() + distance) % p, whole.message());
    }
    co_return std::move(whole).result(net);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
