// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block codec that encodes values in 8 or 4 bits, with a scale for each 32 values (OCP Microscaling Formats (MX)
// Specification 1.0).
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/mx.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace spar::inline v0_1::storage {

/// The elements of `mx`: 4 bits of exponent and 3 of mantissa.
using kernel::e4m3;
/// The elements of `mx`: 5 bits of exponent and 2 of mantissa.
using kernel::e5m2;
/// The elements of `mx`: 2 bits of exponent and 1 of mantissa.
using kernel::e2m1;

/// Microscaling (MX) formats: encodes each value as an `Element`, which is `e4m3`, `e5m2` (8 bits) or `e2m1` (4 bits),
/// rounded to nearest, ties to even. Each 32 values share a scale of 8 bits, a power of two. Each block starts with a
/// new scale. Values that are larger than the greatest element saturate. A block of 32 values with a NaN or an
/// infinity is decoded as NaN. Supports only floating-point values.
template <class Element>
struct mx {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = Element::name;

  static constexpr void options(auto&&) noexcept {}

  template <element T>
    requires is_floating<T>
  [[nodiscard]] static constexpr std::size_t encoded_bytes(std::size_t count) noexcept {
    return kernel::mx_bytes<Element>(count);
  }
  /// Returns false for finite doubles that are no finite floats.
  template <element T>
  [[nodiscard]] static bool can_encode(std::span<const T> values) noexcept {
    if constexpr (code_of<T> != element_code::float64)
      return true;
    else
      return kernel::largest_finite(values.data(), values.size()) <= std::numeric_limits<float>::max();
  }
  template <element T>
  static void encode(std::span<const T> values, std::span<std::byte> out, block_position) {
    detail::check_room<T>(mx{}, values.size(), out.size());
    kernel::encode_mx<Element>(values.data(), values.size(), reinterpret_cast<std::uint8_t*>(out.data()));
  }
  template <element T>
  static void decode(std::span<const std::byte> in, std::span<T> out) {
    detail::check_room<T>(mx{}, out.size(), in.size());
    kernel::decode_mx<Element>(reinterpret_cast<const std::uint8_t*>(in.data()), out.size(), out.data());
  }
  /// The saturation of a value just below a power of two; other values are rounded by less.
  template <element T>
  [[nodiscard]] static constexpr double relative_error() noexcept {
    return 1 - Element::fill;
  }
  /// Half the smallest element with the smallest scale, and the rounding of a decoded value to a subnormal number of T.
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return 0x1p-127 / static_cast<double>(std::uint64_t{1} << (Element::bias + Element::mantissa)) +
           spar::detail::smallest_of<T>;
  }
  /// The seconds to encode or decode a value, with AVX2. Other processors take twice as long.
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return 2 * network.gamma_dense;
  }
};

} // namespace spar::inline v0_1::storage
