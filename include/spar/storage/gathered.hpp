// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The class `gathered`: the sparse streams of several ranks in two contiguous arrays, as a sparse allgather returns
// them (SparCML, section 5.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/stream_codec.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Sparse streams of several ranks ("parts"), stored one after the other in two contiguous arrays: one of indices, one
/// of values. The indices of each part ascend. The argument `work` of some members, such as a `host_work`, allocates
/// and copies entries.
template <element T, index_type Index = std::uint32_t>
class gathered {
 public:
  /// Constructs an object with one part, a copy of `first`. `parts` is the maximum number of parts of the objects that
  /// the overload of `joined` with a message derives from this object.
  template <class Work>
  gathered(const stream_view<T, Index>& first, std::size_t parts, Work&& work)
      : gathered(work.duplicate(first), parts, work) {}
  /// The same with the stream `first` itself.
  template <class Work>
  gathered(sparse_stream<T, Index>&& first, std::size_t parts, Work&& work)
      : entries_(std::move(first)), begins_(work.lists(), parts + 1), parts_(1) {
    begin(0) = 0;
    begin(1) = entries_.count();
  }

  /// The dimension n of all parts.
  [[nodiscard]] std::uint64_t dimension() const noexcept { return entries_.dimension(); }
  /// The number of parts.
  [[nodiscard]] std::size_t size() const noexcept { return parts_; }
  /// The total number of entries in all parts.
  [[nodiscard]] std::uint64_t count() const noexcept { return begin(parts_); }
  /// The indices of all parts.
  [[nodiscard]] std::span<const Index> indices() const& noexcept { return entries_.indices(); }
  /// The number of entries in the parts up to and including part i, for each i.
  [[nodiscard]] std::span<const std::uint64_t> ends() const& noexcept { return begins_.span().subspan(1, parts_); }
  /// Returns a view of part `i`, from 0 to size() - 1.
  [[nodiscard]] stream_view<T, Index> part(std::size_t i) const& {
    const std::size_t length = begin(i + 1) - begin(i);
    return stream_view<T, Index>::sparse(dimension(), entries_.indices().subspan(begin(i), length),
                                         entries_.values().subspan(begin(i), length));
  }
  /// \cond
  void indices() const&& = delete;         // the span would refer to memory that is gone: name the object
  void ends() const&& = delete;            // the span would refer to memory that is gone: name the object
  void part(std::size_t) const&& = delete; // the view would refer to memory that is gone: name the object
  /// \endcond

  /// Returns the entries of all parts as one stream. This stream is valid only if all indices of each part are greater
  /// than all indices of the parts before it.
  [[nodiscard]] sparse_stream<T, Index> joined() && { return std::move(entries_); }

  // The functions below are for collective algorithms.

  /// Allocates `parts` parts, of which part i has `entries(i)` uninitialised entries. The caller fills part i through
  /// `room(i)`.
  template <std::invocable<std::size_t> Entries, class Work>
  gathered(std::uint64_t n, std::size_t parts, const Entries& entries, Work&& work)
      : begins_(work.lists(), parts + 1), parts_(parts) {
    begin(0) = 0;
    for (std::size_t i = 0; i < parts; ++i) begin(i + 1) = begin(i) + entries(i);
    entries_ = sparse_stream<T, Index>::sparse(work.memory(), n, begin(parts));
  }
  /// The memory of part `i`, which the caller fills.
  [[nodiscard]] entry_room<T, Index> room(std::size_t i) noexcept {
    const std::size_t length = begin(i + 1) - begin(i);
    return {entries_.indices().subspan(begin(i), length), entries_.values().subspan(begin(i), length)};
  }

  /// Returns a message with the first `parts` parts: the position at which each part ends, then all indices, then all
  /// values. The message refers to the memory of this object.
  template <class Work>
  [[nodiscard]] payload encode_first(std::size_t parts, Work&& work) {
    const auto ends = work.to_message(this->ends().first(parts), sent_);
    const sparse_stream<T, Index>& entries = entries_;
    return {wire_format::parts,
            begin(parts),
            {std::as_bytes(ends), std::as_bytes(entries.indices().first(begin(parts))),
             std::as_bytes(entries.values().first(begin(parts)))}};
  }

