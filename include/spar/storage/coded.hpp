// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `coded`, which sends the entries of sparse streams in about half the bytes of coordinates.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/rows.hpp>
#include <spar/storage/kernel/coded_indices.hpp>
#include <spar/storage/kernel/coded_values.hpp>
#include <spar/storage/stream_codec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::storage {

/// A stream codec for indices and values of which most bits are known: an index of a set of density d takes about
/// log2(1 / d) + 1.5 bits in place of 32, and a value with a magnitude close to others 22 to 25 bits. Each 256 gaps
/// between indices, and each 256 distances of values from the smallest or largest magnitude of the message, are in Rice
/// code, or have equal widths if this is smaller; adjacent indices become runs. Values of types other than those of the
/// library are copied.
///
/// `Mantissa` is the number of bits of the mantissa that floating-point values keep, rounded to nearest, ties to even,
/// from 1 to 52: 7 gives the precision of bfloat16. A type with fewer bits keeps them all, and so do integers. The
/// default preserves all values. The values of rows are encoded like a vector of as many values. All ranks, the sender
/// included, continue with the rounded values, which stay finite if they were; give a residual to the call to keep the
/// differences.
template <unsigned Mantissa = 52>
struct coded {
  static_assert(Mantissa >= 1 && Mantissa <= 52, "storage::coded<Mantissa> keeps 1 to 52 bits of each mantissa");
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "coded";
  static constexpr bool exact = Mantissa == 52; ///< whether values keep all their bits

  /// Whether all blocks have numbers of equal widths: 2 to 4 bits more for an entry, but encoded and decoded in a third
  /// of the time. Only these are encoded on devices, and there never as runs.
  bool fast = false;

  void options(auto&& f) const { f("mantissa", std::uint64_t{Mantissa}), f("fast", std::uint64_t{fast}); }
  /// The number of bits per entry that the cost model expects of `count` entries over `n` indices: the indices are
  /// uniformly distributed, and three bits of the exponents and all kept bits of the mantissas are unknown.
  template <element T, index_type Index>
  [[nodiscard]] double entry_bits(std::uint64_t n, std::uint64_t count) const noexcept {
    const double gap = count == 0 ? 1 : static_cast<double>(n) / static_cast<double>(count);
    const double index = std::min<double>(8 * sizeof(Index), __builtin_log2(std::max(1.0, gap)) + (fast ? 3 : 1.5));
    using value = component_of<T>;
    constexpr std::size_t width = sizeof(T) / sizeof(value);
    if constexpr (is_floating<value>)
      return index + width * (kernel::detail::mantissa_digits<value> - dropped<value> + (fast ? 4.5 : 3));
    else
      return index + 8 * sizeof(T);
  }
  /// The seconds to encode an entry, or to decode it: half of `gamma_coded` for an entry with one number, two thirds of
  /// that for the number, and a third for the index.
  template <element T>
  [[nodiscard]] double cost(const network_model& network) const noexcept {
    return (fast ? 0.3 : 1) * (2.0 * sizeof(T) / sizeof(component_of<T>) + 1) / 3 * network.gamma_coded / 2;
  }
  /// An upper bound on |decoded - value| divided by the largest |value|: half a unit of the last bit that is kept.
  template <element T>
    requires is_floating<T>
  [[nodiscard]] static constexpr double relative_error() noexcept {
    return dropped<T> == 0 ? 0 : 0.5 / static_cast<double>(std::uint64_t{1} << Mantissa);
  }
  /// An upper bound on the error of subnormal numbers, which is not relative to the value.
  template <element T>
    requires is_floating<T>
  [[nodiscard]] static constexpr double absolute_error() noexcept {
    return dropped<T> == 0 ? 0 : spar::detail::smallest_of<T> * static_cast<double>(std::uint64_t{1} << dropped<T>) / 2;
  }
  /// The number of entries above which `n` plain values take fewer bytes: a bit for each index, and all bits of the
  /// values, are n values at 1 - 1 / (bits of a value) of n entries.
  template <element T, index_type Index>
  [[nodiscard]] static constexpr std::uint64_t delta(std::uint64_t n) noexcept {
    return n - n / (8 * sizeof(T));
  }
  /// The number of bytes that `encode` needs for any `count` entries: a byte for each 256 indices and each 256 values,
  /// and up to 70 bytes more, than the entries take in memory.
  template <element T, index_type Index>
  [[nodiscard]] static constexpr std::size_t bound(index_range, std::size_t count) noexcept {
    return count == 0 ? 0 : kernel::coded_indices_bound<Index>(count) + values_bound<T>(count);
  }
  /// Encodes `entries`, which lie in `range`, to `out`, and returns the number of bytes.
  template <element T, index_type Index>
  coded_size encode(coo_span<T, Index> entries, index_range range, std::span<std::byte> out) const noexcept {
    const auto how = fast ? kernel::coding::fastest : kernel::coding::smallest;
    std::byte* const values = kernel::encode_indices(entries.indices, range.begin, how, out.data());
    std::byte* const end = kernel::encode_values<dropped<component_of<T>>>(components(entries.values), how, values);
    return {static_cast<std::size_t>(values - out.data()), static_cast<std::size_t>(end - values)};
  }
  /// Decodes the entries in the bytes `in` to `to`. Throws `corrupt_message` if the bytes do not contain exactly as
  /// many entries as `to` has room for, with indices that ascend within `range`.
  template <element T, index_type Index>
  static void decode(std::span<const std::byte> in, index_range range, entry_room<T, Index> to) {
    if (in.empty() && to.indices.empty()) return;
    const std::byte* const end = in.data() + in.size();
    const std::byte* at = kernel::decode_indices(in.data(), end, range, to.indices);
    if (at == nullptr) reject("indices", in.size(), range, to.indices.size());
    at = kernel::decode_values<dropped<component_of<T>>>(at, end, components(to.values));
    if (at != end) reject("values", in.size(), range, to.indices.size());
  }
  /// The number of bits of the mantissa that values of type T lose.
  template <class T>
  static constexpr unsigned dropped =
      is_floating<T> && kernel::detail::mantissa_digits<T> > Mantissa ? kernel::detail::mantissa_digits<T> - Mantissa
                                                                      : 0;

 private:
  template <class T>
  static constexpr std::size_t values_bound(std::size_t count) {
    return kernel::coded_values_bound<component_of<T>>(count * (sizeof(T) / sizeof(component_of<T>)));
  }

  [[noreturn]] static void reject(const char* what, std::size_t bytes, index_range range, std::size_t count) {
    raise<corrupt_message>({"the ", what, " in a coded stream of ", count, " entries in ", bytes,
                            " bytes are malformed; expected indices from ", range.begin, " to ", range.end, " - 1"});
  }
};

} // namespace spar::inline v0_1::storage
