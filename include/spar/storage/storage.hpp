// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Storages: how the messages of a collective encode sparse streams and blocks of dense values.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/core/policy/optional_members.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/stream_codec.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace storage {

/// A storage of two codecs: `streams` encodes sparse streams, and `blocks` encodes dense values, such as sums that have
/// turned dense.
template <class StreamCodec, class BlockCodec>
struct then {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "then";
  static_assert(stream_codec<StreamCodec, float, std::uint32_t> || stream_codec<StreamCodec, double, std::uint32_t>,
                "the first argument of storage::then<StreamCodec, BlockCodec> is not a stream codec: every codec has a "
                "name and a const member template options(f); a stream codec also has exact, entry_bits, delta, bound, "
                "encode and decode");
  static_assert(block_codec<BlockCodec, float> || block_codec<BlockCodec, double>,
                "the second argument of storage::then<StreamCodec, BlockCodec> is not a block codec: every codec has a "
                "name and a const member template options(f); a block codec also has encoded_bytes, encode and decode");

  [[no_unique_address]] StreamCodec streams{}; ///< the codec of sparse streams
  [[no_unique_address]] BlockCodec blocks{};   ///< the codec of dense blocks

  void options(auto&& f) const { f("streams", streams), f("blocks", blocks); }
};

} // namespace storage

/// Whether a storage is a stream codec or contains a stream codec. Tests only float and double as value types, because
/// every codec supports at least one of these two types.
template <class Storage>
concept has_stream_codec =
    stream_codec<Storage, float, std::uint32_t> || stream_codec<Storage, double, std::uint32_t> ||
    requires(const Storage& store) { store.streams; };
/// Whether a storage is a block codec, of floating-point numbers or of integers, or contains a block codec.
template <class Storage>
concept has_block_codec = block_codec<Storage, float> || block_codec<Storage, double> ||
                          block_codec<Storage, std::int32_t> || requires(const Storage& store) { store.blocks; };

namespace detail {

/// Whether the pieces that a `Codec` encodes must begin at multiples of its grain, and be forwarded as they are
/// encoded.
template <class Codec>
concept encodes_whole_pieces =
    requires(const Codec& codec) { codec.grain(); } ||
    (!keeps_all_bits<Codec> &&
     (varies_in_size<Codec, float> || varies_in_size<Codec, double> || varies_in_size<Codec, std::int32_t>));

} // namespace detail

/// A storage that makes integers of a rank's dense values at the start of a call; the schedule sums these integers,
/// which the block codec `codes_type` encodes (see storage::bound). Rejects codecs that encode sums on their way.
template <class Storage>
concept sums_in_code = requires { typename Storage::codes_type; };

