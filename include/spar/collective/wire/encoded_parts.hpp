// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encoded streams that the ranks of an allgather collect and forward: either streams with adjacent ranges, or one
// stream per rank. Each owner encodes its stream once, so that all ranks decode the same bytes.
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/concatenate.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// The encoded streams ("parts") that a rank collects in an allgather. The number of parts is fixed, and each part is
/// sparse or dense.
template <transport Net, class Storage, element T, index_type Index>
class encoded_parts {
  struct facts { // the size and format of one part; a message contains these two numbers of each part
    static constexpr std::size_t numbers = 2;

    std::uint64_t bytes;
    std::uint64_t count_and_format; // low 56 bits: number of entries or dense values; high 8 bits: wire_format

    [[nodiscard]] std::uint64_t count() const noexcept { return count_and_format << 8 >> 8; }
    [[nodiscard]] wire_format format() const noexcept { return static_cast<wire_format>(count_and_format >> 56); }
    [[nodiscard]] std::uint64_t plain_bytes() const noexcept {
      return count() * (format() == wire_format::entries_coded ? sizeof(T) + sizeof(Index) : sizeof(T));
    }
  };
  struct part {
    facts what{};
    buffer<std::byte> bytes;
  };
  struct message_room {
    buffer<std::uint64_t> table;
    buffer<std::uint64_t> sent_table; // see `to_message` of a workspace
    buffer<std::byte> bytes;
  };

 public:
  /// `parts` is the number of parts, and `messages` the maximum number of calls of `message` between two calls of
  /// `release_messages`.
  encoded_parts(channel<Net> net, std::size_t parts, std::size_t messages)
      : net_(net), parts_(net.memory(), parts), messages_(net.memory(), messages) {
    for (std::size_t i = 0; i < parts; ++i) parts_.emplace_back();
  }

  /// Encodes this rank's stream `v`, whose indices lie in `range`, as part i. Adds the rounding errors to `residual`,
  /// unless `residual` is empty.
  answer<Net> encode(const Storage& store, std::size_t i, const stream_view<T, Index>& v, index_range range,
                     residual_view<T> residual) {
    const auto holds = [this, i](const payload& message) {
      hold(parts_[i], message);
      room_.reset();
    };
    if constexpr (lending_codec<storage::streams_type<Storage>, T, Index>) {
      if (!v.is_dense()) // several parts share one message, so even a lending codec must copy entries
        return after(net_, detail::encode_entries(net_, storage::streams_of(store), v.entries(), range, room_), holds);
    }
    return after_answer(net_, own_(net_, store, v, range, 0),
                        [this, holds, &store, v, range, residual](const payload& message) {
                          holds(message);
                          return after(net_, own_.keep_error(net_, store, v, range, residual), [this] { own_ = {}; });
                        });
  }

