// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins streams of adjacent index ranges into one stream (SparCML, section 5.1: summation of disjoint streams).
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Joins `parts`, whose index ranges follow one another inside `range`, into one stream of dimension n. The result is
/// sparse if no part is dense and the parts have at most `limit` entries in total. Otherwise, the result is dense over
/// `range`, with the value `absent` at every index without an entry.
template <element T, index_type Index>
sparse_stream<T, Index> concatenate(std::span<const stream_view<T, Index>> parts, std::uint64_t n, index_range range,
                                    T absent, pool& memory, std::uint64_t limit) {
  std::uint64_t count = 0;
  bool dense = false;
  for (const auto& part : parts) {
    count += part.count();
    dense = dense || (part.is_dense() && part.count() > 0);
  }
  if (dense || count > limit) {
    auto out = sparse_stream<T, Index>::dense(memory, n, range.begin, range.size());
    T* values = out.values().data();
    if (count < range.size()) std::fill_n(values, range.size(), absent);
    for (const auto& part : parts) {
      if (part.is_dense())
        std::copy(part.values().begin(), part.values().end(), values + (part.first() - range.begin));
      else
        kernel::scatter_assign(part.entries(), range.begin, values);
    }
    return out;
  }
  auto out = sparse_stream<T, Index>::sparse(memory, n, count);
  std::size_t at = 0;
  for (const auto& part : parts) {
    std::copy(part.indices().begin(), part.indices().end(), out.indices().data() + at);
    std::copy(part.values().begin(), part.values().end(), out.values().data() + at);
    at += part.count();
  }
  return out;
}

} // namespace spar::inline v0_1