namespace storage {

/// Returns the stream codec of the storage `store`, or `coo` if the storage has only a block codec.
template <class Storage>
[[nodiscard]] constexpr auto streams_of(const Storage& store) {
  if constexpr (requires { store.streams; })
    return store.streams;
  else if constexpr (has_stream_codec<Storage>)
    return store;
  else
    return coo{};
}
/// Returns the block codec of the storage `store`, or `dense` if the storage has only a stream codec.
template <class Storage>
[[nodiscard]] constexpr auto blocks_of(const Storage& store) {
  if constexpr (requires { store.blocks; })
    return store.blocks;
  else if constexpr (has_block_codec<Storage>)
    return store;
  else
    return dense{};
}

/// Returns the codec for the slices of contributions that ranks send to owners: the stream codec of `store`, or its
/// block codec if it has no stream codec.
template <class Storage>
[[nodiscard]] constexpr auto slices_of(const Storage& store) {
  if constexpr (has_stream_codec<Storage>)
    return streams_of(store);
  else
    return store;
}
/// The type that `slices_of` returns.
template <class Storage>
using slices_type = decltype(slices_of(std::declval<const Storage&>()));

/// Returns the storage `store` with coordinates in place of its stream codec.
template <class Storage>
[[nodiscard]] constexpr auto with_coordinates(const Storage& store) {
  if constexpr (requires { store.blocks; })
    return then<coo, decltype(store.blocks)>{{}, store.blocks};
  else
    return coo{};
}

/// The type that `streams_of` returns.
template <class Storage>
using streams_type = decltype(streams_of(std::declval<const Storage&>()));
/// The type that `blocks_of` returns.
template <class Storage>
using blocks_type = decltype(blocks_of(std::declval<const Storage&>()));

/// Whether a storage sends blocks of dense values uncompressed.
template <class Storage>
inline constexpr bool plain_blocks = std::same_as<blocks_type<Storage>, dense> && !sums_in_code<Storage>;
/// Whether a storage preserves all bits of the values, in sparse streams and in blocks of dense values.
template <class Storage>
inline constexpr bool is_exact =
    streams_type<Storage>::exact && (plain_blocks<Storage> || detail::keeps_all_bits<blocks_type<Storage>>);
/// Whether a storage needs no copies: streams are sent from their own memory, and received streams are read in the
/// receive buffer.
template <class Storage, class T, class Index>
inline constexpr bool copies_nothing = lending_codec<streams_type<Storage>, T, Index> && plain_blocks<Storage>;

/// Throws `invalid_argument` if the block codec of `store` has options that are invalid for n values, such as a QSGD
/// bucket of 0 entries.
/// Stops the compilation with a sentence if a codec has an optional member of a form that spar would never call.
template <element T, class Storage>
void validate(const Storage& store, std::uint64_t n) {
  using blocks = blocks_type<Storage>;
  using streams = streams_type<Storage>;
  if constexpr (is_floating<T> && block_codec<blocks, T>) {
    static_assert(
        (!detail::names_can_encode<blocks> ||
         requires(const blocks& codec, std::span<const T> values) {
           { codec.can_encode(values) } -> std::convertible_to<bool>;
         }) &&
            (!detail::names_relative_error<blocks> ||
             requires(const blocks& codec) {
               { codec.template relative_error<T>() } -> std::convertible_to<double>;
             }) &&
            (!detail::names_absolute_error<blocks> ||
             requires(const blocks& codec) {
               { codec.template absolute_error<T>() } -> std::convertible_to<double>;
             }) &&
            (!detail::names_cost<blocks> || detail::states_cost<blocks, T>),
        "this block codec has a member can_encode, relative_error, absolute_error or cost of a form that spar never "
        "calls: expected the const members can_encode(std::span<const T>), relative_error<T>(), absolute_error<T>() "
        "and cost<T>(network), as in spar::block_codec");
  }
  if constexpr (is_floating<T> && stream_codec<streams, T, std::uint32_t>) {
    static_assert(!detail::names_cost<streams> || detail::states_cost<streams, T>,
                  "this stream codec has a member cost of a form that spar never calls: expected the const member "
                  "cost<T>(network), as in spar::stream_codec");
  }
  if constexpr (!plain_blocks<Storage> && block_codec<blocks_type<Storage>, T>)
    (void)blocks_of(store).template encoded_bytes<T>(1);
  if constexpr (requires(const blocks& codec) { codec.validate(n); }) blocks_of(store).validate(n);
}

/// Returns delta, the number of entries above which a stream over n indices turns dense with the storage `store`
/// (SparCML, section 5.1).
template <element T, index_type Index, class Storage>
[[nodiscard]] constexpr std::uint64_t delta(const Storage& store, std::uint64_t n) {
  return streams_of(store).template delta<T, Index>(n);
}

} // namespace storage

/// A storage for messages with values of type T and indices of type Index: a stream codec, a block codec, or
/// `storage::then{streams, blocks}`. Rejects a codec that does not support T; codecs that round values, for example, do
/// not support integers.
template <class Storage, class T, class Index>
concept storage_policy =
    std::copyable<Storage> && (has_stream_codec<Storage> || has_block_codec<Storage>) &&
    stream_codec<storage::streams_type<Storage>, T, Index> && block_codec<storage::blocks_type<Storage>, T>;

namespace detail {

/// For schedules that send entries and never dense values: returns the reason for rejecting `Storage`, or
/// `nothing_against()` if `Storage` has a stream codec and does not encode dense values.
template <class Storage>
auto accepts_entries_alone() {
  if constexpr (!has_stream_codec<Storage>)
    return because<"this schedule sends entries and never dense values: use a stream codec such as coo">();
  else if constexpr (!storage::plain_blocks<Storage>)
    return because<"this schedule never sends dense values, so the block codec has nothing to encode">();
  else
    return nothing_against();
}

} // namespace detail

} // namespace spar::inline v0_1
