// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Block codecs, which encode blocks of dense values in messages (SparCML, sections 5.3.3 and 6). For codecs of sparse
// streams, see stream_codec.hpp.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/policy.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/rows.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/storage/kernel/rounding_error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// The position of a block that a codec encodes. The rounding of the codec may depend on `call` and `first`, but on no
/// other state.
struct block_position {
  std::uint64_t call = 0;  ///< number of the collective call on the communicator
  std::uint64_t first = 0; ///< index of the block's first value in the vector
};

namespace detail {

/// The number of the call that a codec gets for the encoding `step` of the call `sequence` (see `block_coder::encode`).
SPAR_HOST_DEVICE constexpr std::uint64_t call_of_step(std::uint64_t sequence, std::uint64_t step) noexcept {
  return step == 0 ? sequence : splitmix_finalize(sequence + splitmix_finalize(step));
}

/// A block codec whose number of bytes depends on the values, as its `encode` returns this number.
template <class Codec, class T>
concept varies_in_size =
    requires(const Codec& codec, std::span<const T> values, std::span<std::byte> encoded, block_position position) {
      { codec.encode(values, encoded, position) } -> std::same_as<std::size_t>;
    };
/// A codec that preserves all bits of the values.
template <class Codec>
concept keeps_all_bits = requires { requires Codec::exact; };

} // namespace detail

/// A lossy or lossless encoding of blocks of dense values. Every rank, including the sender, continues with the decoded
/// values. The number of values determines the number of bytes, so that a block can be received directly at its place
/// in the buffer. A codec may also have another number of bytes for other values: its `encode` then returns the number
/// of bytes written, at most `encoded_bytes`, and its `decode` throws `corrupt_message` for a number of bytes that does
/// not fit. Such a codec encodes all values, so it has no `can_encode`. If it is lossless, which its member `exact`
/// says, the ranks that forward values may encode them again; if it is lossy, only schedules that keep `whole_pieces`
/// take it. Rejects a codec whose options ranks cannot compare (see `policy`). The codecs of the library throw
/// `invalid_argument` if the buffer of encoded bytes is too small; their `encoded_bytes` throws `invalid_argument` for
/// invalid options.
///
/// A codec must not hide a NaN or an infinity: it decodes them as NaN or infinities, whatever else is in the block, or
/// cannot encode the block. The other values of such a block may become anything.
///
/// A codec may also have the following members. A call rejects one of another form, but cannot see a misspelt name.
/// - `can_encode(values)`: returns false, or throws `invalid_argument`, if the codec cannot encode `values`; zfp, for
///   example, cannot encode NaN. If the result is false, the schedule sends at least the whole piece uncompressed, or
///   throws `invalid_argument`;
/// - `relative_error<T>()`: returns an upper bound on |decoded - value| divided by the largest |value| of the block,
///   for blocks of finite values that the codec can encode, if the largest |value| is at least 2^-14. In blocks of
///   smaller values, the error may be as large as the largest |value|;
/// - `absolute_error<T>()`: returns a number so that |decoded - value| is at most this number plus
///   `relative_error<T>()` times the largest |value| of the block, for blocks of any finite values that the codec can
///   encode;
/// - `grain()`: returns a number of values; schedules that keep `whole_pieces` cut the vector only at its multiples,
///   and other schedules reject the codec;
/// - `validate(n)`: throws `invalid_argument` if the codec cannot encode the pieces of a vector of n values;
/// - `decode_and_add(bytes, values)`: decodes as `decode` does, and adds the decoded values to `values`, in one pass;
/// - `visit<T>(f)`: returns `f(codec)` for the codec that this one stands for, whose `decode_and_add` is then called;
/// - `cost<T>(network)`: returns the seconds to encode a value, and also to decode it, by the network_model `network`.
///   The codecs of the library count passes, `gamma_dense`: the mean of one encoding and two decodings, because the
///   ring decodes nearly twice as often as it encodes.
template <class Codec, class T>
concept block_codec =
    std::copyable<Codec> && policy<Codec> &&
    requires(const Codec& codec, std::size_t count, std::span<const T> values, std::span<T> decoded,
             std::span<const std::byte> bytes, std::span<std::byte> encoded, block_position position) {
      { codec.template encoded_bytes<T>(count) } -> std::same_as<std::size_t>;
      codec.encode(values, encoded, position);
      codec.decode(bytes, decoded);
    } &&
    (!detail::varies_in_size<Codec, T> ||
     !requires(std::span<const T> values, const Codec& codec) { codec.can_encode(values); });