  /// Returns a message of `count` consecutive parts that start with part `first`; part 0 follows the last part. The
  /// memory of the message is valid until `release_messages`.
  [[nodiscard]] payload message(std::size_t first, std::size_t count) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += at(first + i).what.bytes;
    message_room& room = messages_.emplace_back();
    room.table = buffer<std::uint64_t>(net_.memory(), facts::numbers * count);
    room.bytes = buffer<std::byte>(net_.work().memory(), bytes);
    std::uint64_t entries = 0, plain = 0;
    std::byte* to = room.bytes.data();
    for (std::size_t i = 0; i < count; ++i) {
      const part& next = at(first + i);
      room.table.data()[facts::numbers * i] = next.what.bytes;
      room.table.data()[facts::numbers * i + 1] = next.what.count_and_format;
      net_.work().copy(to, std::as_const(next.bytes).span());
      to += next.bytes.size();
      entries += next.what.count();
      plain += next.what.plain_bytes();
    }
    const auto table = std::as_bytes(net_.work().to_message(std::as_const(room).table.span(), room.sent_table));
    return {wire_format::entries_coded,
            entries,
            {std::as_const(room).bytes.span(), table},
            plain + count * sizeof(std::uint64_t)};
  }
  void release_messages() noexcept { messages_.clear(); }

  // `joined` is a coroutine of the call (see task).
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return net_.scheduler(); }
  [[nodiscard]] detail::call_error& call_error() const noexcept { return net_.call_error(); }

  /// Copies `count` consecutive parts that start with part `first` from the received message `in`; part 0 follows the
  /// last part. `room`, which must outlive the answer, is for the sizes of the parts. Throws `corrupt_message` if the
  /// message has another number of parts, or too few or too many bytes. The bytes of a part are checked only when the
  /// part is decoded.
  answer<Net> take(const message_buffer& in, std::size_t first, std::size_t count, buffer<std::uint64_t>& room) {
    return after(net_, net_.work().read_list(in.piece<std::uint64_t>(1), room),
                 [this, &in, first, count](std::span<const std::uint64_t> table) { take(in, table, first, count); });
  }

  /// Returns the number of entries of part i, as its message states. Throws `corrupt_message` if this number is greater
  /// than the number of indices in `range`, or if part i is dense.
  [[nodiscard]] std::uint64_t sparse_entries(std::size_t i, index_range range) const {
    const facts& what = parts_[i].what;
    if (what.format() != wire_format::entries_coded)
      raise<corrupt_message>({"stream ", i, " of an allgather has format ", static_cast<int>(what.format()),
                              "; expected format 5 (a coded sparse stream)"});
    detail::check_count(what.count(), range);
    return what.count();
  }
  /// Decodes part i, a sparse stream whose indices lie in `range`, into `to`, which must have room for exactly the
  /// entries of part i.
  answer<Net> decode(const Storage& store, std::size_t i, index_range range, entry_room<T, Index> to) const {
    return detail::decode_entries(net_, storage::streams_of(store), parts_[i].bytes.span(), range, to);
  }
  /// Returns the decoded part i: a stream of dimension n whose indices lie in `range`. Throws `corrupt_message` if the
  /// part is malformed.
  [[nodiscard]] answer<Net, sparse_stream<T, Index>> decode(const Storage& store, std::size_t i, std::uint64_t n,
                                                            index_range range) const {
    const part& p = parts_[i];
    return detail::decode_stream<T, Index>(net_, store, {p.what.format(), p.what.count(), {p.bytes.span()}}, n, range);
  }

  /// Decodes part i, which has all values of `range`, to `to`. Throws `corrupt_message` if the part is malformed or
  /// sparse.
  answer<Net> decode_dense(const Storage& store, std::size_t i, index_range range, std::span<T> to) const {
    return after(net_, decode(store, i, range.end, range),
                 [this, i, range, to](const sparse_stream<T, Index>& decoded) {
                   if (!decoded.is_dense()) {
                     raise<corrupt_message>({"stream ", i, " of an allgather is sparse; expected the ", range.size(),
                                             " values of a block"});
                   }
                   net_.work().copy(to.data(), decoded.values());
                 });
  }

  /// Decodes all parts, which must have adjacent ranges, and joins them into one stream of dimension n; `range_of(i)`
  /// is the range of part i. The stream is sparse if no part is dense and the parts together have at most `limit`
  /// entries. Otherwise the stream is dense, and an index without an entry gets the value `absent`.
  template <class RangeOf>
  [[nodiscard]] task<sparse_stream<T, Index>> joined(Storage store, std::uint64_t n, RangeOf range_of, T absent,
                                                     std::uint64_t limit) const {
    fixed_vector<sparse_stream<T, Index>> streams(net_.memory(), parts_.size());
    buffer<stream_view<T, Index>> views(net_.memory(), parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      streams.push_back(co_await decode(store, i, n, range_of(i)));
      views.span()[i] = std::as_const(streams)[i].view();
    }
    co_return concatenate(std::as_const(views).span(), n, {0, n}, absent, limit, net_.work());
  }

 private:
  [[nodiscard]] part& at(std::size_t i) noexcept { return parts_[i % parts_.size()]; }
  void hold(part& to, const payload& p) {
    const auto bytes = p.pieces[0];
    to.what = {bytes.size(), p.count | static_cast<std::uint64_t>(p.format) << 56};
    to.bytes = buffer<std::byte>(net_.work().memory(), bytes.size());
    net_.work().copy(to.bytes.data(), bytes);
  }
  void take(const message_buffer& in, std::span<const std::uint64_t> table, std::size_t first, std::size_t count) {
    const auto bytes = in.piece<std::byte>(0);
    if (in.head().format != wire_format::entries_coded || table.size() != facts::numbers * count) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(in.head().format), " with ",
                              table.size() / facts::numbers,
                              " streams arrived; expected format 5 (coded entries) with ", count, " streams"});
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const facts what{table[facts::numbers * i], table[facts::numbers * i + 1]};
      if (what.bytes > bytes.size() - begin) {
        raise<corrupt_message>({"stream ", i, " of a message should have ", what.bytes,
                                " bytes, but the message has only ", bytes.size() - begin, " bytes left"});
      }
      hold(at(first + i), {what.format(), what.count(), {bytes.subspan(begin, what.bytes)}});
      begin += what.bytes;
    }
    if (begin != bytes.size()) {
      raise<corrupt_message>({"a message of ", count, " encoded streams has ", bytes.size() - begin,
                              " bytes after the last stream; expected none"});
    }
  }

  channel<Net> net_;
  outgoing<Storage, T, Index> own_; // the part that is being encoded
  buffer<std::byte> room_;          // the bytes of this part, if the codec can also lend entries
  fixed_vector<part> parts_;
  fixed_vector<message_room> messages_; // the memory of messages in flight
};

} // namespace spar::inline v0_1
