// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The streams of several ranks side by side: the result of a sparse allgather (SparCML, section 5.3).
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/stream_codec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace spar {

/// Sparse parts, one per rank, each with ascending indices, stored one after the other in two contiguous arrays.
template <element T, index_type Index = std::uint32_t>
class gathered {
 public:
  /// Starts with one part, and has room for `parts` parts in total.
  gathered(const stream_view<T, Index>& first, std::size_t parts, pool& memory)
      : entries_(sparse_stream<T, Index>::copy(memory, first)), begins_(memory, parts + 1), parts_(1) {
    begin(0) = 0;
    begin(1) = first.count();
  }

  [[nodiscard]] std::uint64_t dimension() const noexcept { return entries_.dimension(); }
  /// The number of parts.
  [[nodiscard]] std::size_t size() const noexcept { return parts_; }
  /// The number of entries of all parts together.
  [[nodiscard]] std::uint64_t count() const noexcept { return begin(parts_); }
  [[nodiscard]] stream_view<T, Index> part(std::size_t i) const {
    const std::size_t length = begin(i + 1) - begin(i);
    return stream_view<T, Index>::sparse(dimension(), entries_.indices().subspan(begin(i), length),
                                         entries_.values().subspan(begin(i), length));
  }

  /// All entries as one stream; valid only if the index ranges of the parts ascend in the order of the parts.
  [[nodiscard]] sparse_stream<T, Index> joined() && { return std::move(entries_); }

  // For the algorithms.

  /// Room for `parts` parts, of which the i-th has `entries(i)` entries; the caller fills them through `room(i)`.
  template <class Entries>
  gathered(std::uint64_t n, std::size_t parts, const Entries& entries, pool& memory)
      : begins_(memory, parts + 1), parts_(parts) {
    begin(0) = 0;
    for (std::size_t i = 0; i < parts; ++i) begin(i + 1) = begin(i) + entries(i);
    entries_ = sparse_stream<T, Index>::sparse(memory, n, begin(parts));
  }
  [[nodiscard]] entry_room<T, Index> room(std::size_t i) noexcept {
    const std::size_t length = begin(i + 1) - begin(i);
    return {entries_.indices().subspan(begin(i), length), entries_.values().subspan(begin(i), length)};
  }

  /// The message with the first `parts` parts.
  [[nodiscard]] payload encode_first(std::size_t parts) const {
    return {wire_format::parts,
            begin(parts),
            {std::as_bytes(begins_.span().subspan(1, parts)), std::as_bytes(entries_.indices().first(begin(parts))),
             std::as_bytes(entries_.values().first(begin(parts)))}};
  }

  /// Returns these parts followed by the `parts` parts of a received message. `check(i, indices)` throws if the i-th
  /// received part is invalid. Throws `corrupt_message` if the message is malformed.
  template <class Check>
  [[nodiscard]] gathered joined(const message_buffer& in, std::size_t parts, const Check& check, pool& memory) const {
    const auto ends = in.piece<std::uint64_t>(0);
    const auto indices = in.piece<Index>(1);
    const auto values = in.piece<T>(2);
    const std::uint64_t total = in.head().count;
    if (in.head().format != wire_format::parts || ends.size() != parts || indices.size() != total ||
        values.size() != total || (parts > 0 ? ends.back() : 0) != total) {
      raise<corrupt_message>({"malformed message: expected ", parts, " streams, got ", ends.size(), " with ",
                              indices.size(), " indices and ", values.size(), " values"});
    }
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < parts; last = ends[i++]) {
      if (ends[i] < last || ends[i] > total)
        raise<corrupt_message>({"malformed message: the ends of its streams are out of order or out of range"});
      check(i, indices.subspan(last, ends[i] - last));
    }
    gathered sum(dimension(), count() + total, begins_.size() - 1, memory);
    sum.entries_.write(0, entries_.view());
    for (; sum.parts_ < parts_; ++sum.parts_) sum.begin(sum.parts_ + 1) = begin(sum.parts_ + 1);
    sum.entries_.write(count(), stream_view<T, Index>::sparse(dimension(), indices, values));
    for (const std::uint64_t end : ends) sum.begin(++sum.parts_) = count() + end;
    return sum;
  }

  /// Rotates the parts: part `first` becomes the first one, and the parts before it become the last ones.
  void rotate(std::size_t first, pool& memory) {
    if (first == 0) return;
    gathered turned(dimension(), count(), parts_, memory);
    for (std::size_t p = 0; p < parts_; ++p) {
      const auto next = part((first + p) % parts_);
      turned.entries_.write(turned.count(), next);
      turned.begin(p + 1) = turned.count() + next.count();
      turned.parts_ = p + 1;
    }
    *this = std::move(turned);
  }

 private:
  /// Starts without a part, and has room for `parts` parts with `entries` entries in total.
  gathered(std::uint64_t n, std::uint64_t entries, std::size_t parts, pool& memory)
      : entries_(sparse_stream<T, Index>::sparse(memory, n, entries)), begins_(memory, parts + 1) {
    begin(0) = 0;
  }

  [[nodiscard]] std::uint64_t& begin(std::size_t part) noexcept { return begins_.data()[part]; }
  [[nodiscard]] std::uint64_t begin(std::size_t part) const noexcept { return begins_.data()[part]; }

  sparse_stream<T, Index> entries_;
  buffer<std::uint64_t> begins_; // where each part begins in the arrays; then the end of the last part
  std::size_t parts_ = 0;
};

} // namespace spar
