// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns streams into messages, and messages into streams, by the codecs of a storage. With a storage that copies
// nothing, such as `coo`, the classes in this file encode nothing, and messages refer to the stream's own memory.
#pragma once

#include <spar/collective/wire/block_coder.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/rows.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/storage.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Returns a `step` for block_coder::encode that is different for each round and group, so that a codec with random
/// rounding draws different random numbers. Ranks that encode the same sum in a round pass the same `group`, so that
/// they get the same bytes.
constexpr std::uint64_t step_of(std::uint64_t round, rank_t group) noexcept {
  return (round + 1) << 32 | static_cast<std::uint32_t>(group);
}

namespace detail {

/// Reports the time to encode `entries` entries, or to decode them.
template <element T, transport Net, class Codec>
void compute_code(channel<Net> net, const Codec& codec, std::size_t entries) {
  double merges = 1; // that take as long as encoding or decoding an entry
  if constexpr (states_cost<Codec, T>) {
    const network_model& model = net.net().node().network();
    if (model.gamma_sparse > 0)
      merges = std::min(100.0, std::max(0.0, codec.template cost<T>(model) / model.gamma_sparse));
  }
  net.compute(static_cast<std::uint64_t>(__builtin_ceil(merges * static_cast<double>(entries))));
}

/// Encodes `entries`, whose indices lie in `range`, to `room`, which grows if it is too small. Returns a message that
/// refers to `room`.
template <transport Net, class Codec, element T, index_type Index>
answer<Net, payload> encode_entries(channel<Net> net, const Codec& codec, coo_span<T, Index> entries, index_range range,
                                    buffer<std::byte>& room) {
  const std::size_t most = codec.template bound<T, Index>(range, entries.size());
  if (room.size() < most) room = buffer<std::byte>(net.work().memory(), most);
  const double begin = net.net().now();
  return after(net, net.work().encode_entries(codec, entries, range, room.span()),
               [net, codec, entries, most, begin, &room](const auto& bytes) -> payload {
                 spar::ensure(bytes <= most, "encode() of a stream codec wrote more bytes than bound() allows");
                 compute_code<T>(net, codec, entries.size());
                 net.note_compression(net.net().now() - begin);
                 if constexpr (requires { bytes.indices; }) {
                   net.note_coded_indices(entries.size(), bytes.indices);
                   net.note_coded_values(components(entries.values).size(), bytes.values);
                 }
                 return {wire_format::entries_coded,
                         entries.size(),
                         {std::as_const(room).span().first(bytes)},
                         entries.size() * (sizeof(T) + sizeof(Index))};
               });
}

/// Throws `corrupt_message` if `range` has fewer than `count` indices. `count` comes from a message that may be
/// damaged, so decoders check it before they allocate memory for `count` entries.
inline void check_count(std::uint64_t count, index_range range) {
  if (count <= range.size()) return;
  raise<corrupt_message>({"a stream with ", count, " entries arrived for a range of ", range.size(),
                          " indices; expected at most one entry per index"});
}

/// Decodes the entries in `bytes`, whose indices must lie in `range`, to `to`.
template <transport Net, class Codec, element T, index_type Index>
answer<Net> decode_entries(channel<Net> net, const Codec& codec, std::span<const std::byte> bytes, index_range range,
                           entry_room<T, Index> to) {
  const double begin = net.net().now();
  return after(net, net.work().decode_entries(codec, bytes, range, to), [net, codec, to, begin] {
    compute_code<T>(net, codec, to.indices.size());
    net.note_decompression(net.net().now() - begin);
  });
}

/// Returns a message of the stream `v`, whose indices lie in `range`. The message refers to the memory of `v` if this
/// memory can be sent as it is (entries with a lending codec, or dense values without a block codec), otherwise to
/// `room`.
template <transport Net, class Storage, element T, index_type Index>
answer<Net, payload> encode_stream(channel<Net> net, const Storage& store, const stream_view<T, Index>& v,
                                   index_range range, std::uint64_t step, buffer<std::byte>& room) {
  if (!v.is_dense()) {
    const auto streams = storage::streams_of(store);
    if constexpr (lending_codec<storage::streams_type<Storage>, T, Index>)
      return answered(net, streams.lend(v.entries()));
    else
      return encode_entries(net, streams, v.entries(), range, room);
  }
  if constexpr (storage::plain_blocks<Storage>) {
    return answered(net, view_message(v.values()));
  } else {
    const auto blocks = storage::blocks_of(store);
    return block_coder(net, blocks).message(v.values(), v.first(), step, room);
  }
}

/// Decodes and validates the stream in the payload `received`, which is coded (by the stream codec), encoded (by the
/// block codec) or dense. The result has its own memory. Throws `corrupt_message` if the payload is malformed or does
/// not fit `range`.
template <element T, index_type Index, transport Net, class Storage>
answer<Net, sparse_stream<T, Index>> decode_stream(channel<Net> net, const Storage& store, const payload& received,
                                                   std::uint64_t n, index_range range) {
  if (received.format == wire_format::entries_coded) {
    check_count(received.count, range);
    auto out = sparse_stream<T, Index>::sparse(net.work().memory(), n, received.count);
    const entry_room<T, Index> to{out.indices(), out.values()};
    return after(net, decode_entries(net, storage::streams_of(store), received.pieces[0], range, to),
                 [out = std::move(out)]() mutable { return std::move(out); });
  }
  if (storage::plain_blocks<Storage> && received.format == wire_format::block_coded) {
    raise<corrupt_message>(
        {"an encoded block of ", received.count,
         " values arrived; expected plain values, because the storage of this rank does not encode dense values"});
  }
  const auto blocks = storage::blocks_of(store);
  const block_coder coder(net, blocks);
  const payload checked = coder.template checked<T>(received, range.size());
  auto out = sparse_stream<T, Index>::dense(net.work().memory(), n, range.begin, range.size());
  if constexpr (storage::plain_blocks<Storage>)
    net.work().copy(reinterpret_cast<std::byte*>(out.values().data()), checked.pieces[0]);
  else
    coder.decode(checked, out.values());
  return answered(net, std::move(out));
}

/// Returns a view of the entries in the received message `in`. Their indices are checked at once, unless the values are
/// in device memory and `when` is `later`.
template <element T, index_type Index, transport Net, class Codec>
answer<Net, stream_view<T, Index>> borrow(channel<Net> net, const Codec& codec, const message_buffer& in,
                                          index_range range, index_check when) {
  const stream_view<T, Index> view = codec.template borrow<T, Index>(in, range);
  if (workspace_of<Net>::checks_later && when == index_check::later) return answered(net, view);
  return after(net, net.work().check_indices(view.indices(), range), [view] { return view; });
}

/// Adds the rounding errors of an encoding, `exact` - `decoded`, to `residual` at the indices of the stream.
template <element T, index_type Index>
void add_lost(residual_view<T> residual, const stream_view<T, Index>& exact, const stream_view<T, Index>& decoded) {
  if (exact.is_dense())
    residual.add_error(exact.first(), exact.values(), decoded.values().data());
  else
    residual.add_error(exact.entries(), decoded.values().data());
}

} // namespace detail

