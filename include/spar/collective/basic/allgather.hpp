// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bruck's allgather, which gathers blocks of known sizes, or sparse streams, in ceil(log2 P) rounds for any number of
// ranks (Bruck et al. 1997; SparCML, section 5.3).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The byte offsets of the blocks of a uniform ownership. The numbers of values of these blocks differ by at most one,
/// so this class stores two block sizes in bytes instead of a list of offsets.
class block_sizes {
 public:
  /// The blocks of `owner`; `bytes_of(m)` returns the number of bytes of a block of m values.
  template <class BytesOf>
  block_sizes(const uniform_ownership& owner, BytesOf bytes_of)
      : owner_(owner), larger_ones_(owner.n % static_cast<std::uint64_t>(owner.blocks)),
        larger_(bytes_of(owner[0].size())), smaller_(bytes_of(owner[owner.blocks - 1].size())) {}
  /// The byte offset at which `block` begins. If `block` is the number of blocks, this is the offset at which the last
  /// block ends.
  [[nodiscard]] std::size_t begin(rank_t block) const noexcept {
    const auto b = static_cast<std::uint64_t>(block);
    return b * smaller_ + std::min(b, larger_ones_) * (larger_ - smaller_);
  }
  /// The number of values in `count` consecutive blocks that start with block `first`; block 0 follows the last block.
  [[nodiscard]] std::uint64_t values(rank_t first, rank_t count) const noexcept {
    const rank_t beyond = std::max(0, first + count - owner_.blocks);
    return owner_.range(first, first + count - beyond).size() + owner_.range(0, beyond).size();
  }

 private:
  uniform_ownership owner_;
  std::uint64_t larger_ones_;
  std::size_t larger_;
  std::size_t smaller_;
};

namespace detail {

/// Returns one of the two contiguous parts of `count` consecutive blocks that start with block `first`, where block 0
/// follows the last block. If `wrapped` is false, returns the part before the end of `all`, otherwise the part,
/// possibly empty, that continues at the beginning of `all`. Block b begins at `bounds.begin(b)`.
template <class T, class Bounds>
std::span<T> adjacent_blocks(std::span<T> all, const Bounds& bounds, rank_t blocks, rank_t first, rank_t count,
                             bool wrapped) {
  const rank_t from = wrapped ? 0 : first;
  const rank_t to = wrapped ? std::max(0, first + count - blocks) : std::min(first + count, blocks);
  return all.subspan(bounds.begin(from), bounds.begin(to) - bounds.begin(from));
}

} // namespace detail

/// Bruck's allgather. In round t, rank r sends the contributions of up to 2^t ranks, namely r, r + 1 and so on (modulo
/// P), to rank r - 2^t, and receives the same number of contributions from rank r + 2^t. Every contribution is sent
/// P - 1 times in total, the minimum for an allgather.
struct bruck_allgather : algorithm_defaults {
  static constexpr std::string_view name = "bruck_allgather";

