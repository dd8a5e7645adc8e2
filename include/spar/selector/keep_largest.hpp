// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Top-k of a stream: what inner nodes and owners select among entries that are already sparse (Ok-Topk, gTopk).
#pragma once

#include <spar/selector/exact_topk.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spar::selector {

/// Leaves the `k` entries of largest magnitude in `s` and returns the others; ranks, ties and zeros as in `exact_topk`
/// (zeros that a sparse stream stores are among the others). Both are in order of their indices. A dense stream is
/// sparse afterwards, and the others are dense.
template <kernel::ranked T, index_type Index>
sparse_stream<T, Index> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k, pool& memory) {
  const auto where = kernel::largest<T>(s.values(), k, memory);
  if (s.is_dense()) {
    auto kept = sparse_stream<T, Index>::sparse(memory, s.dimension(), where.count);
    kernel::take_largest(s.values(), where, s.first(), kept.indices().data(), kept.values().data());
    std::swap(s, kept);
    return kept;
  }
  // Both places are written, and one of them counts: whether an entry stays is as good as random.
  auto dropped = sparse_stream<T, Index>::sparse(memory, s.dimension(), s.count() - where.count + 1);
  std::size_t kept = 0, gone = 0, ties = where.ties;
  for (std::size_t e = 0; e < s.count(); ++e) {
    const Index index = s.indices()[e];
    const T value = s.values()[e];
    const auto m = kernel::magnitude_of(value);
    const bool tie = m == where.threshold && ties > 0;
    const bool stays = m > where.threshold || tie;
    ties -= static_cast<std::size_t>(tie);
    dropped.indices()[gone] = s.indices()[kept] = index;
    dropped.values()[gone] = s.values()[kept] = value;
    kept += static_cast<std::size_t>(stays);
    gone += static_cast<std::size_t>(!stays);
  }
  s.shrink(kept);
  dropped.shrink(gone);
  return dropped;
}

} // namespace spar::selector