/// Encodes one stream and keeps the encoded bytes. The stream and this object must outlive the send of the message,
/// which refers to their memory.
template <class Storage, element T, index_type Index>
class outgoing {
 public:
  /// Encodes the stream `v`, whose indices lie in `range`, and returns the message to send. `step` must differ between
  /// the messages of a rank in a call (see `step_of`).
  template <transport Net>
  answer<Net, payload> operator()(channel<Net> net, const Storage& store, const stream_view<T, Index>& v,
                                  index_range range, std::uint64_t step) {
    return after(net, detail::encode_stream(net, store, v, range, step, room_),
                 [this](const payload& message) { return message_ = message; });
  }

  /// Returns the stream that receivers decode from the message of `v`, whose indices lie in `range`. If the receivers
  /// go on with the decoded stream, this rank must use the returned stream, too, so that all ranks have the same bits.
  /// Adds the rounding errors to `residual`, unless `residual` is empty.
  template <transport Net>
  answer<Net, stream_view<T, Index>> as_decoded(channel<Net> net, const Storage& store, const stream_view<T, Index>& v,
                                                index_range range, residual_view<T> residual) {
    if constexpr (storage::is_exact<Storage>) {
      return answered(net, v);
    } else {
      const bool lossy = message_.format == wire_format::block_coded ||
                         (message_.format == wire_format::entries_coded && !storage::streams_type<Storage>::exact);
      if (!lossy) return answered(net, v);
      return after(net, detail::decode_stream<T, Index>(net, store, message_, v.dimension(), range),
                   [this, v, residual](sparse_stream<T, Index>&& decoded) {
                     decoded_ = std::move(decoded);
                     if (!residual.empty()) detail::add_lost(residual, v, std::as_const(decoded_).view());
                     return std::as_const(decoded_).view();
                   });
    }
  }
  /// Adds the rounding errors of the message of `v`, whose indices lie in `range`, to `residual`, unless `residual` is
  /// empty. A rank that does not use the stream after the send calls this function instead of `as_decoded`.
  template <transport Net>
  answer<Net> keep_error(channel<Net> net, const Storage& store, const stream_view<T, Index>& v, index_range range,
                         residual_view<T> residual) {
    if constexpr (!storage::is_exact<Storage>) {
      if (!residual.empty())
        return after(net, as_decoded(net, store, v, range, residual), [](const stream_view<T, Index>&) {});
    }
    return answered(net);
  }
  /// The message that was encoded last.
  [[nodiscard]] const payload& message() const noexcept { return message_; }