  /// Gathers dense values in place: rank r contributes block r of `x` (see uniform_ownership), and every rank gets all
  /// blocks.
  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x) const& {
    const block_sizes sizes{{x.size(), net.size()}, [](std::uint64_t values) { return values * sizeof(T); }};
    return blocks(net, std::as_writable_bytes(x), sizes, wire_format::dense);
  }

  /// Gathers blocks of `bytes`, whose headers name `format`, in place: rank r contributes block r, which begins at byte
  /// `sizes.begin(r)`, and every rank gets all blocks.
  template <transport Net>
  task<void> blocks(channel<Net> net, std::span<std::byte> bytes, block_sizes sizes, wire_format format) const& {
    const rank_t p = net.size();
    const auto piece = [&](rank_t first, rank_t count, bool wrapped) {
      return detail::adjacent_blocks(bytes, sizes, p, first, count, wrapped);
    };
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const rank_t count = std::min(distance, p - distance);
      const rank_t source = (net.rank() + distance) % p;
      const rank_t destination = (net.rank() + p - distance) % p;
      const payload out{
          format, sizes.values(net.rank(), count), {piece(net.rank(), count, false), piece(net.rank(), count, true)}};
      auto sending = net.send(destination, out);
      message_buffer in(net.work().memory());
      in.place(0, piece(source, count, false));
      in.place(1, piece(source, count, true));
      co_await net.receive(source, in);
      co_await sending;
    }
  }

  /// Returns the streams of all ranks on every rank, without merging them. If `owned` is true, the indices of rank r
  /// must lie in block r (see uniform_ownership). Adds the rounding errors of the encoding of this rank's stream to
  /// `residual`, unless `residual` is empty. Rejects an `owned` that is no bool, such as the rank of a root.
  template <transport Net, element T, index_type Index, class Storage = storage::coo, std::same_as<bool> Owned = bool>
    requires storage_policy<Storage, T, Index>
  task<gathered<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Owned owned = false,
                                      Storage store = {}, residual_view<T> residual = {}) const& {
    gathered<T, Index> parts(mine, static_cast<std::size_t>(net.size()), net.work());
    co_await streams(net, parts, owned, storage::streams_of(store), residual);
    co_return parts;
  }

  /// Gathers streams in place, for a lending codec: at first, `have` contains only this rank's stream, and at the end,
  /// the streams of all ranks. If `owned` is true, the indices of rank r's stream must be in block r of
  /// `uniform_ownership{n, P}`. On a device, the indices are checked at the end, and only if `owned` is true; otherwise
  /// the caller must check them. The caller must await the task at once, because the task refers to `have`.
  template <transport Net, element T, index_type Index, class Codec = storage::coo>
    requires lending_codec<Codec, T, Index>
  task<void> streams(channel<Net> net, gathered<T, Index>& have, bool owned, Codec = {}, residual_view<T> = {}) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{have.dimension(), p};
    constexpr bool checks_later = workspace_of<Net>::checks_later;
    const auto range_of = [&](rank_t r) { return owned ? owner[r] : index_range{0, have.dimension()}; };
    // The streams are stored in order of arrival: the stream of this rank, then the streams of all higher ranks, then
    // the streams of ranks 0, 1 and so on. The last round moves the stream of rank 0 to the front.
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
      const rank_t source = (net.rank() + distance) % p;
      auto sending = net.send((net.rank() + p - distance) % p, have.encode_first(count, net.work()));
      message_buffer in(net.work().memory());
      co_await net.receive(source, in);
      buffer<std::uint64_t> list;
      const std::span<const std::uint64_t> ends = co_await net.work().read_list(in.piece<std::uint64_t>(0), list);
      have.check_ends(in, ends, count);
      if constexpr (!checks_later) {
        const auto of_part = [&](std::size_t part) { return range_of((source + static_cast<rank_t>(part)) % p); };
        co_await net.work().check_parts(in.piece<Index>(1), ends, of_part);
      }
      const bool last = distance >= p - distance;
      const rank_t first = last ? (p - net.rank()) % p : 0; // the position of the stream of rank 0
      auto next = have.joined(in, ends, net.work(), static_cast<std::size_t>(first));
      in.release();
      co_await sending;
      have = std::move(next);
    }
    if constexpr (checks_later) {
      const auto of_part = [&](std::size_t part) { return range_of(static_cast<rank_t>(part)); };
      if (owned && p > 1) co_await net.work().check_parts(std::as_const(have).indices(), have.ends(), of_part);
    }
    // Copying and checking a gathered entry takes half as long as merging an entry.
    net.compute(have.count() / 2);
  }
  /// Gathers streams in place, for a codec that is not lending: at first, `have` contains only this rank's stream, and
  /// at the end, the streams of all ranks. Each rank encodes its stream once, and decodes all streams at the end, when
  /// all sizes are known. If `owned` is true, the indices of rank r's stream must be in block r of
  /// `uniform_ownership{n, P}`. Adds the rounding errors of the encoding of this rank's stream to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, index_type Index, class Codec>
    requires(!lending_codec<Codec, T, Index>)
  task<void> streams(channel<Net> net, gathered<T, Index>& have, bool owned, Codec codec,
                     residual_view<T> residual = {}) const& {
    const rank_t p = net.size();
    if (p == 1) co_return;
    const uniform_ownership owner{have.dimension(), p};
    const auto range = [&](rank_t r) { return owned ? owner[r] : index_range{0, have.dimension()}; };
    const auto rank = static_cast<std::size_t>(net.rank());
    encoded_parts<Net, Codec, T, Index> parts(net, static_cast<std::size_t>(p), 1);
    co_await parts.encode(codec, rank, have.part(0), range(net.rank()), residual);
    co_await gather(net, parts);
    const auto entries = [&](std::size_t r) { return parts.sparse_entries(r, range(static_cast<rank_t>(r))); };
    gathered<T, Index> all(have.dimension(), static_cast<std::size_t>(p), entries, net.work());
    for (std::size_t r = 0; r < all.size(); ++r) {
      // Also decodes this rank's own stream, because the codec may have rounded its values.
      co_await parts.decode(codec, r, range(static_cast<rank_t>(r)), all.room(r));
    }
    have = std::move(all);
    net.compute(have.count() / 2);
  }

  /// Gathers the encoded streams of all ranks in `parts`, which at first contains only this rank's.
  template <transport Net, class Storage, element T, index_type Index>
  static task<void> gather(channel<Net> net, encoded_parts<Net, Storage, T, Index>& parts) {
    const rank_t p = net.size();
    const auto rank = static_cast<std::size_t>(net.rank());
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
      const rank_t source = (net.rank() + distance) % p;
      auto sending = net.send((net.rank() + p - distance) % p, parts.message(rank, count));
      message_buffer in(net.work().memory());
      co_await net.receive(source, in);
      buffer<std::uint64_t> sizes;
      co_await parts.take(in, static_cast<std::size_t>(source), count, sizes);
      in.release();
      co_await sending;
      parts.release_messages();
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
