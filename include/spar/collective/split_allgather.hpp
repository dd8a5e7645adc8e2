// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce by split and allgather, with a sparse (SSAR), dense (DSAR) or encoded second phase, or the smaller of the
// first two (SparCML, sections 5.3.2, 5.3.3 and 6).
#pragma once

#include <spar/collective/allgather.hpp>
#include <spar/collective/block_coder.hpp>
#include <spar/collective/split.hpp>
#include <spar/core/buffer.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/merge.hpp>
#include <spar/transport/channel.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// Each owner reduces its block of the dimension from direct messages; then the blocks are gathered everywhere, as
/// `Storage` says: `storage::sparse`, `storage::dense`, `storage::adaptive`, or any block_codec.
///
/// With k entries on each rank the first phase sends at most k entries a rank. The second sends (P - 1) / P of the
/// result: between k (P - 1) / P and k (P - 1) entries if it stays sparse, n (P - 1) / P values if not. Rounds: P - 1
/// messages at once, then ceil(log2 P); `adaptive` counts the entries of all blocks between, in ceil(log2 P) rounds
/// more.
template <class Storage>
struct split_allgather {
  static constexpr std::string_view name = Storage::name;

  Storage storage{};

  /// Of the storage's options, where it has any.
  [[nodiscard]] std::uint64_t agreed() const
    requires requires(const Storage& s) { s.agreed(); }
  {
    return storage.agreed();
  }
  /// Throws `invalid_argument` for a bad option of the storage.
  template <element T, index_type Index, class Op>
  void validate(const stream_view<T, Index>&, const Op&) const {
    if constexpr (block_codec<Storage, T>) (void)storage.template encoded_bytes<T>(1);
  }

  template <transport Net, element T, index_type Index, reduction<T> Op>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const&
    requires(std::same_as<Storage, storage::sparse> || std::same_as<Storage, storage::adaptive>)
  {
    const split_reduce_scatter reduce_scatter;
    const bruck_allgather allgather;
    const stream<T, Index> block = co_await reduce_scatter(net, mine, op);
    if constexpr (std::same_as<Storage, storage::adaptive>) {
      const std::uint64_t entries = co_await count_entries(net, block.count());
      if (entries > dense_threshold<T, Index>(mine.dimension())) {
        const index_range own = uniform_ownership{mine.dimension(), net.size()}[net.rank()];
        auto sum = stream<T, Index>::dense(net.memory(), mine.dimension(), 0, mine.dimension());
        const auto part = block.view();
        reduce_dense(std::span(&part, 1), own, sum.values().data() + own.begin, op);
        co_await allgather(net, sum.values());
        co_return sum;
      }
    }
    gathered<T, Index> blocks(block.view(), static_cast<std::size_t>(net.size()), net.memory());
    co_await allgather.streams(net, blocks, true);
    auto sum = std::move(blocks).joined();
    if (sum.count() > dense_threshold<T, Index>(sum.dimension())) sum = to_dense(sum.view(), op, net.memory());
    co_return sum;
  }

  /// `residual`, where there is one, gets what a lossy storage loses of this rank's block of the sum.
  template <transport Net, element T, index_type Index, reduction<T> Op>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op,
                                    std::span<T> residual = {}) const&
    requires(std::same_as<Storage, storage::dense> || block_codec<Storage, T>)
  {
    const uniform_ownership owner{mine.dimension(), net.size()};
    auto sum = stream<T, Index>::dense(net.memory(), mine.dimension(), 0, mine.dimension());
    const std::span<T> values = sum.values();
    co_await split(net, mine, owner, op, values.data() + owner.begin(net.rank()));
    if constexpr (std::same_as<Storage, storage::dense>) {
      const bruck_allgather allgather;
      co_await allgather(net, values);
    } else {
      co_await gather_encoded(net, values, residual, owner);
    }
    co_return sum;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// The entries of all ranks' blocks together.
  template <transport Net>
  static task<std::uint64_t> count_entries(channel<Net> net, std::uint64_t mine) {
    buffer<std::uint64_t> counts(net.memory(), static_cast<std::size_t>(net.size()));
    counts.span()[static_cast<std::size_t>(net.rank())] = mine;
    const bruck_allgather allgather;
    co_await allgather(net.template with_element<std::uint64_t>(), counts.span());
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts.span()) sum += count;
    co_return sum;
  }

  template <transport Net, element T>
  task<void> gather_encoded(channel<Net> net, std::span<T> values, std::span<T> residual,
                            uniform_ownership owner) const& {
    const auto bytes_of = [&](std::uint64_t values_in_it) { return storage.template encoded_bytes<T>(values_in_it); };
    const block_sizes sizes(owner, bytes_of);
    buffer<std::byte> bytes(net.memory(), sizes.begin(net.size()));
    const auto encoded = [&](rank_t r) {
      return bytes.span().subspan(sizes.begin(r), sizes.begin(r + 1) - sizes.begin(r));
    };
    const auto block = [&](rank_t r) { return values.subspan(owner[r].begin, owner[r].size()); };
    const index_range own = owner[net.rank()];
    const block_coder coder(net, storage);
    coder.encode(std::span<const T>(block(net.rank())), own.begin, encoded(net.rank()));
    buffer<T> exact(net.memory(), residual.empty() ? 0 : own.size());
    kernel::detail::copy(exact.data(), values.data() + own.begin, exact.size());
    const bruck_allgather allgather;
    co_await allgather.blocks(net, bytes.span(), sizes, wire_format::encoded);
    for (rank_t r = 0; r < net.size(); ++r) {
      coder.decode(std::span<const std::byte>(encoded(r)), block(r)); // the own as well: all go on with the same
    }
    kernel::add_difference(residual.data() + (residual.empty() ? 0 : own.begin), std::as_const(exact).data(),
                           values.data() + own.begin, exact.size());
  }
};

/// Static sparse allreduce: the result stays below delta.
using ssar_split = split_allgather<storage::sparse>;
/// Dynamic sparse allreduce: the result is dense.
using dsar_split = split_allgather<storage::dense>;

} // namespace spar
