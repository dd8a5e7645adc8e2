// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce, reduce-scatter and allgather around a ring, for any number of ranks (Patarasuk and Yuan 2009).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/compressed/compressed_ring.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/concatenate.hpp>
#include <spar/storage/merge.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Reduce-scatter around a ring in P - 1 steps. The sum of block b starts at rank b + 1 and travels to its owner, rank
/// b; each rank on the way adds its own values. The operands therefore have the order b + 1, ..., P - 1, 0, ..., b.
/// Each rank sends all values except those of its own block. The blocks are those of `uniform_ownership` or of the
/// argument `owner`.
struct ring_reduce_scatter : algorithm_defaults {
  static constexpr std::string_view name = "ring_reduce_scatter";

  /// Reduces dense values in place: at the end, block r of `x` on rank r contains the result, and all other blocks of
  /// `x` are unspecified.
  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    return (*this)(net, x, uniform_ownership{x.size(), net.size()}, op);
  }
  template <transport Net, element T, owns_blocks Ownership, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Ownership owner, Op op) const& {
    const rank_t p = net.size();
    const rank_t right = (net.rank() + 1) % p;
    const rank_t left = (net.rank() + p - 1) % p;
    for (rank_t step = 1; step < p; ++step) {
      const index_range out = owner[(net.rank() + p - step) % p];
      const index_range mine = owner[(net.rank() + 2 * p - step - 1) % p];
      auto sending = net.send(right, view_message<T>(x.subspan(out.begin, out.size())));
      message_buffer in(net.work().memory());
      co_await net.receive(left, in);
      const auto partial = in.piece<T>(0);
      if (partial.size() != mine.size())
        raise<corrupt_message>(
            {"ring_reduce_scatter: a block of ", partial.size(), " values arrived; expected ", mine.size(), " values"});
      net.work().reduce_left(x.subspan(mine.begin, mine.size()), partial.data(), op);
      net.compute(mine.size());
      in.release();
      co_await sending;
    }
  }

  /// Returns this rank's block of the sum of all ranks' streams. Adds the rounding errors of this rank's encodings to
  /// `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    return (*this)(net, mine, uniform_ownership{mine.dimension(), net.size()}, op, store, residual);
  }
  template <transport Net, element T, index_type Index, owns_blocks Ownership, reduction<T> Op,
            class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                           Storage store = {}, residual_view<T> residual = {}) const& {
    const rank_t p = net.size();
    const rank_t right = (net.rank() + 1) % p;
    const rank_t left = (net.rank() + p - 1) % p;
    const auto slice = co_await net.work().slices(mine, owner, p);
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = slice[(net.rank() + p - 1) % p];
    for (rank_t step = 1; step < p; ++step) {
      const rank_t block = (net.rank() + 2 * p - step - 1) % p;
      const index_range given = owner[(block + 1) % p];
      outgoing<Storage, T, Index> out;
      const std::uint64_t round = step_of(static_cast<std::uint64_t>(step), 0);
      auto sending = net.send(right, co_await out(net, store, have, given, round));
      co_await out.keep_error(net, store, have, given, residual);
      incoming<Storage, T, Index> in(net.work().memory());
      co_await net.receive(left, in);
      const auto partial = co_await in.view(net, store, owner[block]);
      const auto own = slice[block];
      const std::uint64_t limit = storage::delta<T, Index>(store, owner[block].size());
      auto next = co_await net.work().merge(partial, own, owner[block], limit, op);
      net.compute(partial.count() + own.count());
      in.release();
      co_await sending;
      sum = std::move(next);
      have = sum.view();
    }
    if (p == 1) sum = net.work().duplicate(mine);
    co_return sum;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

/// Allgather around a ring in P - 1 steps. In the first step, every rank sends its own block to the next rank; in each
/// later step, every rank forwards the block that it received last. Each rank sends n (P - 1) / P values.
struct ring_allgather : algorithm_defaults {
  static constexpr std::string_view name = "ring_allgather";

  /// Gathers dense values in place: rank r contributes block r of `x` (see uniform_ownership), and every rank gets all
  /// blocks.
  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{x.size(), p};
    const rank_t right = (net.rank() + 1) % p;
    const rank_t left = (net.rank() + p - 1) % p;
    for (rank_t step = 0; step + 1 < p; ++step) {
      const index_range out = owner[(net.rank() + p - step) % p];
      const index_range arriving = owner[(net.rank() + 2 * p - step - 1) % p];
      auto sending = net.send(right, view_message<T>(x.subspan(out.begin, out.size())));
      message_buffer in(net.work().memory());
      in.place(0, x.subspan(arriving.begin, arriving.size()));
      co_await net.receive(left, in);
      co_await sending;
    }
  }

  /// Joins the blocks of all ranks into one stream and returns the stream; rank r contributes block r (see
  /// uniform_ownership). If the result turns dense, an index without an entry gets the value `absent`. Adds the
  /// rounding errors of the encoding of this rank's block to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, class Storage>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> join(channel<Net> net, stream_view<T, Index> mine, T absent, Storage store,
                                     residual_view<T> residual) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{mine.dimension(), p};
    const rank_t right = (net.rank() + 1) % p;
    const rank_t left = (net.rank() + p - 1) % p;
    // `passed` contains this rank's own block, then copies of the received blocks in order of arrival. Without the
    // copies, the memory of a block's owner would stay in use until the block has travelled all around the ring.
    fixed_vector<relayed<Storage, T, Index>> passed(net.memory(), static_cast<std::size_t>(p));
    buffer<stream_view<T, Index>> views(net.memory(), static_cast<std::size_t>(p));
    const std::span<stream_view<T, Index>> blocks = views.span();
    co_await passed.emplace_back().encode(net, store, mine, owner[net.rank()], residual);
    blocks[static_cast<std::size_t>(net.rank())] = passed[0].view();
    for (rank_t step = 0; step + 1 < p; ++step) {
      const rank_t arriving = (net.rank() + 2 * p - step - 1) % p;
      auto sending = net.send(right, passed[static_cast<std::size_t>(step)].message());
      incoming<Storage, T, Index> in(net.work().memory());
      co_await net.receive(left, in);
      auto& next = passed.emplace_back();
      co_await next.take(net, store, in, owner[arriving]);
      blocks[static_cast<std::size_t>(arriving)] = next.view();
      in.release();
      co_await sending;
    }
    const std::uint64_t n = mine.dimension();
    co_return concatenate(std::span<const stream_view<T, Index>>(blocks), n, {0, n}, absent,
                          storage::delta<T, Index>(store, n), net.work());
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