  /// Throws `corrupt_message` unless the received message `in` has `parts` parts, which end at the entries `ends`, a
  /// copy of the message's first piece on the host. Does not check the indices (see `check_parts`).
  static void check_ends(const message_buffer& in, std::span<const std::uint64_t> ends, std::size_t parts) {
    const auto indices = in.piece<Index>(1);
    const auto values = in.piece<T>(2);
    const std::uint64_t total = in.head().count;
    if (in.head().format != wire_format::parts || ends.size() != parts || indices.size() != total ||
        values.size() != total || (parts > 0 ? ends.back() : 0) != total) {
      raise<corrupt_message>({"a received message has wire format ", static_cast<int>(in.head().format), ", ",
                              ends.size(), " streams with ", ends.empty() ? 0 : ends.back(), " entries in total, ",
                              indices.size(), " indices and ", values.size(), " values; expected wire format 4, ",
                              parts, " streams with ", total, " entries in total, ", total, " indices and ", total,
                              " values"});
    }
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < parts; last = ends[i++]) {
      if (ends[i] < last || ends[i] > total)
        raise<corrupt_message>({"malformed message: stream ", i, " ends at entry ", ends[i], "; expected at least ",
                                last, " and at most ", total});
    }
  }
  /// Returns a new object with the parts of this object and those of the message `in`, which end before the entries
  /// `ends`: these parts one after the other, from part `first` on, and then the parts before part `first`. The message
  /// must have passed `check_ends`; throws `corrupt_message` if its pieces do not consist of whole indices and values.
  template <class Work>
  [[nodiscard]] gathered joined(const message_buffer& in, std::span<const std::uint64_t> ends, Work&& work,
                                std::size_t first = 0) const {
    const std::uint64_t own = count();
    const auto arrived = stream_view<T, Index>::sparse(dimension(), in.piece<Index>(1), in.piece<T>(2));
    const std::size_t all = parts_ + ends.size();
    const auto begin_of = [&](std::size_t part) {
      return part <= parts_ ? begin(part) : own + ends[part - parts_ - 1];
    };
    gathered sum(dimension(), own + in.head().count, begins_.size() - 1, work);
    stream_view<T, Index> pieces[4];
    std::size_t count = 0;
    const auto append = [&](std::size_t from, std::size_t to) {
      const std::uint64_t at = sum.count(), begin = begin_of(from), end = begin_of(to);
      pieces[count++] = entries_.view().entries_from(std::min(begin, own), std::min(end, own));
      pieces[count++] = arrived.entries_from(std::max(begin, own) - own, std::max(end, own) - own);
      for (std::size_t part = from + 1; part <= to; ++part) sum.begin(++sum.parts_) = at + (begin_of(part) - begin);
    };
    append(first, all);
    append(0, first);
    work.write_pieces(sum.entries_, std::span<const stream_view<T, Index>>(pieces));
    return sum;
  }

 private:
  /// Constructs an object without parts, with room for `parts` parts and `entries` entries in total.
  template <class Work>
  gathered(std::uint64_t n, std::uint64_t entries, std::size_t parts, Work&& work)
      : entries_(sparse_stream<T, Index>::sparse(work.memory(), n, entries)), begins_(work.lists(), parts + 1) {
    begin(0) = 0;
  }

  [[nodiscard]] std::uint64_t& begin(std::size_t part) noexcept { return begins_.data()[part]; }
  [[nodiscard]] std::uint64_t begin(std::size_t part) const noexcept { return begins_.data()[part]; }

  sparse_stream<T, Index> entries_;
  buffer<std::uint64_t> begins_; // part i has the entries from begins_[i] to begins_[i + 1] - 1
  buffer<std::uint64_t> sent_;   // the list of the last message, if a place has made it
  std::size_t parts_ = 0;
};

} // namespace spar::inline v0_1