 private:
  buffer<std::byte> room_;
  payload message_;
  sparse_stream<T, Index> decoded_;
};
/// The same for a storage that copies nothing: the message refers to the memory of the stream.
template <class Storage, element T, index_type Index>
  requires storage::copies_nothing<Storage, T, Index>
class outgoing<Storage, T, Index> {
 public:
  /// Returns the message of the stream `v`.
  template <transport Net>
  [[gnu::noinline]] ready<payload> operator()(channel<Net>, const Storage& store, const stream_view<T, Index>& v,
                                              index_range, std::uint64_t) const noexcept {
    return ready<payload>(v.is_dense() ? view_message(v.values()) : storage::streams_of(store).lend(v.entries()));
  }
  /// Returns `v`, because nothing is rounded.
  template <transport Net>
  ready<stream_view<T, Index>> as_decoded(channel<Net>, const Storage&, const stream_view<T, Index>& v, index_range,
                                          residual_view<T>) const noexcept {
    return ready(v);
  }
  /// Does nothing, because nothing is rounded.
  template <transport Net>
  ready<> keep_error(channel<Net>, const Storage&, const stream_view<T, Index>&, index_range,
                     residual_view<T>) const noexcept {
    return {};
  }
};

/// Messages that may be in flight at the same time, of streams that this rank does not use after the sends.
template <class Storage, element T, index_type Index>
class outgoing_list {
  static constexpr bool copies_nothing = storage::copies_nothing<Storage, T, Index>;

 public:
  /// A list for at most `most` messages.
  outgoing_list(pool& memory, std::size_t most) : messages_(memory, copies_nothing ? 0 : most) {}

  /// Returns a message of the stream `v`, whose indices lie in `range`. `step` must differ between the messages of a
  /// rank in a call (see `step_of`). Adds the rounding errors of the encoding to `residual`, unless `residual` is
  /// empty.
  template <transport Net>
  auto add(channel<Net> net, const Storage& store, const stream_view<T, Index>& v, index_range range,
           std::uint64_t step, residual_view<T> residual) {
    if constexpr (copies_nothing) {
      return outgoing<Storage, T, Index>()(net, store, v, range, step);
    } else {
      auto& out = messages_.emplace_back();
      return after_answer(
          net, out(net, store, v, range, step), [&out, net, &store, v, range, residual](const payload& message) {
            return after(net, out.keep_error(net, store, v, range, residual), [message] { return message; });
          });
    }
  }

 private:
  fixed_vector<outgoing<Storage, T, Index>> messages_;
};

/// A received stream. An encoded stream is decoded to its own memory; any other stream is read in the memory of the
/// message.
template <class Storage, element T, index_type Index>
class incoming : public message_buffer {
 public:
  using message_buffer::message_buffer;

  /// Returns the received stream, whose indices must lie in `range`. Throws `corrupt_message` if the stream is
  /// malformed; `when` is as for `borrow`. Releases the message of an encoded stream after decoding, because the sender
  /// may wait for the release.
  template <transport Net>
  answer<Net, stream_view<T, Index>> view(channel<Net> net, const Storage& store, index_range range,
                                          index_check when = index_check::now) {
    const header& h = head();
    if (h.format == wire_format::dense) return answered(net, decode<T, Index>(*this, range));
    if constexpr (lending_codec<storage::streams_type<Storage>, T, Index>) {
      if (h.format == wire_format::sparse)
        return detail::borrow<T, Index>(net, storage::streams_of(store), *this, range, when);
    }
    if (h.format != wire_format::entries_coded && h.format != wire_format::block_coded) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(h.format),
                              " arrived; expected a format that the storage of this rank can decode: 2 (dense values), "
                              "3 (encoded block), 5 (coded entries), or 1 (plain entries) with a storage like coo"});
    }
    return after(net, detail::decode_stream<T, Index>(net, store, arrived_payload(), h.dimension, range),
                 [this](sparse_stream<T, Index>&& decoded) {
                   decoded_ = std::move(decoded);
                   release();
                   return std::as_const(decoded_).view();
                 });
  }
  /// Returns the payload of the received message, not decoded.
  [[nodiscard]] payload arrived_payload() const { return {head().format, head().count, {piece<std::byte>(0)}}; }

 private:
  sparse_stream<T, Index> decoded_;
};
/// The same for a storage that copies nothing: the stream is read in the memory of the message.
template <class Storage, element T, index_type Index>
  requires storage::copies_nothing<Storage, T, Index>