/// Allreduce around a ring: `ring_reduce_scatter`, then `ring_allgather`. There are 2 (P - 1) steps, in which each rank
/// sends 2 n (P - 1) / P values.
struct ring {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "ring";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  /// Whether streams may be in any memory: the same.
  static constexpr bool streams_anywhere = true;
  static constexpr bool whole_pieces =
      true; ///< encodings are forwarded as they are; pieces begin at multiples of a grain

  std::uint64_t piece = 32768; ///< number of dense values that a block codec encodes at a time

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  /// Throws `invalid_argument` if `piece` is 0.
  void validate(std::uint64_t) const { detail::check_piece(piece); }
  void options(auto&& f) const { f("piece", piece); }

  /// The largest number of successive encodings of a rank's dense values on their way to the result, on `ranks` ranks;
  /// the error bound of the result grows with this number.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return ranks > 1 ? ranks : 0; }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ranks - 1; }

  /// Allreduce of dense values in place. Adds the rounding errors of this rank's encodings to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage = storage::coo>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store = {},
                        residual_view<T> residual = {}) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, x, op);
    else
      return compressed_ring(net, x, op, storage::blocks_of(store), piece, residual);
  }

  /// Allreduce of streams. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    const ring_reduce_scatter reduce_scatter;
    const ring_allgather allgather;
    const sparse_stream<T, Index> block = co_await reduce_scatter(net, mine, op, store, residual);
    co_return co_await allgather.join(net, block.view(), op.template neutral<T>(), store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  template <transport Net, element T, class Op>
  static task<void> plain(channel<Net> net, std::span<T> x, Op op) {
    const ring_reduce_scatter reduce_scatter;
    const ring_allgather allgather;
    co_await reduce_scatter(net, x, op);
    co_await allgather(net, x);
  }
};

} // namespace spar::inline v0_1
