// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lossless block codec of integers, which encodes the differences of neighbours in as few bits as a block needs.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/packed_integers.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::storage {

/// Encodes integers of 32 or 64 bits without loss: the differences of neighbours, in blocks of 128 values of one bit
/// width each. The encoding has as many bytes as the values need.
struct packed {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "packed";
  static constexpr bool exact = true; ///< values keep all their bits

  /// No block may need more bits a value: a caller that knows the largest value gets smaller buffers and better
  /// predictions of the model. With as many bits as an integer has, `cheapest` sends integers unencoded, because the
  /// model sees no gain. Differences of values up to m in magnitude need std::bit_width(4 * m) bits. In an
  /// allreduce, this holds for the sums, too.
  unsigned bits = 64;

  void options(auto&& f) const { f("bits", bits); }
  /// The largest number of bytes that the encoding of `count` values may have.
  template <element T>
    requires std::integral<T> && (sizeof(T) >= 4)
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const noexcept {
    return kernel::packed_room<T>(count, width<T>());
  }
  /// Encodes `values` to `out`, and returns the number of bytes written. Throws `invalid_argument` if `out` has fewer
  /// than `encoded_bytes` bytes, or if a difference of neighbours needs more than `bits` bits.
  template <element T>
  std::size_t encode(std::span<const T> values, std::span<std::byte> out, block_position) const {
    detail::check_room<T>(*this, values.size(), out.size());
    const std::size_t size = kernel::pack_integers(values.data(), values.size(), out.data(), width<T>());
    if (size == kernel::packed_too_wide) {
      raise<invalid_argument>({"the differences of ", values.size(), " integers need more than ", width<T>(),
                               " bits, the option `bits` of the storage packed"});
    }
    return size;
  }
  /// Decodes all of `in` to `out`. Throws `corrupt_message` if `in` has impossible widths, or not the number of
  /// bytes of these widths.
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    check_form<T>(in, out.size());
    kernel::unpack_integers<false>(in.data(), out.size(), out.data());
  }
  /// Decodes all of `in`, and adds the values to `inout`. Throws `corrupt_message` as `decode` does.
  template <element T>
  void decode_and_add(std::span<const std::byte> in, std::span<T> inout) const {
    check_form<T>(in, inout.size());
    kernel::unpack_integers<true>(in.data(), inout.size(), inout.data());
  }
  /// The seconds to encode or decode a value.
  template <element T>
  [[nodiscard]] static constexpr double cost(const network_model& network) noexcept {
    return 2 * network.gamma_dense;
  }

 private:
  template <element T>
  [[nodiscard]] unsigned width() const noexcept {
    return std::min(bits, static_cast<unsigned>(8 * sizeof(T)));
  }
  template <element T>
  void check_form(std::span<const std::byte> in, std::size_t count) const {
    if (kernel::is_packed<T>(in.data(), in.size(), count, width<T>())) return;
    raise<corrupt_message>({"a malformed encoding of ", count, " packed integers arrived in ", in.size(),
                            " bytes; expected the widths of blocks, at most ", width<T>(), " bits, and the blocks"});
  }
};

} // namespace spar::inline v0_1::storage