class incoming<Storage, T, Index> : public message_buffer {
 public:
  using message_buffer::message_buffer;

  /// Returns the received stream, whose indices must lie in `range`. Throws `corrupt_message` if the stream is
  /// malformed; `when` is as for `borrow`.
  template <transport Net>
  [[gnu::noinline]] answer<Net, stream_view<T, Index>> view(channel<Net> net, const Storage& store, index_range range,
                                                            index_check when = index_check::now) const {
    if (head().format == wire_format::dense) return answered(net, decode<T, Index>(*this, range));
    return detail::borrow<T, Index>(net, storage::streams_of(store), *this, range, when);
  }
};

/// A stream that its owner encodes once and that other ranks forward unchanged, so that all ranks decode the same
/// bytes.
template <class Storage, element T, index_type Index>
class relayed {
 public:
  /// On the owner, encodes the stream `v`, whose indices lie in `range` and which must outlive this object. Adds the
  /// rounding errors of the encoding to `residual`, unless `residual` is empty.
  template <transport Net>
  auto encode(channel<Net> net, const Storage& store, const stream_view<T, Index>& v, index_range range,
              residual_view<T> residual) {
    return after_answer(net, own_(net, store, v, range, 0),
                        [this, net, &store, v, range, residual](const payload& message) {
                          message_ = message;
                          return after(net, own_.as_decoded(net, store, v, range, residual),
                                       [this](const stream_view<T, Index>& decoded) { view_ = decoded; });
                        });
  }
  /// On a rank that is not the owner, copies the received stream `in`, whose indices must lie in `range`, to memory of
  /// this rank, because a message in the sender's memory cannot be forwarded. Throws `corrupt_message` if the stream is
  /// malformed.
  template <transport Net>
  answer<Net> take(channel<Net> net, const Storage& store, incoming<Storage, T, Index>& in, index_range range) {
    const wire_format format = in.head().format;
    owned_ = true;
    if constexpr (!storage::copies_nothing<Storage, T, Index>) {
      if (format == wire_format::entries_coded || format == wire_format::block_coded) {
        const payload received = in.arrived_payload();
        return after(net, detail::decode_stream<T, Index>(net, store, received, in.head().dimension, range),
                     [this, net, received](sparse_stream<T, Index>&& decoded) {
                       held_ = std::move(decoded);
                       bytes_ = buffer<std::byte>(net.work().memory(), received.pieces[0].size());
                       net.work().copy(bytes_.data(), received.pieces[0]);
                       const std::uint64_t plain = received.format == wire_format::entries_coded
                                                       ? received.count * (sizeof(T) + sizeof(Index))
                                                       : 0;
                       message_ = {received.format, received.count, {std::as_const(bytes_).span()}, plain};
                       view_ = std::as_const(held_).view();
                     });
      }
    }
    return after(net, in.view(net, store, range), [this, net](const stream_view<T, Index>& received) {
      held_ = net.work().duplicate(received);
      view_ = std::as_const(held_).view();
      message_ = view_message(view_);
    });
  }

  /// The owner's message, to be forwarded.
  [[nodiscard]] const payload& message() const noexcept { return message_; }
  /// The stream that all ranks decode from the owner's bytes.
  [[nodiscard]] const stream_view<T, Index>& view() const noexcept { return view_; }
  /// Returns the stream to which `view` refers, in its own memory, so that the stream may outlive this object.
  template <transport Net>
  [[nodiscard]] sparse_stream<T, Index> result(channel<Net> net) && {
    return owned_ ? std::move(held_) : net.work().duplicate(view_);
  }

 private:
  [[no_unique_address]] outgoing<Storage, T, Index> own_;
  buffer<std::byte> bytes_;
  sparse_stream<T, Index> held_;
  bool owned_ = false; // whether `view_` refers to `held_`
  stream_view<T, Index> view_;
  payload message_;
};

} // namespace spar::inline v0_1
