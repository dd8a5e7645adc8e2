// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes and decodes the pieces of a dense vector that a collective sends and receives (Zhou et al., section III).
#pragma once

#include <spar/collective/local/answer.hpp>
#include <spar/collective/local/values.hpp>
#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>

namespace spar {

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
  local::answer<Net, bool> carries(std::span<const T> values) const {
    if constexpr (values_on_device<Net>)
      return ask_device(net_, *codec_, values);
    else
      return local::ready<bool>(detail::carries(*codec_, values));
  }

  /// Encodes `values` to `out`, whose size must be the codec's `encoded_bytes<T>(values.size())`; `first` is the index
  /// of values[0]. If a collective encodes the same index more than once, each of these encodings needs a different
  /// `step`, so that a codec with random rounding draws different random numbers. Throws `invalid_argument` if the
  /// codec cannot encode `values`.
  template <element T>
  local::answer<Net> encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out,
                            std::uint64_t step = 0) const {
    return local::then(net_, carries(values), [coder = *this, values, first, out, step](bool carried) {
      if (!carried) coder.refuse(values.size(), first);
      coder.timed_encode(values, first, out, step);
    });
  }

  /// Returns a message of `values` whose bytes are in `room`, which grows if it is too small. The message contains the
  /// encoded values, or a copy of the values if the codec cannot encode them. For `first` and `step`, see `encode`.
  template <element T>
  local::answer<Net, payload> message(std::span<const T> values, std::uint64_t first, std::uint64_t step,
                                      buffer<std::byte>& room) const {
    if constexpr (values_on_device<Net>)
      return device_message(net_, *this, values, first, step, &room);
    else
      return local::ready<payload>::from(
          [&] { return message(carries(values).await_resume(), values, first, step, room); });
  }
  /// The same, if `carries(values)` has answered `carried`.
  template <element T>
  payload message(bool carried, std::span<const T> values, std::uint64_t first, std::uint64_t step,
                  buffer<std::byte>& room) const {
    const std::size_t bytes = carried ? codec_->template encoded_bytes<T>(values.size()) : values.size_bytes();
    const std::span<std::byte> out = room_for(bytes, room);
    if (carried)
      timed_encode(values, first, out, step);
    else
      local::copy(net_, out.data(), std::as_bytes(values));
    return {carried ? wire_format::encoded : wire_format::dense, values.size(), {std::span<const std::byte>(out)}};
  }
  /// Copies the bytes of the received message `came` to `room`, and returns a message that refers to the copy, so that
  /// this rank can forward the message after its receive buffer is reused.
  payload pass_on(const payload& came, buffer<std::byte>& room) const {
    const auto bytes = came.pieces[0];
    const std::span<const std::byte> out = room_for(bytes.size(), room);
    local::copy(net_, room.data(), bytes);
    return {came.format, came.count, {out}};
  }

  /// Returns the payload of the received message `in`. Throws `corrupt_message` unless the payload contains `values`
  /// values of T, encoded or plain.
  template <element T>
  [[nodiscard]] payload arrived(const message_buffer& in, std::uint64_t values) const {
    return checked<T>({in.head().format, in.head().count, {in.piece<std::byte>(0)}}, values);
  }
  /// Returns `came`, which may be only a part of a message. Throws `corrupt_message` unless `came` contains `values`
  /// values of T, encoded or plain.
  template <element T>
  [[nodiscard]] payload checked(const payload& came, std::uint64_t values) const {
    const bool encoded = came.format == wire_format::encoded;
    if (!encoded && came.format != wire_format::dense) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(came.format),
                              " arrived; expected format 2 (dense values) or 3 (an encoded block)"});
    }
    const std::size_t bytes = came.pieces[0].size();
    const std::size_t expected = encoded ? codec_->template encoded_bytes<T>(values) : values * sizeof(T);
    if (came.count != values || bytes != expected) {
      raise<corrupt_message>({"a block of ", came.count, " values in ", bytes, " bytes arrived; expected ", values,
                              " values in ", expected, " bytes with the storage ", Codec::name});
    }
    return came;
  }

  /// Replaces `values` by op(decoded, value), where `decoded` are the values of `message`; `scratch` must be at least
  /// as long.
  template <element T, reduction<T> Op>
  void reduce_left(const payload& message, std::span<T> values, Op op, std::span<T> scratch) const {
    if constexpr (values_on_device<Net>) {
      if (message.format == wire_format::encoded) {
        const double start = net_.net().now();
        if (net_.net().values().reduce_left(*codec_, message.pieces[0], values, op)) {
          compute<T>(values.size());
          return net_.note_decompression(net_.net().now() - start);
        }
      }
    }
    const std::span<T> decoded = scratch.first(values.size());
    decode(message, decoded);
    local::reduce_left(net_, values, std::as_const(decoded).data(), op);
  }

  template <element T>
  void decode(std::span<const std::byte> bytes, std::span<T> out) const {
    const double start = net_.net().now();
    if constexpr (values_on_device<Net>)
      net_.net().values().decode(*codec_, bytes, out);
    else
      codec_->decode(bytes, out);
    compute<T>(out.size());
    net_.note_decompression(net_.net().now() - start);
  }
  /// Decodes the values of `message` to `out`, or copies them if `message` is not encoded.
  template <element T>
  void decode(const payload& message, std::span<T> out) const {
    if (message.format == wire_format::encoded)
      decode(message.pieces[0], out);
    else
      local::copy(net_, reinterpret_cast<std::byte*>(out.data()), message.pieces[0]);
  }
  /// Adds the rounding errors of `message`, which was made from `values`, to `residual`, unless `residual` is empty.
  /// `values` are the values of a vector from the index `first` on; `scratch` must be at least as long as `values`.
  template <element T>
  void keep_error(const payload& message, std::span<const T> values, std::uint64_t first, residual_view<T> residual,
                  std::span<T> scratch) const {
    if (residual.empty() || message.format != wire_format::encoded) return;
    decode(message, scratch.first(values.size()));
    residual.add_error(first, values, std::as_const(scratch).data());
  }
  /// Like the other overload, but takes the room for the decoded values from `memory`.
  template <element T>
  void keep_error(const payload& message, std::span<const T> values, std::uint64_t first, residual_view<T> residual,
                  std::pmr::memory_resource& memory) const {
    if (residual.empty() || values.empty()) return;
    buffer<T> scratch(memory, values.size());
    keep_error(message, values, first, residual, scratch.span());
  }

 private:
  template <element T>
  static task<bool> ask_device(channel<Net> net, Codec codec, std::span<const T> values) {
    co_return co_await net.net().streams().carries(codec, values);
  }
  template <element T>
  static task<bool> encode_on_device(channel<Net> net, Codec codec, std::span<const T> values, std::byte* out,
                                     block_position at) {
    co_return co_await net.net().streams().encode(codec, values, out, at);
  }
  /// Encodes the values while the device finds out whether the codec can.
  template <element T>
  static task<payload> device_message(channel<Net> net, block_coder coder, std::span<const T> values,
                                      std::uint64_t first, std::uint64_t step, buffer<std::byte>* room) {
    const std::span<std::byte> out = coder.room_for(coder.codec_->template encoded_bytes<T>(values.size()), *room);
    const double start = net.net().now();
    auto encoding =
        encode_on_device(net, *coder.codec_, values, out.data(), block_position{coder.call_of(step), first});
    coder.template compute<T>(values.size());
    net.note_compression(net.net().now() - start);
    const bool carried = co_await std::move(encoding);
    if (!carried) co_return coder.message(false, values, first, step, *room);
    co_return payload{wire_format::encoded, values.size(), {std::span<const std::byte>(out)}};
  }
  [[noreturn, gnu::cold]] void refuse(std::size_t values, std::uint64_t first) const {
    raise<invalid_argument>({"the storage ", Codec::name, " cannot encode some of the ", values, " values from index ",
                             first,
                             " on, and this schedule cannot send a block unencoded: use another storage or schedule"});
  }
  template <element T>
  void timed_encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out,
                    std::uint64_t step) const {
    const double start = net_.net().now();
    const std::uint64_t call = call_of(step);
    if constexpr (values_on_device<Net>)
      net_.net().values().encode(*codec_, values, out, block_position{call, first});
    else
      codec_->encode(values, out, block_position{call, first});
    compute<T>(values.size());
    net_.note_compression(net_.net().now() - start);
  }
  /// The number of the call that a codec gets for `step`.
  [[nodiscard]] std::uint64_t call_of(std::uint64_t step) const noexcept {
    return step == 0 ? net_.sequence() : detail::splitmix_finalize(net_.sequence() + detail::splitmix_finalize(step));
  }
  /// Makes room for `bytes` bytes.
  std::span<std::byte> room_for(std::size_t bytes, buffer<std::byte>& room) const {
    if (room.size() < bytes) room = buffer<std::byte>(net_.value_memory(), bytes);
    return room.span().first(bytes);
  }
  template <element T>
  void compute(std::size_t values) const {
    if constexpr (requires { codec_->template cost<T>(); }) {
      net_.compute(static_cast<std::uint64_t>(codec_->template cost<T>() * static_cast<double>(values)));
    } else {
      net_.compute(values);
    }
  }

 protected:
  channel<Net> net_;
  const Codec* codec_;
};

} // namespace spar
