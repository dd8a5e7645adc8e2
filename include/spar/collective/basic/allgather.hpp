// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allgather in ceil(log2 P) rounds for any number of ranks: of blocks of known sizes and of sparse streams (Bruck et
// al. 1997; SparCML, section 5.3).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// The byte offsets of blocks whose numbers of values are those of a uniform ownership, which has blocks of two sizes.
class block_sizes {
 public:
  /// `bytes_of(values)` returns the bytes of a block with `values` values.
  template <class BytesOf>
  block_sizes(const uniform_ownership& owner, BytesOf bytes_of)
      : owner_(owner), larger_ones_(owner.n % static_cast<std::uint64_t>(owner.blocks)),
        larger_(bytes_of(owner[0].size())), smaller_(bytes_of(owner[owner.blocks - 1].size())) {}
  /// The offset of the first byte of a block.
  [[nodiscard]] std::size_t begin(rank_t block) const noexcept {
    const auto b = static_cast<std::uint64_t>(block);
    return b * smaller_ + std::min(b, larger_ones_) * (larger_ - smaller_);
  }
  /// The number of values in `count` blocks from `first` on, which may wrap around after the last block.
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

/// The blocks [first, first + count) of `all`, which may wrap around after the last block: without `wrapped` the part
/// before the end of `all`, with `wrapped` the part that continues at the beginning of `all`. Block b begins at
/// `bounds.begin(b)`.
template <class T, class Bounds>
std::span<T> adjacent_blocks(std::span<T> all, const Bounds& bounds, rank_t blocks, rank_t first, rank_t count,
                             bool wrapped) {
  const rank_t from = wrapped ? 0 : first;
  const rank_t to = wrapped ? std::max(0, first + count - blocks) : std::min(first + count, blocks);
  return all.subspan(bounds.begin(from), bounds.begin(to) - bounds.begin(from));
}

} // namespace detail

/// In round t rank r receives up to 2^t parts, those of the ranks from r + 2^t on, and sends as many to rank r - 2^t.
/// Every part is sent P - 1 times in all, which is the least possible volume.
struct bruck_allgather : algorithm_defaults {
  static constexpr std::string_view name = "bruck_allgather";

  /// In place: rank r contributes block r of `x` (see uniform_ownership).
  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x) const& {
    const block_sizes sizes{{x.size(), net.size()}, [](std::uint64_t values) { return values * sizeof(T); }};
    return blocks(net, std::as_writable_bytes(x), sizes, wire_format::dense);
  }

  /// In place, for blocks of bytes: rank r contributes block r.
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
      message_buffer in(net.memory());
      in.place(0, piece(source, count, false));
      in.place(1, piece(source, count, true));
      co_await net.receive(source, in);
      co_await sending;
    }
  }

  /// Returns every rank's stream on every rank. If `owned` is true, the stream of rank r must lie in block r of the
  /// dimension. Adds the rounding errors of the encoding of this rank's stream to `residual`, unless `residual` is
  /// empty.
  template <transport Net, element T, index_type Index, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<gathered<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, bool owned = false,
                                      Storage store = {}, std::span<T> residual = {}) const& {
    gathered<T, Index> parts(mine, static_cast<std::size_t>(net.size()), net.memory());
    co_await streams(net, parts, owned, storage::streams_of(store), residual);
    co_return parts;
  }

  /// Gathers streams in place: `have` contains this rank's stream at first, and all ranks' streams at the end. Await
  /// the task at once.
  template <transport Net, element T, index_type Index, class Codec = storage::coo>
    requires lending_codec<Codec, T, Index>
  task<void> streams(channel<Net> net, gathered<T, Index>& have, bool owned, Codec = {}, std::span<T> = {}) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{have.dimension(), p};
    // Parts are stored in order of arrival: this rank's part, those of the ranks above it, then those from rank 0 on.
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
      const rank_t source = (net.rank() + distance) % p;
      auto sending = net.send((net.rank() + p - distance) % p, have.encode_first(count));
      message_buffer in(net.memory());
      co_await net.receive(source, in);
      const auto check = [&](std::size_t part, std::span<const Index> indices) {
        const auto r = static_cast<rank_t>((static_cast<std::size_t>(source) + part) % static_cast<std::size_t>(p));
        check_indices(indices, owned ? owner[r] : index_range{0, have.dimension()});
      };
      auto next = have.joined(in, count, check, net.memory());
      in.release();
      co_await sending;
      have = std::move(next);
    }
    have.rotate(static_cast<std::size_t>(p - net.rank()) % static_cast<std::size_t>(p), net.memory());
    net.compute(have.count() /
                2); // in every round an entry is copied and checked, which costs half as much as merging it
  }
  /// Like the overload above, for encoded streams, which are decoded at the end, when all sizes are known.
  template <transport Net, element T, index_type Index, class Codec>
    requires(!lending_codec<Codec, T, Index>)
  task<void> streams(channel<Net> net, gathered<T, Index>& have, bool owned, Codec codec,
                     std::span<T> residual = {}) const& {
    const rank_t p = net.size();
    if (p == 1) co_return;
    const uniform_ownership owner{have.dimension(), p};
    const auto range = [&](rank_t r) { return owned ? owner[r] : index_range{0, have.dimension()}; };
    const auto rank = static_cast<std::size_t>(net.rank());
    encoded_parts<Codec, T, Index> parts(net.memory(), static_cast<std::size_t>(p), 1);
    parts.encode(net, codec, rank, have.part(0), range(net.rank()), residual);
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
      const rank_t source = (net.rank() + distance) % p;
      auto sending = net.send((net.rank() + p - distance) % p, parts.message(rank, count));
      message_buffer in(net.memory());
      co_await net.receive(source, in);
      parts.take(in, static_cast<std::size_t>(source), count);
      in.release();
      co_await sending;
      parts.release_messages();
    }
    const auto entries = [&](std::size_t r) { return parts.sparse_entries(r, range(static_cast<rank_t>(r))); };
    gathered<T, Index> all(have.dimension(), static_cast<std::size_t>(p), entries, net.memory());
    for (std::size_t r = 0; r < all.size(); ++r) {
      parts.decode(net, codec, r, range(static_cast<rank_t>(r)),
                   all.room(r)); // this rank's own stream too, as it may be rounded
    }
    have = std::move(all);
    net.compute(have.count() / 2);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
