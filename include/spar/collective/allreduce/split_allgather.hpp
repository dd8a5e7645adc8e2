// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce by a split phase and an allgather. The second phase gathers all blocks of the sum as sparse streams
// (SSAR), as dense values (DSAR), or in the form that takes fewer bytes (SparCML, sections 5.3.2, 5.3.3 and 6).
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/wire/all_to_all.hpp>
#include <spar/collective/wire/block_coder.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/storage.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// How the second phase of a split-allgather sends the blocks of the sum: all sparse (SSAR), all dense (DSAR), or all
/// in the form that takes fewer bytes in total (`adaptive`).
enum class second_phase { adaptive, sparse, dense };

/// In the first phase, every rank sends each owner a slice of its vector, and each owner sums its block; in the second
/// phase, all ranks gather the blocks. Sparse streams are encoded by the storage's stream codec, and the dense blocks
/// of the second phase by the storage's block codec. If the storage has no stream codec, the messages of both phases
/// are dense and encoded by the block codec.
///
/// With k entries on each rank, a rank sends at most k entries in the first phase. In the second phase, a rank sends on
/// average the share (P - 1) / P of the result: between k (P - 1) / P and k (P - 1) entries if the result stays sparse,
/// or n (P - 1) / P values if the result is dense.
///
/// The first phase takes one round, in which each rank sends P - 1 messages at once; if the second phase is dense, each
/// owner reduces its slices to dense values. The second phase takes ceil(log2 P) rounds. Between the phases, `adaptive`
/// counts the entries of all blocks in ceil(log2 P) additional rounds, unless the storage has no stream codec.
template <second_phase Phase = second_phase::adaptive>
struct split_allgather {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "split_allgather";
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;
  static constexpr bool whole_pieces = true; ///< blocks begin at multiples of a codec's grain

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (Phase == second_phase::sparse)
      return detail::accepts_entries_alone<Storage>();
    else
      return nothing_against();
  }
  static constexpr void validate(std::uint64_t) noexcept {}
  static constexpr void options(auto&& f) {
    f("second_phase", Phase == second_phase::adaptive ? std::string_view("adaptive")
                      : Phase == second_phase::sparse ? std::string_view("sparse")
                                                      : std::string_view("dense"));
  }

  /// The largest number of successive encodings of a rank's values on their way to the result: in a slice, and in the
  /// block of the sum, which a single rank encodes too.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return ranks > 1 ? 2 : 1; }
  /// How many of these encodings are by the stream codec, if the storage has one.
  [[nodiscard]] static constexpr std::int64_t stream_encodings(rank_t ranks) noexcept { return ranks > 1 ? 1 : 0; }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ranks - 1; }

  /// Allreduce of streams. Each rank encodes the slices of its contribution and its block of the sum, and adds the
  /// rounding errors of these encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    const auto owner = detail::blocks_for(storage::blocks_of(store), mine.dimension(), net.size());
    const index_range own = owner[net.rank()];
    if constexpr (Phase == second_phase::dense || !has_stream_codec<Storage>) {
      auto sum = sparse_stream<T, Index>::dense(net.work().memory(), mine.dimension(), 0, mine.dimension());
      { // the split phase, whose memory is free in the second phase
        using codec = storage::slices_type<Storage>;
        const codec slices = storage::slices_of(store);
        const auto ranks = static_cast<std::size_t>(net.size());
        const auto slice = co_await net.work().slices(mine, owner, net.size());
        outgoing_list<codec, T, Index> out(net.memory(), ranks - 1); // holds encoded slices; must outlive the sends
        all_to_all<Net, incoming<codec, T, Index>> messages(net);
        const std::uint64_t step = step_of(0, net.rank()); // differs between ranks, so that ranks round independently
        for (rank_t i = 1; i < net.size(); ++i) {
          const rank_t peer = messages.destination(i);
          messages.send(peer, co_await out.add(net, slices, slice[peer], owner[peer], step, residual));
        }
        buffer<stream_view<T, Index>> parts(net.memory(), ranks);
        parts.span()[static_cast<std::size_t>(net.rank())] = slice[net.rank()];
        for (rank_t i = 1; i < net.size(); ++i) {
          co_await messages.arrival(i);
          parts.span()[static_cast<std::size_t>(messages.source(i))] = co_await messages[i].view(net, slices, own);
        }
        const std::span<const stream_view<T, Index>> all = std::as_const(parts).span(); // in rank order
        net.work().reduce_dense(all, own, sum.values().data() + own.begin, op);
        net.compute(detail::entries_of(all));
        for (auto& s : messages.end()) co_await s;
      }
      co_await gather_dense(net, sum.values(), storage::blocks_of(store), residual);
      co_return sum;
    } else {
      const sparse_stream<T, Index> block = co_await split_sparse(net, mine, owner, op, store, residual);
      if constexpr (Phase == second_phase::adaptive) {
        const std::uint64_t entries = co_await count_entries(net, block.count());
        if (entries > storage::delta<T, Index>(store, mine.dimension())) {
          auto sum = sparse_stream<T, Index>::dense(net.work().memory(), mine.dimension(), 0, mine.dimension());
          const auto part = block.view();
          net.work().reduce_dense(std::span(&part, 1), own, sum.values().data() + own.begin, op);
          co_await gather_dense(net, sum.values(), storage::blocks_of(store), residual);
          co_return sum;
        }
      }
      const bruck_allgather allgather;
      gathered<T, Index> blocks(block.view(), static_cast<std::size_t>(net.size()), net.work());
      co_await allgather.streams(net, blocks, true, storage::streams_of(store), residual);
      auto sum = std::move(blocks).joined();
      if (sum.count() > storage::delta<T, Index>(store, sum.dimension())) sum = to_dense(net, sum.view(), op);
      co_return sum;
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// Returns the number of entries in the blocks of all ranks together; `mine` is the number in this rank's block.
  template <transport Net>
  static task<std::uint64_t> count_entries(channel<Net> net, std::uint64_t mine) {
    buffer<std::uint64_t> counts(net.memory(), static_cast<std::size_t>(net.size()));
    counts.span()[static_cast<std::size_t>(net.rank())] = mine;
    const bruck_allgather allgather;
    co_await allgather(net.on_host().template with_element<std::uint64_t>(), counts.span());
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts.span()) sum += count;
    co_return sum;
  }

  /// Gathers the dense blocks of all ranks in `values`, which at first contains only this rank's block.
  template <transport Net, element T>
  static task<void> gather_dense(channel<Net> net, std::span<T> values, storage::dense, residual_view<T>) {
    static constexpr bruck_allgather allgather;
    return allgather(net, values);
  }
  template <transport Net, element T, class Codec>
    requires(detail::varies_in_size<Codec, T> || detail::encodes_whole_pieces<Codec>)
  static task<void> gather_dense(channel<Net> net, std::span<T> values, Codec codec, residual_view<T> residual) {
    using Index = std::uint64_t;
    const auto owner = detail::blocks_for(codec, values.size(), net.size());
    const index_range own = owner[net.rank()];
    const auto block = [&](index_range range) { return values.subspan(range.begin, range.size()); };
    encoded_parts<Net, Codec, T, Index> parts(net, static_cast<std::size_t>(net.size()), 1);
    const std::span<const T> sum = block(own);
    const auto mine = stream_view<T, Index>::dense(values.size(), own.begin, sum);
    co_await parts.encode(codec, static_cast<std::size_t>(net.rank()), mine, own, residual);
    co_await bruck_allgather::gather(net, parts);
    for (rank_t r = 0; r < net.size(); ++r)
      co_await parts.decode_dense(codec, static_cast<std::size_t>(r), owner[r], block(owner[r]));
  }
  template <transport Net, element T, class Codec>
    requires(!detail::varies_in_size<Codec, T> && !detail::encodes_whole_pieces<Codec>)
  static task<void> gather_dense(channel<Net> net, std::span<T> values, Codec codec, residual_view<T> residual) {
    const uniform_ownership owner{values.size(), net.size()};
    const auto bytes_of = [&](std::uint64_t values_in_it) { return codec.template encoded_bytes<T>(values_in_it); };
    const block_sizes sizes(owner, bytes_of);
    buffer<std::byte> bytes(net.work().memory(), sizes.begin(net.size()));
    const auto encoded = [&](rank_t r) {
      return bytes.span().subspan(sizes.begin(r), sizes.begin(r + 1) - sizes.begin(r));
    };
    const auto block = [&](rank_t r) { return values.subspan(owner[r].begin, owner[r].size()); };
    const index_range own = owner[net.rank()];
    const block_coder coder(net, codec);
    co_await coder.encode(std::span<const T>(block(net.rank())), own.begin, encoded(net.rank()));
    buffer<T> exact(net.work().memory(), residual.empty() ? 0 : own.size());
    net.work().copy(exact.data(), std::span<const T>(values.subspan(own.begin, exact.size())));
    const bruck_allgather allgather;
    co_await allgather.blocks(net, bytes.span(), sizes, wire_format::block_coded);
    for (rank_t r = 0; r < net.size(); ++r) {
      // Also decodes this rank's own block, so that all ranks continue with the same values.
      coder.decode(std::span<const std::byte>(encoded(r)), block(r));
    }
    if (!residual.empty()) residual.add_error(own.begin, std::as_const(exact).span(), values.data() + own.begin);
  }
};

/// SSAR, the static sparse allreduce: the blocks of the sum are gathered as entries (SparCML, section 5.3.2). Suited to
/// results of at most delta entries.
using ssar_split = split_allgather<second_phase::sparse>;
/// DSAR, the dynamic sparse allreduce: the blocks of the sum are gathered as dense values (SparCML, section 5.3.3).
using dsar_split = split_allgather<second_phase::dense>;

} // namespace spar::inline v0_1
