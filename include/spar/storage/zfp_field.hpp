// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `zfp_field`, which encodes fields of one to four dimensions by libzfp (Lindstrom 2014). A program that
// includes this header links libzfp.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>

#include <zfp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

namespace storage {

/// zfp for a field of one to four dimensions: blocks of 4, 16, 64 or 256 values that are neighbours in all dimensions.
/// Set the shape, and at most one of `rate`, `precision` and `accuracy`. If none is set, no bit of a value is lost.
///
/// A schedule cuts the vector into slabs of 4 planes, which go through all dimensions but the slowest: so `zfp_field`
/// composes with `ring`, `recursive_doubling`, `rabenseifner`, `dsar_split`, `two_shot`, `one_shot` and `chains`, on
/// the topologies `flat` and `on_tree`. A piece with NaN, an infinity or a magnitude above an eighth of the largest
/// finite number is sent unencoded, and so is one that would become longer.
///
/// An encoding changes a value by at most `accuracy`, if it is set, plus 2^-22 (double: 2^-50) of the largest |value|
/// of the block, and values below 2^-98 (double: 2^-962) may become zero. With a `precision` of p bits in d dimensions,
/// add (15/4)^d 16/3 2^-p of the largest |value|: planes of at most 16/3 2^-p of it are cut off each coefficient, and
/// the inverse transform multiplies this by at most 15/4 in each dimension (Diffenderfer et al. 2019). With a `rate`
/// there is no bound: the error may be several times the largest |value|.
///
/// Each of these schedules encodes the contributions and partial sums of an index at most P times in all, so the sum is
/// within P times the bound of `accuracy` of the exact sum. There are two exceptions: recursive doubling, which encodes
/// both operands in each round, is within 2 P times this bound, and `chains` over a tree of b branches within P + b - 1
/// times. Additions round, too. `error_bound` knows both bounds, also that of sums with a `precision`.
///
/// Each thread that encodes or decodes keeps memory for the largest encoding of its pieces until it ends. libzfp works
/// there, because its stream of bits cannot move to other memory and does not notice the end of its input.
struct zfp_field {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "zfp_field";

  /// The extents of the field, such as {nx, ny, nz}; that of the first dimension, whose values are neighbours in
  /// memory, comes first. The extents of unused dimensions are 0. Their product is the length of the vector.
  std::array<std::size_t, 4> shape{};
  /// Bits per value, in [1, 8 sizeof(T)]; 0 if not set. The block has a whole number of bits, at least 9 (double: 12).
  double rate = 0;
  unsigned precision = 0; ///< bit planes of each block, in [1, 8 sizeof(T)]; 0 if not set
  double accuracy = 0;    ///< the largest change of a value, a positive finite number; 0 if not set

  void options(auto&& f) const {
    for (const std::size_t extent : shape) f("extent", std::uint64_t{extent});
    f("rate", rate), f("precision", std::uint64_t{precision}), f("accuracy", accuracy);
  }
  /// Throws `invalid_argument` unless `shape` has n values.
  void validate(std::uint64_t n) const {
    check_shape();
    if (n % plane() == 0 && n / plane() == shape[dimensions() - 1]) return;
    raise<invalid_argument>({"the shape of storage zfp_field is ", shape[0], " x ", shape[1], " x ", shape[2], " x ",
                             shape[3], ", with 0 for an unused dimension, but the vector has ", n,
                             " values; expected the product of the extents"});
  }
  /// The number of values in a slab of 4 planes. Pieces of a vector begin at a multiple of it.
  [[nodiscard]] std::size_t grain() const noexcept { return 4 * plane(); }

