// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stream codecs, which encode the entries of sparse streams in messages: the concept `stream_codec`, and the codec
// `coo`, which sends coordinates (SparCML, section 5.1).
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/wire.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// The output arrays of a stream codec's `decode`. The length of both arrays is the number of entries according to the
/// header of the message.
template <element T, index_type Index>
struct entry_room {
  std::span<Index> indices; ///< where the indices are written
  std::span<T> values;      ///< where the values are written
};

/// The number of bytes that a stream codec has written, of indices and of values. A codec that returns this size from
/// `encode` has its indices and values counted apart in the statistics of a call.
struct coded_size {
  std::size_t indices = 0; ///< bytes of the indices
  std::size_t values = 0;  ///< bytes of the values
  /// The bytes of both.
  constexpr operator std::size_t() const noexcept { return indices + values; }
};

namespace detail {
template <class Size>
concept encoded_size = std::same_as<Size, std::size_t> || std::same_as<Size, coded_size>;
} // namespace detail

/// An encoding of the entries of sparse streams in a variable number of bytes. Sender and receiver both know the index
/// range of the entries, so a codec may encode each index relative to `range.begin`. Rejects a codec whose functions
/// are not const, because a codec must not keep state between messages.
///
/// - `bound<T, Index>(range, count)` returns an upper bound on the number of bytes that `encode` needs for any `count`
///   entries in `range`.
///   If the bound of an entry exceeds a dense value, a call whose sums stay sparse may need more memory than a call
///   with more entries whose sums turn dense.
/// - `encode(entries, range, bytes)` writes the encoded entries to `bytes`, which has room for `bound` bytes, and
///   returns the number of bytes written, a `std::size_t` or a `coded_size`.
/// - `decode(bytes, range, to)` fills `to` with strictly ascending indices inside `range` and their values, or throws
///   `corrupt_message`. `bytes` may have any alignment, and contains what `encode` wrote, unless the message was
///   damaged. Even then, `to.indices.size() <= range.size()` holds. `decode` must never read beyond `bytes`.
/// - `exact` is false if the codec may round values; a codec must not change indices. If `exact` is false, every rank,
///   including the sender, continues with the decoded values. NaN and infinities must be decoded as NaN or infinities.
/// - `entry_bits<T, Index>(n, count)` returns the number of bits per entry if `count` entries are spread over n
///   indices, for the cost model.
/// - `delta<T, Index>(n)` returns the number of entries above which n plain values take fewer bytes than the entries.
///   All ranks need the same result, so `delta` must use integer arithmetic only.
/// - `options(f)` calls `f("name", value)` for each option that must be equal on all ranks (see `policy`).
///
/// A codec may also have `cost<T>(network)`, of no other form: the seconds to encode an entry, and also to decode it,
/// by the network_model `network`. `cheapest` then sends coordinates instead, if the model expects them to be at least
/// as fast. An entry of T = row<V, W> has W values.
template <class Codec, class T, class Index>
concept stream_codec =
    part_for<Codec, slot::storage> &&
    requires(const Codec& codec, std::uint64_t n, coo_span<T, Index> entries, index_range range,
             std::span<std::byte> bytes, std::span<const std::byte> received, entry_room<T, Index> to) {
      { Codec::exact } -> std::convertible_to<bool>;
      { codec.template entry_bits<T, Index>(n, n) } -> std::same_as<double>;
      { codec.template delta<T, Index>(n) } -> std::same_as<std::uint64_t>;
      { codec.template bound<T, Index>(range, std::size_t{}) } -> std::same_as<std::size_t>;
      { codec.encode(entries, range, bytes) } -> detail::encoded_size;
      { codec.decode(received, range, to) } -> std::same_as<void>;
    };

/// A stream codec that can also work without copying. `lend(entries)` returns a message that refers to the memory of
/// the stream. `borrow<T, Index>(message, range)` returns a view of the entries in a received message. The caller
/// checks their indices.
template <class Codec, class T, class Index>
concept lending_codec =
    stream_codec<Codec, T, Index> && Codec::exact &&
    requires(const Codec& codec, coo_span<T, Index> entries, const message_buffer& in, index_range range) {
      { codec.lend(entries) } -> std::same_as<payload>;
      { codec.template borrow<T, Index>(in, range) } -> std::same_as<stream_view<T, Index>>;
    };

namespace storage {

/// Coordinates: a message contains the array of indices and the array of values, as they are in memory. Messages refer
/// to the memory of the stream; spar copies entries only if several streams share a message.
struct coo {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "coo";
  static constexpr bool exact = true; ///< entries keep all their bits

  static void options(auto&&) noexcept {}
  template <element T, index_type Index>
  [[nodiscard]] static constexpr double entry_bits(std::uint64_t, std::uint64_t) noexcept {
    return 8 * (sizeof(T) + sizeof(Index));
  }
  /// The number of entries above which n plain values take fewer bytes.
  template <element T, index_type Index>
  [[nodiscard]] static constexpr std::uint64_t delta(std::uint64_t n) noexcept {
    return dense_threshold<T, Index>(n);
  }

  /// A message that refers to the memory of `entries`.
  template <element T, index_type Index>
  [[nodiscard]] static payload lend(coo_span<T, Index> entries) noexcept {
    return {wire_format::sparse, entries.size(), {std::as_bytes(entries.indices), std::as_bytes(entries.values)}};
  }
  /// Returns a view of the entries in the message `in`, whose indices should lie in `range` and are not checked. Throws
  /// `corrupt_message` if the message is malformed.
  template <element T, index_type Index>
  [[nodiscard]] static stream_view<T, Index> borrow(const message_buffer& in, index_range range) {
    return spar::decode_unchecked<T, Index>(in, range);
  }

  /// The number of bytes of `count` entries.
  template <element T, index_type Index>
  [[nodiscard]] static constexpr std::size_t bound(index_range, std::size_t count) noexcept {
    return count * (sizeof(T) + sizeof(Index));
  }
  /// Copies `entries` to `out`, and returns the number of bytes written.
  template <element T, index_type Index>
  static std::size_t encode(coo_span<T, Index> entries, index_range, std::span<std::byte> out) noexcept {
    const auto indices = std::as_bytes(entries.indices), values = std::as_bytes(entries.values);
    if (entries.empty()) return 0;
    std::memcpy(out.data(), indices.data(), indices.size());
    std::memcpy(out.data() + indices.size(), values.data(), values.size());
    return indices.size() + values.size();
  }
  /// Copies the entries in the bytes `in` to `to`. Throws `corrupt_message` if the number of bytes is wrong, or if the
  /// indices do not ascend within `range`.
  template <element T, index_type Index>
  static void decode(std::span<const std::byte> in, index_range range, entry_room<T, Index> to) {
    check_size(in, to);
    if (in.empty()) return;
    std::memcpy(to.indices.data(), in.data(), to.indices.size_bytes());
    std::memcpy(to.values.data(), in.data() + to.indices.size_bytes(), to.values.size_bytes());
    check_indices(std::span<const Index>(to.indices), range);
  }
  /// Throws `corrupt_message` unless `in` has the number of bytes that the entries of `to` need.
  template <element T, index_type Index>
  static void check_size(std::span<const std::byte> in, entry_room<T, Index> to) {
    const std::size_t expected = to.indices.size_bytes() + to.values.size_bytes();
    if (in.size() == expected) return;
    raise<corrupt_message>(
        {"a received stream of ", to.indices.size(), " entries has ", in.size(), " bytes; expected ", expected});
  }
};

} // namespace storage
} // namespace spar::inline v0_1
