// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Storage policies: how the reduced blocks of a split-allgather travel (SparCML, sections 5.3.3 and 6).
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/storage/kernel/qsgd.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace spar {

/// Where a block that is encoded lies: rounding may depend on these alone.
struct block_position {
  std::uint64_t call = 0;  ///< number of the collective on its communicator
  std::uint64_t first = 0; ///< index of the block's first value in the vector
};

/// A lossy or lossless code for blocks of dense values. The size in bytes is known from the number of values, so that
/// blocks are received in place; every rank, the sender too, goes on with the decoded values. Rejects a code of
/// variable length.
template <class Storage, class T>
concept block_codec =
    std::copyable<Storage> &&
    requires(const Storage& storage, std::size_t count, std::span<const T> values, std::span<T> decoded,
             std::span<const std::byte> bytes, std::span<std::byte> encoded, block_position position) {
      { Storage::name } -> std::convertible_to<std::string_view>;
      { storage.template encoded_bytes<T>(count) } -> std::same_as<std::size_t>;
      storage.encode(values, encoded, position);
      storage.decode(bytes, decoded);
    };

namespace kernel {

namespace detail {

/// In which differences of T are exact, or nearly so.
template <class T>
using wider = std::conditional_t<sizeof(T) < 8, double, long double>;

} // namespace detail

/// `residual[e] += exact[e] - decoded[e]`, rounded once; not where that is no finite number.
template <element T>
[[gnu::noinline]] void add_difference(T* __restrict residual, const T* __restrict exact, const T* __restrict decoded,
                                      std::size_t n) {
  using W = detail::wider<T>;
  for (std::size_t e = 0; e < n; ++e) {
    const W lost = static_cast<W>(exact[e]) - static_cast<W>(decoded[e]);
    if (lost - lost == 0) residual[e] = static_cast<T>(static_cast<W>(residual[e]) + lost);
  }
}

} // namespace kernel

namespace storage {

/// Blocks stay sparse: for results of at most delta entries (SSAR).
struct sparse {
  static constexpr std::string_view name = "sparse";
};

/// Blocks travel as plain values (DSAR).
struct dense {
  static constexpr std::string_view name = "dense";
};

/// Blocks stay sparse, or travel as plain values where these are fewer bytes for all of them together.
struct adaptive {
  static constexpr std::string_view name = "adaptive";
};

/// Buckets of `Bits` bits a value and one scale a bucket, rounded stochastically without bias (Alistarh et al. 2017;
/// SparCML, section 6). Each block begins a bucket. Floating-point values only.
template <int Bits>
struct qsgd {
  static constexpr std::string_view name = Bits == 2 ? "qsgd2" : Bits == 4 ? "qsgd4" : "qsgd8";

  std::size_t bucket = 1024;
  std::uint64_t seed = 0;

  template <element T>
    requires is_floating<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    return kernel::qsgd_codec<Bits>::template encoded_bytes<T>(count, bucket);
  }
  template <element T>
  void encode(std::span<const T> values, std::span<std::byte> out, block_position position) const {
    kernel::qsgd_codec<Bits>::encode(values.data(), values.size(), bucket, out.data(), seed, position.call,
                                     position.first);
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    kernel::qsgd_codec<Bits>::decode(in.data(), out.size(), bucket, out.data());
  }
};

} // namespace storage
} // namespace spar
