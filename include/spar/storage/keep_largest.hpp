// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Keeps the k largest entries of a stream. Used for sums at the inner nodes of a tree (gTopk), and by threshold_reuse
// (Ok-Topk).
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spar::inline v0_1 {

/// Keeps the `k` entries of largest magnitude in `s` and returns all other entries; both streams are sorted by index.
/// Ranks NaN and ties like `exact_topk`, and never keeps zeros: zeros stored in a sparse `s` are returned. If `s` is
/// dense, `s` becomes sparse, and the returned stream is dense. Writes the k-th largest magnitude to `least` unless it
/// is null.
template <kernel::ranked T, index_type Index>
sparse_stream<T, Index> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k, pool& memory,
                                     kernel::magnitude<T>* least = nullptr) {
  const auto where = kernel::largest<T>(s.values(), k, memory);
  if (least != nullptr) *least = where.threshold;
  if (s.is_dense()) {
    auto kept = sparse_stream<T, Index>::sparse(memory, s.dimension(), where.count);
    kernel::take_largest(s.values(), where, s.first(), kept.indices().data(), kept.values().data());
    std::swap(s, kept);
    return kept;
  }
  // Writes each entry to `s` and to `dropped`, but advances only in the stream to which the entry belongs, because a
  // branch on the magnitude would often be mispredicted.
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

} // namespace spar::inline v0_1
