// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `zfp`, which encodes values in fixed-rate zfp blocks (Zhou et al., section II-C; Lindstrom 2014).
// Requires libzfp: link the CMake target spar::zfp.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/codec.hpp>

#include <zfp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <span>
#include <string_view>

namespace spar {

namespace detail {

/// Returns the number of bits of an encoded block of four values: 4 * `rate`, rounded as libzfp rounds it.
inline std::size_t zfp_block_bits(double rate) noexcept { return static_cast<std::size_t>(std::floor(4 * rate + 0.5)); }

/// A zfp stream that encodes and decodes up to 64 blocks at a time in a buffer of its own. Because of this buffer, the
/// caller's memory may have any alignment.
template <class T>
class zfp_portion {
 public:
  /// The number of blocks encoded or decoded at a time: 64 blocks fill whole 64-bit words at any rate.
  static constexpr std::size_t blocks = 64;
  static constexpr std::size_t values = 4 * blocks;

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

  /// Returns the size in bytes of `count` encoded values, rounded up to whole 64-bit words. `count` is at most
  /// `values`.
  static std::size_t bytes(double rate, std::size_t count) noexcept {
    return ((count + 3) / 4 * zfp_block_bits(rate) + 63) / 64 * 8;
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

  std::array<std::uint64_t, 32 * values / 64> words_; // at most 32 bits per value
  bitstream* bits_;
  zfp_stream* zfp_ = nullptr;
};

} // namespace detail

namespace storage {

/// What the storage `zfp` does with values that zfp cannot encode: NaN, infinities, and values whose magnitude exceeds
/// an eighth of the largest finite number.
enum class unsupported {
  rejected, ///< throw `invalid_argument`
  exact     ///< send each piece with such a value uncompressed; throw if the schedule cannot send uncompressed pieces
};

/// Fixed-rate zfp in one dimension, for float and double: a block of four values takes 4 * `rate` bits. The number of
/// values need not be a multiple of four.
///
/// The error |decoded - value| is at most `relative_error` times the largest |value| of the block of four, plus 2^-98
/// (double: 2^-962), because a block in which every |value| is below this number is encoded as zeros. zfp is not
/// idempotent: encoding decoded values again can give different values.
struct zfp {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "zfp";

  double rate = 16;                               ///< bits per value
  unsupported non_finite = unsupported::rejected; ///< what is done with values that zfp cannot encode
  int threads = 1; ///< maximum number of threads per call of `encode` or `decode`; uses at most one per 1024 values

  /// The size of the encoding of `count` values, in bytes. Throws `invalid_argument` for a rate outside [4, 32] or a
  /// number of threads outside [1, 256]; so do `encode` and `decode`.
  template <element T>
    requires std::floating_point<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    check();
    return bytes<T>(count);
  }
  /// Whether zfp can encode these `values`. If not, throws `invalid_argument` unless `non_finite` is
  /// `unsupported::exact`.
  template <element T>
  [[nodiscard]] bool carries(std::span<const T> values) const {
    // Both comparisons are false for NaN, so `others` also counts NaN.
    constexpr T most = std::numeric_limits<T>::max() / 8;
    std::size_t others = 0;
    for (const T x : values) others += static_cast<std::size_t>(!(x <= most && x >= -most));
    if (others == 0) return true;
    if (non_finite == unsupported::exact) return false;
    const auto bad = std::find_if(values.begin(), values.end(), [&](T x) { return !(x <= most && x >= -most); });
    raise<invalid_argument>(
        {"zfp cannot encode ",
         bad[0] != bad[0] ? "NaN" : "infinite values and magnitudes above an eighth of the largest finite number", ": ",
         others, " of ", values.size(), " values in a piece are unsupported, the first at index ", bad - values.begin(),
         " of the piece; to send such pieces uncompressed, set non_finite = unsupported::exact"});
  }
  template <element T>
  void encode(std::span<const T> values, std::span<std::byte> out, block_position) const {
    detail::check_room<T>(*this, values.size(), out.size());
    in_portions<T>(values.size(), [&](auto& blocks, std::size_t first, std::size_t count) {
      blocks.encode(values.data() + first, count, out.data() + bytes<T>(first),
                    detail::zfp_portion<T>::bytes(rate, count));
    });
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    detail::check_room<T>(*this, out.size(), in.size());
    in_portions<T>(out.size(), [&](auto& blocks, std::size_t first, std::size_t count) {
      blocks.decode(in.data() + bytes<T>(first), detail::zfp_portion<T>::bytes(rate, count), out.data() + first, count);
    });
  }
  template <class F>
  void options(F&& f) const {
    f("rate", rate), f("exact_where_uncarried", std::uint64_t{non_finite == unsupported::exact});
  }

  /// Returns an upper bound on |decoded - value| divided by the largest |value| of the block. The formula is fitted to
  /// measurements, with a safety margin, and tested on eight kinds of values. Of the 4 * `rate` bits of a block, the
  /// exponent takes 9 (double: 12), and each bit plane takes about 4.
  template <element T>
  [[nodiscard]] double relative_error() const noexcept {
    const double bits = static_cast<double>(detail::zfp_block_bits(rate)) / 4;
    return 1.5 * std::exp2((sizeof(T) == 8 ? 7 : 6) - bits) + 0x1p-25;
  }
  /// Returns the time to encode or decode a value, as a multiple of gamma_dense: libzfp 1.0 takes 2.2 ns per bit plus
  /// 1.5 ns per value, and gamma_dense is assumed to be 0.1 ns.
  template <element T>
  [[nodiscard]] double cost() const noexcept {
    return 22 * rate + 15;
  }

 private:
  void check() const {
    spar::detail::check_number({"the zfp rate"}, rate, {4, 32, "a rate in [4, 32] bits per value"});
    check_threads(threads);
  }
  template <class T>
  [[nodiscard]] std::size_t bytes(std::size_t count) const noexcept {
    constexpr std::size_t whole = detail::zfp_portion<T>::values;
    return count / whole * detail::zfp_portion<T>::bytes(rate, whole) +
           detail::zfp_portion<T>::bytes(rate, count % whole);
  }
  /// Splits n values into portions of up to 64 zfp blocks, and calls `work(blocks, first, count)` for each portion, on
  /// up to `threads` threads. `blocks` is the thread's own zfp stream.
  template <class T, class Work>
  void in_portions(std::size_t n, const Work& work) const {
    constexpr std::size_t whole = detail::zfp_portion<T>::values;
    const std::size_t portions = (n + whole - 1) / whole;
    // `useful_threads` assumes little work per value; zfp takes about 32 times as long per value.
    const int parts = spar::detail::useful_threads(threads, 32 * n);
    const auto part = [&](detail::zfp_portion<T>& blocks, int p) {
      const std::size_t end = spar::detail::part_begin(portions, p + 1, parts);
      for (std::size_t i = spar::detail::part_begin(portions, p, parts); i < end; ++i) {
        work(blocks, i * whole, std::min(whole, n - i * whole));
      }
    };
    if (parts == 1) {
      detail::zfp_portion<T> blocks(rate);
      part(blocks, 0);
      return;
    }
    // Creates the zfp stream of each thread before the threads start, because a constructor may throw, but the work of
    // a thread must not throw.
    fixed_vector<detail::zfp_portion<T>> of_part(*std::pmr::new_delete_resource(), static_cast<std::size_t>(parts));
    for (int p = 0; p < parts; ++p) of_part.emplace_back(rate);
    spar::detail::in_parallel(0, parts, [&](int p) { part(of_part[static_cast<std::size_t>(p)], p); });
  }
};

} // namespace storage

} // namespace spar
