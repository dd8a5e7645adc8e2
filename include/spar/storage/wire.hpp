// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Converts streams to messages, and checks and decodes received messages.
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Returns the message for contiguous dense values, without copying: the message refers to the memory of `values`.
template <element T>
payload view_message(std::span<const T> values) noexcept {
  return {wire_format::dense, values.size(), {std::as_bytes(values)}};
}

/// Returns the message for the sparse or dense stream `v`, without copying: the message refers to the memory of the
/// stream.
template <element T, index_type Index>
payload view_message(const stream_view<T, Index>& v) noexcept {
  if (v.is_dense()) return view_message(v.values());
  return {wire_format::sparse, v.count(), {std::as_bytes(v.indices()), std::as_bytes(v.values())}};
}

/// Checks the indices of a received stream: throws `corrupt_message` unless they are strictly ascending and inside
/// `range`.
template <index_type Index>
void check_indices(std::span<const Index> indices, index_range range) {
  const std::size_t bad = kernel::first_bad_index(indices, range.end);
  if (bad < indices.size()) {
    raise<corrupt_message>({"a received stream has index ", indices[bad], " at entry ", bad,
                            "; expected ascending indices below ", range.end});
  }
  if (!indices.empty() && indices[0] < range.begin) {
    raise<corrupt_message>(
        {"a received stream has index ", indices[0], " at entry 0; expected an index of at least ", range.begin});
  }
}

/// Checks the indices of several streams of one message: stream i ends before entry `ends[i]`, and its indices must be
/// strictly ascending and inside `range_of(i)`. Throws `corrupt_message` if they are not.
template <index_type Index, class RangeOf>
void check_parts(std::span<const Index> indices, std::span<const std::uint64_t> ends, const RangeOf& range_of) {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); begin = ends[i++])
    check_indices(indices.subspan(begin, ends[i] - begin), range_of(i));
}

/// Returns a view of the stream in a received message, without copying. Does not read the indices: pass them to
/// `check_indices`. Throws `corrupt_message` if the message is malformed, or if a dense stream does not have exactly
/// `range.size()` values.
template <element T, index_type Index>
stream_view<T, Index> decode_unchecked(const message_buffer& in, index_range range) {
  const header& h = in.head();
  if (h.format == wire_format::dense) {
    const auto values = in.piece<T>(0);
    if (h.count != values.size() || h.count != range.size()) {
      raise<corrupt_message>({"a received dense stream has ", values.size(), " values, and its header gives ", h.count,
                              " values; expected ", range.size(), " values"});
    }
    return stream_view<T, Index>::dense(h.dimension, range.begin, values);
  }
  if (h.format != wire_format::sparse) {
    raise<corrupt_message>({"received a message of wire format ", static_cast<int>(h.format),
                            "; expected format 1 (sparse stream) or 2 (dense stream)"});
  }
  const auto indices = in.piece<Index>(0);
  const auto values = in.piece<T>(1);
  if (h.count != indices.size() || h.count != values.size()) {
    raise<corrupt_message>({"a received sparse stream has ", indices.size(), " indices and ", values.size(),
                            " values; expected ", h.count, " of each, the number of entries in its header"});
  }
  return stream_view<T, Index>::sparse(h.dimension, indices, values);
}
/// The same, but also throws `corrupt_message` if the indices are not strictly ascending or not inside `range`.
template <element T, index_type Index>
stream_view<T, Index> decode(const message_buffer& in, index_range range) {
  const auto stream = decode_unchecked<T, Index>(in, range);
  check_indices(stream.indices(), range);
  return stream;
}

} // namespace spar::inline v0_1
