// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The streams of many ranks side by side: the result of a sparse allgather (SparCML, section 5.3).
#pragma once

#include <spar/core/message.hpp>
#include <spar/storage/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

namespace spar {

/// Sparse parts, one per rank, each with ascending indices, in two contiguous arrays.
template <element T, index_type Index = std::uint32_t>
class gathered {
 public:
  /// One part.
  gathered(const stream_view<T, Index>& first, std::size_t parts, pool& memory)
      : entries_(stream<T, Index>::copy(memory, first)), begin_(&memory) {
    begin_.reserve(parts + 1);
    begin_.push_back(0);
    begin_.push_back(first.count());
  }

  [[nodiscard]] std::uint64_t dimension() const noexcept { return entries_.dimension(); }
  /// Number of parts.
  [[nodiscard]] std::size_t size() const noexcept { return begin_.size() - 1; }
  /// Entries of all parts together.
  [[nodiscard]] std::uint64_t count() const noexcept { return begin_.back(); }
  [[nodiscard]] stream_view<T, Index> part(std::size_t i) const {
    const std::size_t length = begin_[i + 1] - begin_[i];
    return stream_view<T, Index>::sparse(dimension(), entries_.indices().subspan(begin_[i], length),
                                         entries_.values().subspan(begin_[i], length));
  }

  /// All entries as one stream; only where the parts' ranges ascend with their number.
  [[nodiscard]] stream<T, Index> joined() && { return std::move(entries_); }

  // For the algorithm.

  /// The message of the first `parts` parts.
  [[nodiscard]] payload encode_first(std::size_t parts) const {
    return {wire_format::parts,
            begin_[parts],
            {std::as_bytes(std::span(begin_).subspan(1, parts)), std::as_bytes(entries_.indices().first(begin_[parts])),
             std::as_bytes(entries_.values().first(begin_[parts]))}};
  }

  /// These parts and the `parts` that a message brings; `check(i, indices)` throws where the i-th of them is wrong.
  template <class Check>
  [[nodiscard]] gathered joined(const message_buffer& in, std::size_t parts, const Check& check, pool& memory) const {
    const auto ends = in.piece<std::uint64_t>(0);
    const auto indices = in.piece<Index>(1);
    const auto values = in.piece<T>(2);
    const std::uint64_t total = in.head().count;
    if (in.head().format != wire_format::parts || ends.size() != parts || indices.size() != total ||
        values.size() != total || (parts > 0 ? ends.back() : 0) != total) {
      throw corrupt_message(sentence("a message that should bring ", parts, " streams brings ", ends.size(), " with ",
                                     indices.size(), " indices and ", values.size(), " values"));
    }
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < parts; last = ends[i++]) {
      if (ends[i] < last || ends[i] > total)
        throw corrupt_message("the sizes of streams in a message are out of order");
      check(i, indices.subspan(last, ends[i] - last));
    }
    gathered sum(*this, total, memory);
    std::copy(indices.begin(), indices.end(), sum.entries_.indices().data() + count());
    std::copy(values.begin(), values.end(), sum.entries_.values().data() + count());
    for (const std::uint64_t end : ends) sum.begin_.push_back(count() + end);
    return sum;
  }

  /// Makes part `first` the first one, the ones before it the last.
  void rotate(std::size_t first, pool& memory) {
    if (first == 0) return;
    const auto middle = static_cast<std::ptrdiff_t>(begin_[first]);
    auto turned = stream<T, Index>::sparse(memory, dimension(), count());
    const auto i = entries_.indices();
    const auto v = entries_.values();
    std::rotate_copy(i.begin(), i.begin() + middle, i.end(), turned.indices().begin());
    std::rotate_copy(v.begin(), v.begin() + middle, v.end(), turned.values().begin());
    entries_ = std::move(turned);
    std::pmr::vector<std::uint64_t> begin(&memory);
    begin.reserve(begin_.size());
    begin.push_back(0);
    for (std::size_t p = 0; p < size(); ++p) {
      const std::size_t from = (first + p) % size();
      begin.push_back(begin.back() + begin_[from + 1] - begin_[from]);
    }
    begin_ = std::move(begin);
  }

 private:
  /// A copy of `other` with room for `more` entries at the end.
  gathered(const gathered& other, std::uint64_t more, pool& memory)
      : entries_(stream<T, Index>::sparse(memory, other.dimension(), other.count() + more)), begin_(&memory) {
    begin_.reserve(other.begin_.capacity());
    begin_.assign(other.begin_.begin(), other.begin_.end());
    std::copy(other.entries_.indices().begin(), other.entries_.indices().end(), entries_.indices().data());
    std::copy(other.entries_.values().begin(), other.entries_.values().end(), entries_.values().data());
  }

  stream<T, Index> entries_;
  std::pmr::vector<std::uint64_t> begin_; // of each part in the arrays, and the end of the last
};

} // namespace spar