  /// The largest number of bytes that the encoding of `count` values may have. Throws `invalid_argument` for invalid
  /// options; so do `encode` and `decode`.
  template <element T>
    requires std::floating_point<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    check_options<T>();
    return sizeof(std::uint64_t) + std::max(count * sizeof(T), coder<T>(*this, nullptr, count).most_bytes());
  }
  /// Encodes `values`, whole planes, to `out`, and returns the number of bytes. Throws `invalid_argument` if `out` has
  /// fewer than `encoded_bytes` bytes.
  template <element T>
  std::size_t encode(std::span<const T> values, std::span<std::byte> out, block_position) const {
    detail::check_room<T>(*this, values.size(), out.size());
    check_planes(values.size());
    const std::span<std::byte> body = out.subspan(sizeof(std::uint64_t));
    std::size_t size = values.size_bytes();
    if (!values.empty() && (is_lossless() || takes(values))) {
      const T* from = values.data();
      if (!is_lossless() && std::any_of(values.begin(), values.end(), is_tiny<T>)) {
        static thread_local std::vector<T> without_tiny;
        without_tiny.resize(values.size());
        std::replace_copy_if(values.begin(), values.end(), without_tiny.begin(), is_tiny<T>, T{});
        from = without_tiny.data();
      }
      size = coder<T>(*this, const_cast<T*>(from), values.size()).encode();
    }
    const std::uint64_t form = size < values.size_bytes() ? encoded : plain;
    if (form == encoded)
      std::memcpy(body.data(), kept_bits::of_thread().bytes(), size);
    else if (!values.empty())
      std::memcpy(body.data(), values.data(), size = values.size_bytes());
    std::memcpy(out.data(), &form, sizeof(form));
    return sizeof(form) + size;
  }
  /// Decodes all of `in` to `out`, which has whole planes. Throws `invalid_argument` for invalid options, and
  /// `corrupt_message` if no encoder writes `in` for so many values.
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    check_options<T>();
    check_planes(out.size());
    std::uint64_t form = 2;
    if (in.size() >= sizeof(form)) std::memcpy(&form, in.data(), sizeof(form));
    const std::span<const std::byte> body = in.subspan(std::min(in.size(), sizeof(form)));
    if (form == plain || out.empty()) {
      if (form > plain || body.size() != out.size_bytes()) refuse(in.size(), out.size());
      if (!out.empty()) std::memcpy(out.data(), body.data(), body.size());
    } else if (form != encoded || !coder<T>(*this, out.data(), out.size()).decode(body)) {
      refuse(in.size(), out.size());
    }
  }
  /// An upper bound on the error that is in proportion to the largest |value| of a block; infinity with a `rate`.
  template <element T>
  [[nodiscard]] double relative_error() const noexcept {
    if (is_lossless()) return 0;
    if (rate != 0) return std::numeric_limits<double>::infinity();
    double cut = precision == 0 ? 0 : std::ldexp(16.0 / 3, -static_cast<int>(precision));
    for (std::size_t d = 0; d < dimensions(); ++d) cut *= 15.0 / 4;
    return cut + (std::same_as<T, float> ? 0x1p-22 : 0x1p-50);
  }
  /// The accuracy, and the largest value that becomes zero.
  template <element T>
  [[nodiscard]] double absolute_error() const noexcept {
    return is_lossless() ? 0 : accuracy + double{least<T>};
  }
  /// The seconds to encode or decode a value: 13 ns where a pass over a dense value takes 0.17 ns.
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return 75 * network.gamma_dense;
  }

 private:
  // The first 8 bytes of an encoding: 8, so that the words of libzfp that follow are aligned.
  static constexpr std::uint64_t encoded = 0, plain = 1;

  /// A thread's stream of bits for libzfp, over memory that grows with the longest encoding.
  class kept_bits {
   public:
    static kept_bits& of_thread() {
      static thread_local kept_bits its;
      return its;
    }
    kept_bits(const kept_bits&) = delete;
    ~kept_bits() { close(); }
    /// The beginning of the stream, which has room for `most` bytes and the words that libzfp reads ahead.
    [[nodiscard]] bitstream* begin(std::size_t most) {
      const std::size_t words = most / sizeof(std::uint64_t) + 3;
      if (stream_ == nullptr || words > words_.size()) {
        close();
        if (words > words_.size()) words_.resize(words);
        stream_ = stream_open(words_.data(), words_.size() * sizeof(std::uint64_t));
        if (stream_ == nullptr) throw std::bad_alloc();
      }
      stream_rewind(stream_);
      return stream_;
    }
    [[nodiscard]] std::uint64_t* bytes() noexcept { return words_.data(); }

   private:
    kept_bits() = default;
    void close() noexcept {
      if (stream_ != nullptr) stream_close(std::exchange(stream_, nullptr));
    }

    std::vector<std::uint64_t> words_;
    bitstream* stream_ = nullptr;
  };

  /// libzfp's descriptors of the stream of bits and of the values of a piece.
  template <class T>
  class coder {
   public:
    coder(const zfp_field& how, T* values, std::size_t count) {
      const std::size_t planes = (count + how.plane() - 1) / how.plane();
      values_.type = std::same_as<T, float> ? zfp_type_float : zfp_type_double;
      values_.data = values;
      std::size_t* const extents[] = {&values_.nx, &values_.ny, &values_.nz, &values_.nw};
      for (std::size_t d = 0; d < how.dimensions(); ++d) *extents[d] = d + 1 < how.dimensions() ? how.shape[d] : planes;
      if (how.rate != 0)
        zfp_stream_set_rate(&stream_, how.rate, values_.type, static_cast<unsigned>(how.dimensions()), 0);
      else if (how.precision != 0)
        zfp_stream_set_precision(&stream_, how.precision);
      else if (how.accuracy != 0)
        zfp_stream_set_accuracy(&stream_, how.accuracy);
      else
        zfp_stream_set_reversible(&stream_);
    }
    /// The number of bytes that libzfp may write or read.
    [[nodiscard]] std::size_t most_bytes() const { return zfp_stream_maximum_size(&stream_, &values_); }
    /// Encodes to the thread's stream of bits, and returns the number of bytes.
    std::size_t encode() {
      stream_.stream = kept_bits::of_thread().begin(most_bytes());
      return zfp_compress(&stream_, &values_);
    }
    /// Returns whether the encoding ends with the last byte of `in`.
    bool decode(std::span<const std::byte> in) {
      const std::size_t most = most_bytes();
      if (in.size() > most) return false;
      stream_.stream = kept_bits::of_thread().begin(most);
      if (!in.empty()) std::memcpy(kept_bits::of_thread().bytes(), in.data(), in.size());
      return zfp_decompress(&stream_, &values_) == in.size();
    }

   private:
    ::zfp_stream stream_{};
    ::zfp_field values_{};
  };

  [[nodiscard]] bool is_lossless() const noexcept { return rate == 0 && precision == 0 && accuracy == 0; }
  [[nodiscard]] std::size_t dimensions() const noexcept {
    return static_cast<std::size_t>(std::find(shape.begin(), shape.end(), 0) - shape.begin());
  }
  /// The number of values in a plane, which has all dimensions but the slowest.
  [[nodiscard]] std::size_t plane() const noexcept {
    std::size_t values = 1;
    for (std::size_t d = 0; d + 1 < dimensions(); ++d) values *= shape[d];
    return values;
  }

  /// Whether libzfp encodes all of these values within its error.
  template <class T>
  static bool takes(std::span<const T> values) noexcept {
    constexpr T most = std::numeric_limits<T>::max() / 8;
    return std::all_of(values.begin(), values.end(),
                       [](T x) { return spar::detail::is_at_most(x, most) && spar::detail::is_at_most(-most, x); });
  }
  /// The smallest |value| that libzfp encodes; its scale of a block of smaller values would be infinite.
  template <class T>
  static constexpr T least = static_cast<T>(std::same_as<T, float> ? 0x1p-98 : 0x1p-962);
  template <class T>
  static bool is_tiny(T x) noexcept {
    return x != 0 && std::abs(x) < least<T>;
  }

  void check_shape() const {
    const auto rest = shape.begin() + static_cast<std::ptrdiff_t>(dimensions());
    std::size_t values = 1;
    for (std::size_t d = 0; d < dimensions(); ++d)
      values = values != 0 && shape[d] <= (std::size_t{1} << 60) / values ? values * shape[d] : 0;
    if (rest != shape.begin() && values != 0 && std::all_of(rest, shape.end(), [](std::size_t e) { return e == 0; }))
      return;
    raise<invalid_argument>({"the shape of storage zfp_field is ", shape[0], " x ", shape[1], " x ", shape[2], " x ",
                             shape[3],
                             "; expected one to four extents of at least 1, then 0, and at most 2^60 values"});
  }
  template <class T>
  void check_options() const {
    constexpr unsigned bits = 8 * sizeof(T);
    check_shape();
    if ((rate != 0) + (precision != 0) + (accuracy != 0) > 1) {
      raise<invalid_argument>({"the storage zfp_field has the rate ", rate, ", the precision ", precision,
                               " and the accuracy ", accuracy, "; expected at most one that is not 0"});
    }
    constexpr const char* of_rate =
        bits == 32 ? "a rate in [1, 32] bits per value" : "a rate in [1, 64] bits per value";
    if (rate != 0) spar::detail::check_number(rate, {1, bits, of_rate}, "the rate of storage zfp_field");
    if (precision > bits)
      raise<invalid_argument>({"the precision of storage zfp_field is ", precision, "; expected at most ", bits});
    if (accuracy != 0) {
      spar::detail::check_number(accuracy,
                                 {std::numeric_limits<double>::min(), spar::detail::valid::greatest,
                                  "a positive, finite number, and no subnormal one"},
                                 "the accuracy of storage zfp_field");
    }
  }
  void check_planes(std::size_t count) const {
    if (count % plane() == 0) return;
    raise<invalid_argument>(
        {"the storage zfp_field encodes whole planes of ", plane(), " values, but got ", count, " values"});
  }
  [[noreturn, gnu::cold]] static void refuse(std::size_t bytes, std::size_t values) {
    raise<corrupt_message>(
        {"a malformed encoding of ", values, " values by the storage zfp_field arrived in ", bytes, " bytes"});
  }
};

} // namespace storage

} // namespace spar::inline v0_1
