// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The stream codecs for entries in device memory: `storage::coo`, and `storage::coded` with equal widths.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/cuda/kernel/coded.cuh>
#include <spar/cuda/values/counts.cuh>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/stream_codec.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

template <class Codec>
inline constexpr bool is_coded = false;
template <unsigned Mantissa>
inline constexpr bool is_coded<storage::coded<Mantissa>> = true;

/// Whether entries with values of type T can be sent by the stream codec `Codec` from a device.
template <class Codec, class T>
inline constexpr bool entries_on_device =
    std::same_as<Codec, storage::coo> || (is_coded<Codec> && (Codec::exact || std::floating_point<T>));

/// Encodes entries in device memory by `storage::coo` or `storage::coded`, and decodes them. All functions throw
/// `cuda_error` if CUDA fails.
class device_entry_codes : public device_counts {
 public:
  using device_counts::device_counts;

  /// Whether there are kernels for the options of `codec`.
  template <class Codec>
  [[nodiscard]] static constexpr bool has_kernels([[maybe_unused]] const Codec& codec) noexcept {
    if constexpr (is_coded<Codec>)
      return codec.fast;
    else
      return true;
  }

  template <element T, index_type Index>
  [[nodiscard]] task<std::size_t> encode_entries(storage::coo, coo_span<T, Index> entries, index_range,
                                                 std::span<std::byte> out) const {
    const auto indices = std::as_bytes(entries.indices), values = std::as_bytes(entries.values);
    copy(out.data(), indices);
    copy(out.data() + indices.size(), values);
    co_return indices.size() + values.size();
  }
  template <element T, index_type Index>
  [[nodiscard]] task<void> decode_entries(storage::coo, std::span<const std::byte> in, index_range range,
                                          entry_room<T, Index> to) const {
    storage::coo::check_size(in, to);
    const auto indices = std::as_writable_bytes(to.indices), values = std::as_writable_bytes(to.values);
    copy(indices.data(), in.first(indices.size()));
    copy(values.data(), in.subspan(indices.size()));
    co_await check_indices(std::span<const Index>(to.indices), range);
  }

  /// Encodes `entries`, whose indices lie in `range`, to `out`, never as runs. Waits for the number of bytes.
  template <unsigned Mantissa, element T, index_type Index>
  [[nodiscard]] task<coded_size> encode_entries(storage::coded<Mantissa>, coo_span<T, Index> entries, index_range range,
                                                std::span<std::byte> out) const {
    if (entries.empty()) co_return coded_size();
    host_answer<std::uint64_t> sizes(*this, 2);
    buffer<std::uint64_t> words(memory(), kernel::coded_words(entries.size()));
    constexpr unsigned dropped = storage::coded<Mantissa>::template dropped<T>;
    kernel::start_encode_coded<dropped>(entries, range.begin, out.data(), sizes.data(), words.data(), stream());
    co_await sizes.written();
    co_return coded_size{sizes.data()[0], sizes.data()[1]};
  }
  /// Decodes the entries in the bytes `in` to `to`. If the kernels cannot decode the bytes, the host decodes a copy: of
  /// another code, such as runs from a rank in host memory, or of a malformed message, for which `decode` throws
  /// `corrupt_message`. Waits for the answer.
  template <unsigned Mantissa, element T, index_type Index>
  [[nodiscard]] task<void> decode_entries(storage::coded<Mantissa> codec, std::span<const std::byte> in,
                                          index_range range, entry_room<T, Index> to) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(in.data()) % kernel::coded_alignment == 0;
    if (aligned && !in.empty() && !to.indices.empty() && range.size() <= kernel::most_coded_indices) {
      host_answer<std::uint64_t> wrong(*this, 1);
      buffer<std::uint64_t> words(memory(), kernel::coded_words(to.indices.size()));
      constexpr unsigned dropped = storage::coded<Mantissa>::template dropped<T>;
      kernel::start_decode_coded<dropped>(in, range, to.indices, to.values.data(), wrong.data(), words.data(),
                                          stream());
      co_await wrong.written();
      if (wrong.data()[0] == 0) co_return;
    }
    buffer<std::byte> bytes(lists(), in.size());
    buffer<Index> indices(lists(), to.indices.size());
    buffer<T> values(lists(), to.values.size());
    co_await download(bytes.span(), in.data());
    const entry_room<T, Index> on_host{indices.span(), values.span()};
    codec.decode(std::as_const(bytes).span(), range, on_host);
    upload(to.indices.data(), std::as_const(indices).span());
    upload(to.values.data(), std::as_const(values).span());
  }
};

} // namespace spar::inline v0_1::detail
