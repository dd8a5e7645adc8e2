// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block codecs of two bytes a value, bfloat16 and IEEE binary16.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/short_floats.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

namespace spar::inline v0_1::storage {

/// Encodes each floating-point value in two bytes, rounded to nearest. NaN stays NaN, and infinities stay infinite.
/// `can_encode` returns false for a block with a finite value that would become infinite. `Code` is `kernel::half_code`
/// or `kernel::bfloat16_code`.
template <class Code>
struct short_float {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = std::same_as<Code, kernel::half_code> ? "half" : "bfloat16";

  static constexpr void options(auto&&) noexcept {}

  template <element T>
    requires is_floating<T>
  [[nodiscard]] static constexpr std::size_t encoded_bytes(std::size_t count) noexcept {
    return 2 * count;
  }
  template <element T>
  [[nodiscard]] static bool can_encode(std::span<const T> values) noexcept {
    return static_cast<float>(kernel::largest_finite(values.data(), values.size())) < kernel::short_limit<Code, T>;
  }
  template <element T>
  static void encode(std::span<const T> values, std::span<std::byte> out, block_position) {
    spar::detail::check_room<T>(short_float{}, values.size(), out.size());
    kernel::encode_short<Code>(values.data(), values.size(), out.data());
  }
  template <element T>
  static void decode(std::span<const std::byte> in, std::span<T> out) {
    spar::detail::check_room<T>(short_float{}, out.size(), in.size());
    kernel::decode_short<Code>(in.data(), out.size(), out.data());
  }
  /// Decodes `in`, and adds the values to `inout`. Throws `invalid_argument` if `in` is too short.
  template <element T>
  static void decode_and_add(std::span<const std::byte> in, std::span<T> inout) {
    spar::detail::check_room<T>(short_float{}, inout.size(), in.size());
    kernel::decode_short<Code, true>(in.data(), inout.size(), inout.data());
  }
  /// An upper bound on the relative error of each value, except for values so small that the code has fewer bits of
  /// precision.
  template <element T>
  [[nodiscard]] static constexpr double relative_error() noexcept {
    return Code::relative_error;
  }
  /// Half the smallest number of the code, and the rounding of a decoded value to a subnormal number of T.
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return Code::smallest / 2 + spar::detail::smallest_of<T>;
  }
  /// The seconds to encode or decode a value, with AVX2. Other processors take up to six times as long.
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return 1.5 * network.gamma_dense;
  }
};

/// Encodes values as bfloat16, the upper half of an IEEE binary32: 8 bits of precision, with the range of float.
using as_bfloat16 = short_float<kernel::bfloat16_code>;
/// Encodes values as IEEE binary16: 11 bits of precision, for magnitudes up to 65504.
using as_half = short_float<kernel::half_code>;

} // namespace spar::inline v0_1::storage
