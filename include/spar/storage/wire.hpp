// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams as messages: what is sent, and the check of what arrives.
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <span>
#include <string>

namespace spar {

/// The message of contiguous values.
template <element T>
[[gnu::noinline]] payload encode(std::span<const T> values) noexcept {
  return {wire_format::dense, values.size(), {std::as_bytes(values)}};
}

/// The message of a stream.
template <element T, index_type Index>
[[gnu::noinline]] payload encode(const stream_view<T, Index>& v) noexcept {
  if (v.is_dense()) return encode(v.values());
  return {wire_format::sparse, v.count(), {std::as_bytes(v.indices()), std::as_bytes(v.values())}};
}

/// Throws `corrupt_message` unless the indices ascend, each once, inside `range`.
template <index_type Index>
void check_indices(std::span<const Index> indices, index_range range) {
  const std::size_t bad = kernel::first_bad_index(indices, range.end);
  if (bad < indices.size()) {
    raise<corrupt_message>({"a stream that arrived has index ", indices[bad], " at entry ", bad,
                            ", out of order or not below ", range.end});
  }
  if (!indices.empty() && indices[0] < range.begin) {
    raise<corrupt_message>({"a stream that arrived has index ", indices[0], ", below ", range.begin});
  }
}

/// The stream in a message, which stays where it is; it must lie in `range`. Throws `corrupt_message`.
template <element T, index_type Index>
stream_view<T, Index> decode(const message_buffer& in, index_range range) {
  const header& h = in.head();
  if (h.format == wire_format::dense) {
    const auto values = in.piece<T>(0);
    if (h.count != values.size() || h.count != range.size()) {
      raise<corrupt_message>(
          {"a dense stream that arrived has ", values.size(), " values where ", range.size(), " are due"});
    }
    return stream_view<T, Index>::dense(h.dimension, range.begin, values);
  }
  if (h.format != wire_format::sparse) {
    raise<corrupt_message>({"a message of format ", static_cast<int>(h.format), " arrived where a stream is due"});
  }
  const auto indices = in.piece<Index>(0);
  const auto values = in.piece<T>(1);
  if (h.count != indices.size() || h.count != values.size()) {
    raise<corrupt_message>({"a sparse stream that arrived has ", indices.size(), " indices and ", values.size(),
                            " values; its header gives ", h.count});
  }
  check_indices(indices, range);
  return stream_view<T, Index>::sparse(h.dimension, indices, values);
}

} // namespace spar
