// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `zfp` without libzfp: its options, the size of its encoding and its error bound. Includes
// storage/zfp.hpp, which links libzfp to the program, only in files that are compiled for spar::zfp.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/codec.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace spar {

namespace storage {
struct zfp;
} // namespace storage

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

/// The functions of libzfp, which storage/zfp.hpp links to the program. They are called through this table because
/// files with and without libzfp may be parts of one program, in which each class must be the same in all files.
class zfp_library {
 public:
  virtual void encode(const storage::zfp& by, std::span<const float> values, std::span<std::byte> out) const = 0;
  virtual void encode(const storage::zfp& by, std::span<const double> values, std::span<std::byte> out) const = 0;
  virtual void decode(const storage::zfp& by, std::span<const std::byte> in, std::span<float> out) const = 0;
  virtual void decode(const storage::zfp& by, std::span<const std::byte> in, std::span<double> out) const = 0;

  /// Returns the table that `link` was given. Throws `invalid_argument` in a program without libzfp.
  static const zfp_library& linked() {
    const zfp_library* const library = linked_;
    if (library == nullptr) {
      raise<invalid_argument>(
          {"the storage zfp needs libzfp, but no file of this program was compiled with libzfp: link "
           "the CMake target spar::zfp, or include <spar/storage/zfp.hpp> and link libzfp"});
    }
    return *library;
  }
  /// Whether the program has libzfp.
  static bool is_linked() noexcept { return linked_ != nullptr; }
  /// Makes `library` the table of the program.
  static void link(const zfp_library& library) noexcept { linked_ = &library; }

 protected:
  ~zfp_library() = default;

 private:
  static inline detail::atomic<const zfp_library*> linked_ = nullptr;
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
///
/// To use it, include <spar/storage/zfp.hpp>, which needs libzfp. If no file of the program does, `encode` and `decode`
/// throw `invalid_argument`.
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
    check_options();
    return detail::zfp_bytes(rate, count);
  }
  /// Whether zfp can encode these `values`. If not, throws `invalid_argument` unless `non_finite` is
  /// `unsupported::exact`.
  template <element T>
  [[nodiscard]] bool can_encode(std::span<const T> values) const {
    constexpr T most = std::numeric_limits<T>::max() / 8;
    const auto is_other = [](T x) {
      return !(spar::detail::is_at_most(x, most) && spar::detail::is_at_most(-most, x));
    };
    std::size_t others = 0;
    for (const T x : values) others += static_cast<std::size_t>(is_other(x));
    if (others == 0) return true;
    if (non_finite == unsupported::exact) return false;
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
    detail::zfp_library::linked().encode(*this, values, out);
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    detail::check_room<T>(*this, out.size(), in.size());
    detail::zfp_library::linked().decode(*this, in, out);
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
  /// A block in which every |value| is below this number is encoded as zeros.
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return sizeof(T) == 8 ? 0x1p-962 : 0x1p-98;
  }
  /// Returns the seconds to encode or decode a value: libzfp 1.0 takes 2.2 ns per bit plus 1.5 ns per value where a
  /// pass over a dense value takes 0.1 ns.
  template <element T>
  [[nodiscard]] double cost(const network_model& network) const noexcept {
    return (22 * rate + 15) * network.gamma_dense;
  }

 private:
  void check_options() const {
    spar::detail::check_number(rate, {4, 32, "a rate in [4, 32] bits per value"}, "the zfp rate");
    check_threads(threads);
  }
};

} // namespace storage

} // namespace spar

#ifdef SPAR_HAS_ZFP
#include <spar/storage/zfp.hpp> // links libzfp
#endif
