// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes and decodes the pieces of a dense vector that a collective sends and receives (Zhou et al., section III).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/wire.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Encodes and decodes values with `codec` in one call on one rank. The statistics of the call contain the number and
/// the time of these encodings and decodings.
template <transport Net, class Codec>
class block_coder {
 public:
  /// Keeps a pointer to `codec`, which must outlive the block_coder.
  block_coder(channel<Net> net, const Codec& codec) noexcept : net_(net), codec_(&codec) {}
  block_coder(channel<Net> net, Codec&& codec) = delete;

  /// Returns whether the codec can encode `values`.
  template <element T>
  answer<Net, bool> can_encode(std::span<const T> values) const {
    return net_.work().can_encode(*codec_, values);
  }

  /// Encodes `values` to `out`, whose size must be the codec's `encoded_bytes<T>(values.size())`; `first` is the index
  /// of values[0]. If a collective encodes the same index more than once, each of these encodings needs a different
  /// `step`, so that a codec with random rounding draws different random numbers. Throws `invalid_argument` if the
  /// codec cannot encode `values`.
  template <element T>
  answer<Net> encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out,
                     std::uint64_t step = 0) const {
    return after(net_, try_encode(values, first, out, step), [size = values.size(), first](bool carried) {
      if (!carried) refuse(size, first);
    });
  }

  /// Returns a message of `values` whose bytes are in `room`, which grows if it is too small. The message contains the
  /// encoded values, or a copy of the values if the codec cannot encode them. For `first` and `step`, see `encode`.
  template <element T>
  answer<Net, payload> message(std::span<const T> values, std::uint64_t first, std::uint64_t step,
                               buffer<std::byte>& room) const {
    const std::span<std::byte> out = room_for(codec_->template encoded_bytes<T>(values.size()), room);
    if constexpr (detail::varies_in_size<Codec, T>) {
      static_assert(!channel<Net>::on_device, "a device has no codec whose number of bytes depends on the values");
      const double start = net_.net().now();
      const std::size_t bytes = codec_->encode(values, out, block_position{call_of(step), first});
      ensure(bytes <= out.size(), "encode() of a block codec wrote more bytes than encoded_bytes() allows");
      net_.compute(work_on<T>(values.size()));
      net_.note_compression(net_.net().now() - start);
      return answered(net_, payload{wire_format::block_coded, values.size(), {out.first(bytes)}});
    } else {
      return fixed_message(values, first, step, out, room);
    }
  }
  /// Copies the bytes of the received message `received` to `room`, and returns a message that refers to the copy, so
  /// that this rank can forward the message after its receive buffer is reused.
  payload pass_on(const payload& received, buffer<std::byte>& room) const {
    const auto bytes = received.pieces[0];
    const std::span<const std::byte> out = room_for(bytes.size(), room);
    net_.work().copy(room.data(), bytes);
    return {received.format, received.count, {out}};
  }

  /// Returns the payload of the received message `in`. Throws `corrupt_message` unless the payload contains `values`
  /// values of T, encoded or plain.
  template <element T>
  [[nodiscard]] payload arrived(const message_buffer& in, std::uint64_t values) const {
    return checked<T>({in.head().format, in.head().count, {in.piece<std::byte>(0)}}, values);
  }
  /// Returns `received`, which may be only a part of a message. Throws `corrupt_message` unless `received` contains
  /// `values` values of T, encoded or plain.
  template <element T>
  [[nodiscard]] payload checked(const payload& received, std::uint64_t values) const {
    const bool encoded = received.format == wire_format::block_coded;
    if (!encoded && received.format != wire_format::dense) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(received.format),
                              " arrived; expected format 2 (dense values) or 3 (an encoded block)"});
    }
    const std::size_t bytes = received.pieces[0].size();
    const std::size_t expected = encoded ? codec_->template encoded_bytes<T>(values) : values * sizeof(T);
    const bool varies = encoded && detail::varies_in_size<Codec, T>; // `decode` then checks the number of bytes
    if (received.count != values || (varies ? bytes > expected : bytes != expected)) {
      raise<corrupt_message>({"a block of ", received.count, " values in ", bytes, " bytes arrived; expected ", values,
                              " values in ", varies ? "at most " : "", expected, " bytes with the storage ",
                              Codec::name});
    }
    return received;
  }

  /// Replaces `values` by op(decoded, value), where `decoded` are the values of `message`; `scratch` must be at least
  /// as long.
  template <element T, reduction<T> Op>
  void reduce_left(const payload& message, std::span<T> values, Op op, std::span<T> scratch) const {
    if (message.format == wire_format::block_coded) {
      const double start = net_.net().now();
      if (net_.work().reduce_left(*codec_, message.pieces[0], values, op)) {
        net_.compute(work_on<T>(values.size()));
        return net_.note_decompression(net_.net().now() - start);
      }
    }
    const std::span<T> decoded = scratch.first(values.size());
    decode(message, decoded);
    net_.work().reduce_left(values, std::as_const(decoded).data(), op);
  }

  /// Replaces `values` by op(value, decoded), where `decoded` are the values of `message`; `scratch` must be at least
  /// as long.
  template <element T, reduction<T> Op>
  void reduce(const payload& message, std::span<T> values, Op op, std::span<T> scratch) const {
    if constexpr (detail::adds<Op>) return reduce_left(message, values, op, scratch); // which may take one pass
    const std::span<T> decoded = scratch.first(values.size());
    decode(message, decoded);
    net_.work().reduce(values, std::as_const(decoded).data(), op);
  }

  template <element T>
  void decode(std::span<const std::byte> bytes, std::span<T> out) const {
    const double start = net_.net().now();
    net_.work().decode(*codec_, bytes, out);
    net_.compute(work_on<T>(out.size()));
    net_.note_decompression(net_.net().now() - start);
  }
  /// Decodes the values of `message` to `out`, or copies them if `message` is not encoded.
  template <element T>
  void decode(const payload& message, std::span<T> out) const {
    if (message.format == wire_format::block_coded)
      decode(message.pieces[0], out);
    else
      net_.work().copy(reinterpret_cast<std::byte*>(out.data()), message.pieces[0]);
  }
  /// Replaces `values`, of which `message` was made, by what its receivers decode.
  template <element T>
  void adopt(const payload& message, std::span<T> values) const {
    if constexpr (!detail::keeps_all_bits<Codec>) decode(message, values);
  }
  /// Adds the rounding errors of `message`, which was made from `values`, to `residual`, unless `residual` is empty.
  /// `values` are the values of a vector from the index `first` on; `scratch` must be at least as long as `values`.
  template <element T>
  void keep_error(const payload& message, std::span<const T> values, std::uint64_t first, residual_view<T> residual,
                  std::span<T> scratch) const {
    if (detail::keeps_all_bits<Codec> || residual.empty() || message.format != wire_format::block_coded) return;
    decode(message, scratch.first(values.size()));
    residual.add_error(first, values, std::as_const(scratch).data());
  }
  /// Like the other overload, but takes the room for the decoded values from `memory`.
  template <element T>
  void keep_error(const payload& message, std::span<const T> values, std::uint64_t first, residual_view<T> residual,
                  std::pmr::memory_resource& memory) const {
    if (detail::keeps_all_bits<Codec> || residual.empty() || values.empty()) return;
    buffer<T> scratch(memory, values.size());
    keep_error(message, values, first, residual, scratch.span());
  }

 private:
  [[noreturn, gnu::cold]] static void refuse(std::size_t values, std::uint64_t first) {
    raise<invalid_argument>({"the storage ", Codec::name, " cannot encode some of the ", values, " values from index ",
                             first,
                             " on, and this schedule cannot send a block unencoded: use another storage or schedule"});
  }
  template <element T>
  answer<Net, payload> fixed_message(std::span<const T> values, std::uint64_t first, std::uint64_t step,
                                     std::span<std::byte> out, buffer<std::byte>& room) const {
    return after(net_, try_encode(values, first, out, step), [net = net_, values, out, &room](bool carried) {
      if (carried) return payload{wire_format::block_coded, values.size(), {std::span<const std::byte>(out)}};
      const std::span<std::byte> plain = room_for(net, values.size_bytes(), room);
      net.work().copy(plain.data(), std::as_bytes(values));
      return payload{wire_format::dense, values.size(), {std::span<const std::byte>(plain)}};
    });
  }
  /// Encodes `values` unless the codec cannot encode them, and returns whether it can.
  template <element T>
  answer<Net, bool> try_encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out,
                               std::uint64_t step) const {
    const double start = net_.net().now();
    return after(net_, net_.work().encode(*codec_, values, out, block_position{call_of(step), first}),
                 [net = net_, start, entries = work_on<T>(values.size())](bool carried) {
                   if (!carried) return false;
                   net.compute(entries);
                   net.note_compression(net.net().now() - start);
                   return true;
                 });
  }
  /// The number of the call that a codec gets for `step`.
  [[nodiscard]] std::uint64_t call_of(std::uint64_t step) const noexcept {
    return detail::call_of_step(net_.sequence(), step);
  }
  /// Makes room for `bytes` bytes.
  static std::span<std::byte> room_for(channel<Net> net, std::size_t bytes, buffer<std::byte>& room) {
    if (room.size() < bytes) room = buffer<std::byte>(net.work().memory(), bytes);
    return room.span().first(bytes);
  }
  std::span<std::byte> room_for(std::size_t bytes, buffer<std::byte>& room) const {
    return room_for(net_, bytes, room);
  }
  /// The work of coding `values` values, as a number of values of which each is passed once.
  template <element T>
  [[nodiscard]] std::uint64_t work_on(std::size_t values) const {
    double passes = 1;
    if constexpr (detail::states_cost<Codec, T>) {
      const network_model& model = net_.net().node().network();
      if (model.gamma_dense > 0)
        passes = std::min(1e4, std::max(0.0, codec_->template cost<T>(model) / model.gamma_dense));
    }
    return static_cast<std::uint64_t>(passes * static_cast<double>(values) + 0.5);
  }

 protected:
  channel<Net> net_;
  const Codec* codec_;
};

} // namespace spar::inline v0_1
