// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// User-defined stream codecs of variable size: the gaps between indices with seven bits per byte (LEB128), then the
// values unchanged, or rounded to bfloat16.
#pragma once

#include <spar/core/error.hpp>
#include <spar/storage/kernel/short_floats.hpp>
#include <spar/storage/stream_codec.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace spar_test {

/// The encoded gaps: from `range.begin` to the first index, and from behind each index to the next one.
struct gaps {
  static constexpr std::size_t most_bytes(std::uint64_t gap) noexcept {
    return gap < 128 ? 1 : (static_cast<std::size_t>(std::bit_width(gap)) + 6) / 7;
  }
  template <class Index>
  static std::size_t encode(std::span<const Index> indices, spar::index_range range, std::byte* out) noexcept {
    const std::byte* const begin = out;
    std::uint64_t next = range.begin; // the smallest possible next index
    for (const Index i : indices) {
      std::uint64_t gap = i - next;
      for (; gap >= 128; gap >>= 7) *out++ = static_cast<std::byte>((gap & 127) | 128);
      *out++ = static_cast<std::byte>(gap);
      next = std::uint64_t{i} + 1;
    }
    return static_cast<std::size_t>(out - begin);
  }
  /// Throws `corrupt_message` unless the bytes encode the expected number of ascending indices in the range.
  template <class Index>
  static void decode(std::span<const std::byte> in, spar::index_range range, std::span<Index> indices) {
    std::size_t at = 0;
    std::uint64_t next = range.begin;
    for (Index& i : indices) {
      std::uint64_t gap = 0;
      for (unsigned shift = 0;; shift += 7) {
        if (at == in.size() || shift > 56) throw spar::corrupt_message("a coded stream has a broken gap");
        const auto byte = static_cast<std::uint64_t>(in[at++]);
        gap |= (byte & 127) << shift;
        if (byte < 128) break;
      }
      if (gap >= range.end - next) throw spar::corrupt_message("a coded stream has an index out of its range");
      next += gap;
      i = static_cast<Index>(next++);
    }
    if (at != in.size()) throw spar::corrupt_message("a coded stream has bytes left over");
  }
};

/// Encodes all bytes of each value, or the upper half of its binary32.
template <bool Exact>
struct gap_codec {
  static constexpr spar::slot fills = spar::slot::storage;
  static constexpr std::string_view name = Exact ? "varint" : "rounded";
  static constexpr bool exact = Exact;
  template <class T>
  static constexpr std::size_t value_bytes = Exact ? sizeof(T) : 2;

  void options(auto&& f) const { f("version", version); }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static constexpr double entry_bits(std::uint64_t n, std::uint64_t count) noexcept {
    return 8.0 * static_cast<double>(value_bytes<T> + gaps::most_bytes(count == 0 ? 0 : n / count));
  }
  /// With so many entries, nearly every gap takes one byte.
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static constexpr std::uint64_t delta(std::uint64_t n) noexcept {
    constexpr std::uint64_t entry = value_bytes<T> + 1, value = sizeof(T);
    return value >= entry ? n : n / entry * value + n % entry * value / entry;
  }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static constexpr std::size_t bound(spar::index_range range, std::size_t count) noexcept {
    return count * (value_bytes<T> + gaps::most_bytes(range.size()));
  }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static std::size_t encode(spar::coo_span<T, Index> entries, spar::index_range range,
                                          std::span<std::byte> out) noexcept {
    const std::size_t begin = gaps::encode(entries.indices, range, out.data());
    std::byte* const values = out.data() + begin;
    if constexpr (Exact) {
      if (!entries.empty()) std::memcpy(values, entries.values.data(), entries.values.size_bytes());
    } else {
      spar::kernel::encode_short<spar::kernel::bfloat16_code>(entries.values.data(), entries.size(), values);
    }
    return begin + value_bytes<T> * entries.size();
  }
  template <spar::element T, spar::index_type Index>
  static void decode(std::span<const std::byte> in, spar::index_range range, spar::entry_room<T, Index> to) {
    const std::size_t bytes = value_bytes<T> * to.values.size();
    if (in.size() < bytes) throw spar::corrupt_message("a coded stream has fewer bytes than its values");
    const auto values = in.last(bytes);
    gaps::decode(in.first(in.size() - bytes), range, to.indices);
    if constexpr (Exact) {
      if (bytes > 0) std::memcpy(to.values.data(), values.data(), bytes);
    } else {
      spar::kernel::decode_short<spar::kernel::bfloat16_code>(values.data(), to.values.size(), to.values.data());
    }
  }

  std::uint64_t version = 1;
};
using varint = gap_codec<true>;
using rounded = gap_codec<false>;

} // namespace spar_test
