// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins streams of adjacent index ranges into one stream (SparCML, section 5.1: summation of disjoint streams).
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Joins `parts`, whose index ranges follow one another inside `range`, into one stream of dimension n. The result is
/// sparse if no part is dense and the parts have at most `limit` entries in total. Otherwise, the result is dense over
/// `range`, with the value `absent` at every index without an entry. `work`, such as a `host_work`, allocates and
/// copies values.
template <element T, index_type Index, class Work>
sparse_stream<T, Index> concatenate(std::span<const stream_view<T, Index>> parts, std::uint64_t n, index_range range,
                                    T absent, std::uint64_t limit, Work&& work) {
  std::uint64_t count = 0;
  bool dense = false;
  for (const auto& part : parts) {
    count += part.count();
    dense = dense || (part.is_dense() && part.count() > 0);
  }
  if (dense || count > limit) {
    auto out = sparse_stream<T, Index>::dense(work.memory(), n, range.begin, range.size());
    const std::span<T> values = out.values();
    if (count < range.size()) work.fill(values, absent);
    for (const auto& part : parts) {
      if (part.is_dense())
        work.copy(values.data() + (part.first() - range.begin), part.values());
      else
        work.assign(part, range.begin, values.data());
    }
    return out;
  }
  auto out = sparse_stream<T, Index>::sparse(work.memory(), n, count);
  work.write_pieces(out, parts);
  return out;
}

} // namespace spar::inline v0_1
