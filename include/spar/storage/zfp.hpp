// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `zfp`, which encodes values in fixed-rate zfp blocks (Zhou et al., section II-C; Lindstrom 2014).
// Requires libzfp: link the CMake target spar::zfp.
#pragma once

#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/zfp_code.hpp>

#include <zfp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <new>
#include <span>

namespace spar::detail {

/// A zfp stream that encodes and decodes a portion of values at a time in its own buffer. Because of this buffer,
/// the caller's memory may have any alignment.
template <class T>
class zfp_portion {
 public:
  explicit zfp_portion(double rate) : bits_(stream_open(words_.data(), sizeof(words_))) {
    if (bits_ != nullptr) zfp_ = zfp_stream_open(bits_);
    if (zfp_ == nullptr) {
      if (bits_ != nullptr) stream_close(bits_);
      throw std::bad_alloc();
    }
    zfp_stream_set_rate(zfp_, rate, std::same_as<T, double> ? zfp_type_double : zfp_type_float, 1, 0);
  }
  zfp_portion(const zfp_portion&) = delete;
  ~zfp_portion() {
    zfp_stream_close(zfp_);
    stream_close(bits_);
  }

  void encode(const T* x, std::size_t count, std::byte* out, std::size_t size) {
    stream_rewind(bits_);
    std::size_t e = 0;
    for (; e + 4 <= count; e += 4) encode_block(x + e, 4);
    if (e < count) encode_block(x + e, count - e);
    stream_flush(bits_);
    std::memcpy(out, words_.data(), size);
  }
  void decode(const std::byte* in, std::size_t size, T* x, std::size_t count) {
    std::memcpy(words_.data(), in, size);
    stream_rewind(bits_);
    std::size_t e = 0;
    for (; e + 4 <= count; e += 4) decode_block(x + e, 4);
    if (e < count) decode_block(x + e, count - e);
  }

 private:
  void encode_block(const T* x, std::size_t count) {
    // zfp scales a block by 2^30 (double: 2^62) divided by the largest |value| of the block. The scale would be
    // infinite if the largest |value| were below `smallest`, so such a block is encoded as zeros.
    constexpr T smallest = std::same_as<T, double> ? static_cast<T>(0x1p-962) : static_cast<T>(0x1p-98);
    static constexpr std::array<T, 4> zeros{};
    T top = 0;
    for (std::size_t e = 0; e < count; ++e) top = std::max(top, std::abs(x[e]));
    const T* const block = top < smallest ? zeros.data() : x;
    if constexpr (std::same_as<T, double>) {
      if (count == 4)
        zfp_encode_block_double_1(zfp_, block);
      else
        zfp_encode_partial_block_strided_double_1(zfp_, block, count, 1);
    } else {
      if (count == 4)
        zfp_encode_block_float_1(zfp_, block);
      else
        zfp_encode_partial_block_strided_float_1(zfp_, block, count, 1);
    }
  }
  void decode_block(T* x, std::size_t count) {
    if constexpr (std::same_as<T, double>) {
      if (count == 4)
        zfp_decode_block_double_1(zfp_, x);
      else
        zfp_decode_partial_block_strided_double_1(zfp_, x, count, 1);
    } else {
      if (count == 4)
        zfp_decode_block_float_1(zfp_, x);
      else
        zfp_decode_partial_block_strided_float_1(zfp_, x, count, 1);
    }
  }

  std::array<std::uint64_t, 32 * zfp_portion_values / 64> words_; // at most 32 bits per value
  bitstream* bits_;
  zfp_stream* zfp_ = nullptr;
};

/// Splits n values into portions, and calls `work(stream, first, count)` for each portion, on up to `by.threads`
/// threads. `stream` is the thread's own zfp stream.
template <class T, class Work>
void in_zfp_portions(const storage::zfp& by, std::size_t n, const Work& work) {
  const std::size_t portions = (n + zfp_portion_values - 1) / zfp_portion_values;
  // `useful_threads` assumes little work per value; zfp takes about 32 times as long per value.
  const int parts = useful_threads(by.threads, 32 * n);
  const auto part = [&](zfp_portion<T>& stream, int p) {
    const std::size_t end = part_begin(portions, p + 1, parts);
    for (std::size_t i = part_begin(portions, p, parts); i < end; ++i) {
      work(stream, i * zfp_portion_values, std::min(zfp_portion_values, n - i * zfp_portion_values));
    }
  };
  if (parts == 1) {
    zfp_portion<T> stream(by.rate);
    part(stream, 0);
    return;
  }
  // Creates the zfp stream of each thread before the threads start. A constructor may throw; the work of a thread must
  // not.
  fixed_vector<zfp_portion<T>> of_part(*std::pmr::new_delete_resource(), static_cast<std::size_t>(parts));
  for (int p = 0; p < parts; ++p) of_part.emplace_back(by.rate);
  in_parallel(0, parts, [&](int p) { part(of_part[static_cast<std::size_t>(p)], p); });
}

/// Calls libzfp.
class zfp_calls final : public zfp_library {
 public:
  void encode(const storage::zfp& by, std::span<const float> values, std::span<std::byte> out) const override {
    encode_all(by, values, out);
  }
  void encode(const storage::zfp& by, std::span<const double> values, std::span<std::byte> out) const override {
    encode_all(by, values, out);
  }
  void decode(const storage::zfp& by, std::span<const std::byte> in, std::span<float> out) const override {
    decode_all(by, in, out);
  }
  void decode(const storage::zfp& by, std::span<const std::byte> in, std::span<double> out) const override {
    decode_all(by, in, out);
  }

 private:
  template <class T>
  static void encode_all(const storage::zfp& by, std::span<const T> values, std::span<std::byte> out) {
    in_zfp_portions<T>(by, values.size(), [&](zfp_portion<T>& stream, std::size_t first, std::size_t count) {
      stream.encode(values.data() + first, count, out.data() + zfp_bytes(by.rate, first), zfp_bytes(by.rate, count));
    });
  }
  template <class T>
  static void decode_all(const storage::zfp& by, std::span<const std::byte> in, std::span<T> out) {
    in_zfp_portions<T>(by, out.size(), [&](zfp_portion<T>& stream, std::size_t first, std::size_t count) {
      stream.decode(in.data() + zfp_bytes(by.rate, first), zfp_bytes(by.rate, count), out.data() + first, count);
    });
  }
};
inline constexpr zfp_calls calls_zfp;
/// Links libzfp to the program before `main`.
inline const bool zfp_is_linked = (zfp_library::link(calls_zfp), true);

} // namespace spar::detail
