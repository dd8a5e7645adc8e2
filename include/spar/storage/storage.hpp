// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage of a collective: how its messages encode sparse streams and blocks of dense values.
#pragma once

#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/stream_codec.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

namespace spar {

namespace storage {

/// Encodes sparse streams by one codec, and sums that have turned dense by another.
template <class StreamCodec, class BlockCodec>
struct then {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "then";

  [[no_unique_address]] StreamCodec streams{};
  [[no_unique_address]] BlockCodec blocks{};

  template <class F>
  void options(F&& f) const {
    f("streams", streams), f("blocks", blocks);
  }
};

} // namespace storage

/// Whether a storage has a stream codec. Checked for float and double only, because every codec supports one of these.
template <class Storage>
concept has_stream_codec =
    stream_codec<Storage, float, std::uint32_t> || stream_codec<Storage, double, std::uint32_t> ||
    requires(const Storage& store) { store.streams; };
/// Whether a storage has a block codec.
template <class Storage>
concept has_block_codec =
    block_codec<Storage, float> || block_codec<Storage, double> || requires(const Storage& store) { store.blocks; };

namespace storage {

/// The codec for sparse streams: `coo` if the storage is only a block codec.
template <class Storage>
[[nodiscard]] constexpr auto streams_of(const Storage& store) {
  if constexpr (requires { store.streams; })
    return store.streams;
  else if constexpr (has_stream_codec<Storage>)
    return store;
  else
    return coo{};
}
/// The codec for blocks of dense values: `dense` if the storage is only a stream codec.
template <class Storage>
[[nodiscard]] constexpr auto blocks_of(const Storage& store) {
  if constexpr (requires { store.blocks; })
    return store.blocks;
  else if constexpr (has_block_codec<Storage>)
    return store;
  else
    return dense{};
}

/// The codec for the slices of the ranks' contributions: the stream codec, or the block codec if there is no stream
/// codec.
template <class Storage>
[[nodiscard]] constexpr auto slices_of(const Storage& store) {
  if constexpr (has_stream_codec<Storage>)
    return streams_of(store);
  else
    return store;
}
template <class Storage>
using slices_type = decltype(slices_of(std::declval<const Storage&>()));

template <class Storage>
using streams_type = decltype(streams_of(std::declval<const Storage&>()));
template <class Storage>
using blocks_type = decltype(blocks_of(std::declval<const Storage&>()));

/// Whether blocks of dense values are sent uncompressed.
template <class Storage>
inline constexpr bool plain_blocks = std::same_as<blocks_type<Storage>, dense>;
/// Whether received values have the same bits as the sent ones.
template <class Storage>
inline constexpr bool is_exact = streams_type<Storage>::exact && plain_blocks<Storage>;
/// Whether sparse and dense streams are sent from the memory of the stream, and read in the buffer in which they are
/// received.
template <class Storage, class T, class Index>
inline constexpr bool copies_nothing = lending_codec<streams_type<Storage>, T, Index> && plain_blocks<Storage>;

/// Throws `invalid_argument` for invalid options of the block codec.
template <element T, class Storage>
void validate(const Storage& store) {
  if constexpr (!plain_blocks<Storage> && block_codec<blocks_type<Storage>, T>)
    (void)blocks_of(store).template encoded_bytes<T>(1);
}

/// The number of entries above which a sum over n indices turns dense.
template <element T, index_type Index, class Storage>
[[nodiscard]] constexpr std::uint64_t delta(const Storage& store, std::uint64_t n) {
  return streams_of(store).template delta<T, Index>(n);
}

} // namespace storage

/// The storage of messages with values of T and indices of Index: a stream codec, a block codec, or
/// `storage::then{streams, blocks}`. The concept rejects a codec that does not support T, such as a codec that rounds
/// for an integer T.
template <class Storage, class T, class Index>
concept storage_policy =
    std::copyable<Storage> && (has_stream_codec<Storage> || has_block_codec<Storage>) &&
    stream_codec<storage::streams_type<Storage>, T, Index> && block_codec<storage::blocks_type<Storage>, T>;

namespace detail {

/// The reason why a schedule that sends entries and never dense values rejects a storage, if there is one.
template <class Storage>
auto accepts_entries_alone() {
  if constexpr (!has_stream_codec<Storage>)
    return because<"this schedule sends entries and never dense values: use a stream codec such as storage::coo">();
  else if constexpr (!storage::plain_blocks<Storage>)
    return because<"this schedule never sends dense values, so the block codec has nothing to encode">();
  else
    return nothing_against();
}

} // namespace detail

} // namespace spar