namespace detail {

/// The number of values at whose multiples pieces of a vector must begin, at least 1; 1 if the codec does not say.
template <class Codec>
[[nodiscard]] std::uint64_t grain_of(const Codec& codec) noexcept {
  if constexpr (requires { codec.grain(); })
    return std::max<std::uint64_t>(codec.grain(), 1);
  else
    return 1;
}

/// Whether the codec can encode `values`; a codec without a function `can_encode` can encode all values.
template <class Codec, class T>
bool can_encode(const Codec& codec, std::span<const T> values) {
  if constexpr (requires { codec.can_encode(values); })
    return codec.can_encode(values);
  else
    return true;
}

/// Throws `invalid_argument` if a buffer of `bytes` bytes is too small for `values` values encoded by `codec`.
template <class T, class Codec>
void check_room(const Codec& codec, std::size_t values, std::size_t bytes) {
  const std::size_t expected = codec.template encoded_bytes<T>(values);
  if (bytes >= expected) return;
  raise<invalid_argument>({"the encoding of ", values, " values by the storage ", Codec::name, " needs ", expected,
                           " bytes, but the buffer has ", bytes});
}

} // namespace detail

namespace kernel {

/// Adds the rounding errors of a block to the residual: `residual[e] += exact[e] - decoded[e]`, rounded once. Skips
/// values whose difference is not finite.
template <element T>
[[gnu::noinline]] void add_difference(T* __restrict residual, const T* __restrict exact, const T* __restrict decoded,
                                      std::size_t n) {
  if constexpr (is_row<T>) {
    const auto of = [n](auto* rows) { return components(std::span(rows, n)).data(); };
    add_difference(of(residual), of(exact), of(decoded), n * width_of<T>);
  } else {
    for (std::size_t e = 0; e < n; ++e) residual[e] = detail::with_error(residual[e], exact[e], decoded[e]);
  }
}
/// Adds the rounding errors of sparse entries to the residual: `residual[indices[e]] += exact[e] - decoded[e]`, rounded
/// once. Skips entries whose difference is not finite.
template <element T, class Index>
[[gnu::noinline]] void scatter_difference(T* __restrict residual, const Index* __restrict indices,
                                          const T* __restrict exact, const T* __restrict decoded, std::size_t n) {
  if constexpr (is_row<T>) {
    for (std::size_t e = 0; e < n; ++e) add_difference(residual + indices[e], exact + e, decoded + e, 1);
  } else {
    for (std::size_t e = 0; e < n; ++e)
      residual[indices[e]] = detail::with_error(residual[indices[e]], exact[e], decoded[e]);
  }
}

} // namespace kernel

namespace storage {

/// Sends dense values as they are in memory, without compression.
struct dense {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "dense";

  static constexpr void options(auto&&) noexcept {}

  template <element T>
  [[nodiscard]] static constexpr std::size_t encoded_bytes(std::size_t count) noexcept {
    return count * sizeof(T);
  }
  template <element T>
  static void encode(std::span<const T> values, std::span<std::byte> out, block_position) {
    detail::check_room<T>(dense{}, values.size(), out.size());
    if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
  }
  template <element T>
  static void decode(std::span<const std::byte> in, std::span<T> out) {
    detail::check_room<T>(dense{}, out.size(), in.size());
    if (!out.empty()) std::memcpy(out.data(), in.data(), out.size_bytes());
  }
  template <element T>
  [[nodiscard]] static constexpr double relative_error() noexcept {
    return 0;
  }
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return 0;
  }
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return network.gamma_dense;
  }
};

} // namespace storage
} // namespace spar::inline v0_1
