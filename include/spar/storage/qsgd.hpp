// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block codec of QSGD, which quantises values with stochastic rounding.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/qsgd.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::storage {

/// QSGD: encodes each value in `Bits` bits, with one scale per bucket of `bucket` values, rounding stochastically
/// without bias (Alistarh et al. 2017; SparCML, section 6). Each block starts a new bucket. Supports only
/// floating-point values.
template <int Bits>
struct qsgd {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = Bits == 2 ? "qsgd2" : Bits == 4 ? "qsgd4" : "qsgd8";
  static_assert(Bits == 2 || Bits == 4 || Bits == 8, "storage::qsgd<Bits> encodes a value in 2, 4 or 8 bits");

  std::size_t bucket = 1024; ///< the number of values that share a scale, at least 1
  std::uint64_t seed = 0;    ///< the seed of the stochastic rounding

  /// The size of the encoding of `count` values, in bytes. Throws `invalid_argument` if `bucket` is 0.
  template <element T>
    requires is_floating<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    return kernel::qsgd_codec<Bits>::template encoded_bytes<T>(count, bucket);
  }
  template <element T>
  void encode(std::span<const T> values, std::span<std::byte> out, block_position position) const {
    spar::detail::check_room<T>(*this, values.size(), out.size());
    kernel::qsgd_codec<Bits>::encode(values.data(), values.size(), bucket, out.data(), seed, position.call,
                                     position.first);
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    spar::detail::check_room<T>(*this, out.size(), in.size());
    kernel::qsgd_codec<Bits>::decode(in.data(), out.size(), bucket, out.data());
  }
  void options(auto&& f) const { f("bucket", bucket), f("seed", seed); }
  /// The distance of two levels, and the rounding of the decoded value to T.
  template <element T>
  [[nodiscard]] static constexpr double relative_error() noexcept {
    const double rounding = code_of<T> == element_code::bfloat16  ? 0x1p-8
                            : code_of<T> == element_code::float16 ? 0x1p-11
                                                                  : 0;
    return 1.0 / kernel::qsgd_codec<Bits>::levels + 0x1p-20 + rounding;
  }
  /// The rounding of a decoded value to a subnormal number of T.
  template <element T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return spar::detail::smallest_of<T>;
  }
  /// The seconds to encode or decode a value, with AVX2. Other processors encode three times as slowly.
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return 2.5 * network.gamma_dense;
  }
};

} // namespace spar::inline v0_1::storage
