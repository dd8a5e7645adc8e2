// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of the block codecs: the device's version of their members `encode`, `decode` and `can_encode`.
#pragma once

#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/cuda/pieces.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

/// The kernels of a block codec, with the bytes and values of the host; a codec without a specialisation has none.
/// `encode` and `decode` put their work into a stream. `together` is the number of values whose encoding depends on no
/// others, from each multiple of this number on. `refuses` is a function object on the device, which says whether
/// the codec cannot encode a block with a value; a codec without it can encode all values. `refuse` is called on the
/// host if there is such a value, and throws if the codec's `can_encode` would. If `encode` takes a pointer to a number
/// in device memory, it also sets the number to 1 if there is such a value. If `reduce_left` exists, it replaces values
/// by op(decoded, value). A codec with random rounding also takes the number of a call from device memory.
template <class Codec>
struct device_codec;

/// Plain values.
template <>
struct device_codec<storage::dense> {
  template <class T>
  static void encode(const storage::dense&, std::span<const T> x, std::byte* out, block_position, cudaStream_t stream) {
    start_copy(out, reinterpret_cast<const std::byte*>(x.data()), x.size_bytes(), cudaMemcpyDeviceToDevice, stream);
  }
  template <class T>
  static void decode(const storage::dense&, const std::byte* in, std::span<T> out, cudaStream_t stream) {
    start_copy(reinterpret_cast<std::byte*>(out.data()), in, out.size_bytes(), cudaMemcpyDeviceToDevice, stream);
  }
  static std::uint64_t together(const storage::dense&) noexcept { return 1; }
};

template <class Code>
struct device_codec<storage::short_float<Code>> {
  using codec = storage::short_float<Code>;

  template <class T>
  static void encode(const codec&, std::span<const T> x, std::byte* out, block_position, cudaStream_t stream,
                     std::uint32_t* refused = nullptr) {
    kernel::start_encode_short<Code>(x.data(), x.size(), reinterpret_cast<std::uint16_t*>(out), stream, refused);
  }
  template <class T>
  static void decode(const codec&, const std::byte* in, std::span<T> out, cudaStream_t stream) {
    kernel::start_decode_short<Code>(reinterpret_cast<const std::uint16_t*>(in), out.size(), out.data(), stream);
  }
  template <class T, class Op>
  static void reduce_left(const codec&, const std::byte* in, std::span<T> inout, Op op, cudaStream_t stream) {
    kernel::start_reduce_short<Code>(reinterpret_cast<const std::uint16_t*>(in), inout.size(), inout.data(), op,
                                     stream);
  }
  static std::uint64_t together(const codec&) noexcept { return 1; }
  using refuses = kernel::becomes_infinite<Code>;
  static void refuse(const codec&, std::size_t) noexcept {}
};

template <int Bits>
struct device_codec<storage::qsgd<Bits>> {
  using codec = storage::qsgd<Bits>;

  template <class T>
  static void encode(const codec& by, std::span<const T> x, std::byte* out, block_position at, cudaStream_t stream) {
    kernel::start_qsgd_encode<Bits>(x.data(), x.size(), by.bucket, out, by.seed, at.call, at.first, stream);
  }
  /// The same with random numbers for the encoding `step` of the call whose number is at `calls`, in device memory.
  template <class T>
  static void encode(const codec& by, std::span<const T> x, std::byte* out, std::uint64_t first,
                     const std::uint64_t* calls, std::uint64_t step, cudaStream_t stream) {
    kernel::start_qsgd_encode<Bits>(x.data(), x.size(), by.bucket, out, kernel::qsgd_draws{calls, by.seed, step}, first,
                                    stream);
  }
  template <class T>
  static void decode(const codec& by, const std::byte* in, std::span<T> out, cudaStream_t stream) {
    kernel::start_qsgd_decode<Bits>(in, out.size(), by.bucket, out.data(), stream);
  }
  static std::uint64_t together(const codec& by) noexcept { return by.bucket; }
};

/// Whether values of type T can be encoded by `Codec` on a device.
template <class Codec, class T>
concept codec_on_device = requires(const Codec& codec, std::span<const T> x, std::byte* out, block_position at,
                                   cudaStream_t stream) { device_codec<Codec>::encode(codec, x, out, at, stream); };

/// Whether the encoding by `Codec` says whether the codec refuses a value.
template <class Codec, class T>
concept encodes_or_refuses =
    requires(const Codec& codec, std::span<const T> x, std::byte* out, block_position at, cudaStream_t stream,
             std::uint32_t* refused) { device_codec<Codec>::encode(codec, x, out, at, stream, refused); };
/// Whether one kernel decodes values of `Codec` and reduces others with them.
template <class Codec, class T, class Op>
concept reduces_encoded =
    requires(const Codec& codec, const std::byte* in, std::span<T> inout, Op op, cudaStream_t stream) {
      device_codec<Codec>::reduce_left(codec, in, inout, op, stream);
    };

} // namespace spar::inline v0_1::detail
