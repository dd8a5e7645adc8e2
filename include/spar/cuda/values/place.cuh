// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams of several ranks in device memory (see storage/gathered.hpp).
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/cuda/values/streams.cuh>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::detail {

/// Where `gathered` has its entries if they are in device memory (see `host_place`).
class device_place {
 public:
  /// `lends` says whether ranks read messages in each other's memory.
  device_place(device_streams& at, bool lends) noexcept : at_(&at), lends_(lends) {}

  [[nodiscard]] device_pool& memory() const noexcept { return at_->memory(); }
  [[nodiscard]] pool& lists() const noexcept { return at_->lists(); }

  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> duplicate(const stream_view<T, Index>& v) const {
    return at_->duplicate(v);
  }
  template <element T, index_type Index>
  void write(sparse_stream<T, Index>& to, std::size_t at, const stream_view<T, Index>& v) const {
    at_->write(to, at, v);
  }
  template <element T, index_type Index>
  void write_pieces(sparse_stream<T, Index>& to, std::span<const stream_view<T, Index>> from) const {
    at_->write_pieces(to, 0, from);
  }
  /// The processor reads a list that is lent (see `local::read_list`).
  std::span<const std::uint64_t> to_message(std::span<const std::uint64_t> list, buffer<std::uint64_t>& room) const {
    if (lends_) return list;
    room = at_->upload(list);
    return std::as_const(room).span();
  }

 private:
  device_streams* at_;
  bool lends_;
};

} // namespace spar::detail
