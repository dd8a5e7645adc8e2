// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pieces of a vector, encoded and decoded on their way through a collective (Zhou et al., section III).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace spar {

/// Encodes and decodes for one call on one rank, which its statistics count and time.
template <transport Net, class Codec>
class block_coder {
 public:
  /// The codec is borrowed.
  block_coder(channel<Net> net, const Codec& codec) noexcept : net_(net), codec_(&codec) {}
  block_coder(channel<Net> net, Codec&& codec) = delete;

  /// Whether the codec has bytes for these values. Where it rejects them, all ranks are told why, before what this one
  /// has under way is given up.
  template <element T>
  [[nodiscard]] bool carries(std::span<const T> values) const {
    return or_tell([&] { return detail::carries(*codec_, values); });
  }

  /// To `out`, of as many bytes as the codec says; `first` is the index of values[0]. `step` tells encodings of one
  /// index within a call apart: as its rounding, which should not be the same twice.
  /// Throws `invalid_argument` where the codec cannot carry the values.
  template <element T>
  void encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out, std::uint64_t step = 0) const {
    or_tell([&] {
      if (detail::carries(*codec_, values)) return;
      raise<invalid_argument>({"the storage ", std::string(Codec::name), " cannot carry some of the ", values.size(),
                               " values from index ", first, " on, where blocks have one size"});
    });
    timed_encode(values, first, out, step);
  }

  /// The message of these values, in `room`, which is made large enough: encoded or, where the codec cannot carry them,
  /// a copy of them.
  template <element T>
  payload message(std::span<const T> values, std::uint64_t first, std::uint64_t step, buffer<std::byte>& room) const {
    const bool carried = carries(values);
    const std::size_t bytes = carried ? codec_->template encoded_bytes<T>(values.size()) : values.size_bytes();
    if (room.size() < bytes) room = buffer<std::byte>(net_.memory(), bytes);
    const std::span<std::byte> out = room.span().first(bytes);
    if (carried)
      timed_encode(values, first, out, step);
    else
      kernel::detail::copy(out.data(), std::as_bytes(values).data(), bytes);
    return {carried ? wire_format::encoded : wire_format::dense, values.size(), {std::span<const std::byte>(out)}};
  }
  /// The same message, copied, to be passed on.
  payload pass_on(const payload& came, buffer<std::byte>& room) const {
    const auto bytes = came.pieces[0];
    if (room.size() < bytes.size()) room = buffer<std::byte>(net_.memory(), bytes.size());
    kernel::detail::copy(room.data(), bytes.data(), bytes.size());
    return {came.format, came.count, {std::as_const(room).span().first(bytes.size())}};
  }

  /// The payload of a message that has arrived; throws `corrupt_message` unless it is that of so many values of T.
  template <element T>
  [[nodiscard]] payload arrived(const message_buffer& in, std::uint64_t values) const {
    return checked<T>({in.head().format, in.head().count, {in.piece<std::byte>(0)}}, values);
  }
  /// The same for a payload that came with others in one message.
  template <element T>
  [[nodiscard]] payload checked(const payload& came, std::uint64_t values) const {
    const bool encoded = came.format == wire_format::encoded;
    if (!encoded && came.format != wire_format::dense) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(came.format), " arrived where values are due"});
    }
    const std::size_t bytes = came.pieces[0].size();
    const std::size_t due = encoded ? codec_->template encoded_bytes<T>(values) : values * sizeof(T);
    if (came.count != values || bytes != due) {
      raise<corrupt_message>({came.count, " values in ", bytes, " bytes arrived where ", values, " in ", due,
                              " are due by the storage ", std::string(Codec::name)});
    }
    return came;
  }

  template <element T>
  void decode(std::span<const std::byte> bytes, std::span<T> out) const {
    const double start = net_.net().now();
    codec_->decode(bytes, out);
    compute<T>(out.size());
    net_.note_decompression(net_.net().now() - start);
  }
  /// The values of a message.
  template <element T>
  void decode(const payload& message, std::span<T> out) const {
    if (message.format == wire_format::encoded)
      decode(message.pieces[0], out);
    else
      kernel::detail::copy(reinterpret_cast<std::byte*>(out.data()), message.pieces[0].data(), out.size_bytes());
  }
  /// Adds to `residual`, which may be empty, what a message that was made of these values has lost of them.
  template <element T>
  void keep_lost(const payload& message, std::span<const T> values, std::span<T> residual, std::span<T> scratch) const {
    if (residual.empty() || message.format != wire_format::encoded) return;
    decode(message, scratch.first(values.size()));
    kernel::add_difference(residual.data(), values.data(), std::as_const(scratch).data(), values.size());
  }
  /// The same where the values lie in `range` of a vector with a residual of its own.
  template <element T>
  void keep_lost(const payload& message, std::span<const T> values, index_range range, std::span<T> residual,
                 pool& memory) const {
    if (residual.empty() || values.empty()) return;
    buffer<T> scratch(memory, values.size());
    keep_lost(message, values, residual.subspan(range.begin, range.size()), scratch.span());
  }

 private:
  template <class F>
  auto or_tell(F f) const {
    try {
      return f();
    } catch (...) {
      abort_and_rethrow(net_.net());
    }
  }
  template <element T>
  void timed_encode(std::span<const T> values, std::uint64_t first, std::span<std::byte> out,
                    std::uint64_t step) const {
    const double start = net_.net().now();
    const std::uint64_t call = step == 0 ? net_.sequence() : detail::mix(net_.sequence() + detail::mix(step));
    codec_->encode(values, out, block_position{call, first});
    compute<T>(values.size());
    net_.note_compression(net_.net().now() - start);
  }
  template <element T>
  void compute(std::size_t values) const {
    if constexpr (requires { codec_->template cost<T>(); }) {
      net_.compute(static_cast<std::uint64_t>(codec_->template cost<T>() * static_cast<double>(values)));
    } else {
      net_.compute(values);
    }
  }

  channel<Net> net_;
  const Codec* codec_;
};

} // namespace spar
