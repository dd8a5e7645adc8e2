// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `zfp`, which encodes values in fixed-rate zfp blocks (Zhou et al., section II-C; Lindstrom 2014).
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/zfp/coder.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

/// Returns the number of bits of an encoded block of four values: 4 * `rate`, rounded as libzfp rounds it.
inline std::size_t zfp_block_bits(double rate) noexcept { return static_cast<std::size_t>(std::floor(4 * rate + 0.5)); }

/// Values are encoded in portions of this number: 64 blocks of four, which fill whole 64-bit words at any rate.
inline constexpr std::size_t zfp_portion_values = 256;

/// Returns the size in bytes of `count` encoded values. A portion is rounded up to whole 64-bit words.
inline std::size_t zfp_bytes(double rate, std::size_t count) noexcept {
  const auto of_portion = [&](std::size_t values) { return ((values + 3) / 4 * zfp_block_bits(rate) + 63) / 64 * 8; };
  return count / zfp_portion_values * of_portion(zfp_portion_values) + of_portion(count % zfp_portion_values);
}

/// Divides `count` values among up to `threads` threads, and calls `work(first, count, begin)` for each part. `begin`
/// is the position of the part's first byte. Parts end at whole portions, so that no byte belongs to two of them.
template <class Work>
void in_zfp_parts(int threads, double rate, std::size_t count, const Work& work) {
  const std::size_t portions = (count + zfp_portion_values - 1) / zfp_portion_values;
  const int parts = useful_threads(threads, 8 * count); // which assumes less work per value
  in_parallel(0, parts, [&](int p) {
    const std::size_t first = part_begin(portions, p, parts) * zfp_portion_values;
    const std::size_t last = std::min(part_begin(portions, p + 1, parts) * zfp_portion_values, count);
    work(first, last - first, zfp_bytes(rate, first));
  });
}

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
///
/// The bytes are those of libzfp 1.0, in which a block has whole bits, so the rate is a multiple of a quarter of a bit.
struct zfp {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "zfp";

  double rate = 16;                               ///< bits per value, from 4 to 32 in steps of 0.25
  unsupported non_finite = unsupported::rejected; ///< what is done with values that zfp cannot encode
  int threads = 1; ///< maximum number of threads per call of `encode` or `decode`; uses at most one per 4096 values

  /// The size of the encoding of `count` values, in bytes. Throws `invalid_argument` for a rate that is not a
  /// multiple of 0.25 in [4, 32], or a number of threads outside [1, 256]; so do `encode` and `decode`.
  template <element T>
    requires std::floating_point<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    check_options();
    return detail::zfp_bytes(rate, count);
  }
  /// Whether zfp can encode these `values`. If not, throws `invalid_argument` unless `non_finite` is
  /// `unsupported::exact`.
  template <element T>
  [[nodiscard]] bool can_encode(std::span<const T> values) const {
    if (kernel::is_zfp_encodable(values.data(), values.size())) return true;
    if (non_finite == unsupported::exact) return false;
    const auto is_other = [](const T& x) { return !kernel::is_zfp_encodable(&x, 1); };
    const auto others = std::count_if(values.begin(), values.end(), is_other);
    const auto bad = std::find_if(values.begin(), values.end(), is_other);
    raise<invalid_argument>(
        {"zfp cannot encode ",
         spar::detail::is_nan(bad[0]) ? "NaN"
                                      : "infinite values and magnitudes above an eighth of the largest finite number",
         ": ", others, " of ", values.size(), " values in a piece are unsupported, the first at index ",
         bad - values.begin(), " of the piece; to send such pieces uncompressed, set non_finite = unsupported::exact"});
  }
  template <element T>
  void encode(std::span<const T> values, std::span<std::byte> out, block_position) const {
    detail::check_room<T>(*this, values.size(), out.size());
    const auto limit = static_cast<unsigned>(detail::zfp_block_bits(rate));
    detail::in_zfp_parts(threads, rate, values.size(), [&](std::size_t first, std::size_t count, std::size_t begin) {
      kernel::encode_zfp(values.data() + first, count, limit, out.data() + begin);
    });
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    decode(in, out, false);
  }
  /// Decodes `in`, and adds the values to `inout`. Throws `invalid_argument` like `decode`.
  template <element T>
  void decode_and_add(std::span<const std::byte> in, std::span<T> inout) const {
    decode(in, inout, true);
  }
  void options(auto&& f) const {
    f("rate", rate), f("exact_where_uncarried", std::uint64_t{non_finite == unsupported::exact});
  }

  /// Returns an upper bound on |decoded - value| divided by the largest |value| of the block. The formula is fitted to
  /// measurements, with a safety margin. Of the 4 * `rate` bits of a block, the exponent takes 9 (double: 12), and each
  /// bit plane takes about 4. At low rates, a decoded value can have the wrong sign, and the bound is at least 6: with
  /// 2^e at most the largest |value| and below 2 times it, a value is below 2 * 2^e, and a decoded one at most 4 * 2^e.
  template <element T>
  [[nodiscard]] double relative_error() const noexcept {
    const double bits = static_cast<double>(detail::zfp_block_bits(rate)) / 4;
    const double one = sizeof(T) == 8 ? 7 : 6; // the rate from which on no decoded value has the wrong sign
    return std::max(1.5 * std::exp2(one - bits) + 0x1p-25, bits < one ? 6.0 : 0.0);
  }
  /// A block in which every |value| is below this number is encoded as zeros.
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return sizeof(T) == 8 ? 0x1p-962 : 0x1p-98;
  }
  /// The seconds to encode or decode a value, with AVX-512. With AVX2 alone, rates up to 16 take up to twice as long;
  /// without it, three times.
  template <element T>
  [[nodiscard]] double cost(const network_model& network) const noexcept {
    return (rate <= 16 ? 4 + rate / 8 : 8 + 0.3 * rate) * network.gamma_dense;
  }

 private:
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out, bool add) const {
    detail::check_room<T>(*this, out.size(), in.size());
    const auto limit = static_cast<unsigned>(detail::zfp_block_bits(rate));
    detail::in_zfp_parts(threads, rate, out.size(), [&](std::size_t first, std::size_t count, std::size_t begin) {
      kernel::decode_zfp(in.data() + begin, count, limit, out.data() + first, add);
    });
  }
  void check_options() const {
    constexpr const char* expected = "a rate in [4, 32] bits per value, a multiple of 0.25";
    spar::detail::check_number(rate, {4, 32, expected}, "the zfp rate");
    if (std::floor(4 * rate) != 4 * rate) raise<invalid_argument>({"the zfp rate is ", rate, "; expected ", expected});
    check_threads(threads);
  }
};

} // namespace storage

} // namespace spar::inline v0_1
