// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Top-k of each bucket of consecutive entries (SparCML, section 8.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/largest.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::selector {

/// Selects of every `bucket` consecutive entries the `k` of largest magnitude, or all nonzeros where there are fewer;
/// the last bucket may be shorter. In each it selects as `exact_topk` does. Sorted by index; deterministic.
struct bucket_topk {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "bucket_topk";

  std::uint64_t k = 0;
  std::uint64_t bucket = 512;

  void validate(std::uint64_t) const {
    if (bucket == 0) raise<invalid_argument>({"a selector's buckets have 0 entries"});
    if (k > bucket) raise<invalid_argument>({"a selector of k = ", k, " entries is given buckets of ", bucket});
  }

  /// How many of n entries a call selects; a schedule that keeps the largest of the sum keeps as many.
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(n / bucket * k + std::min(k, n % bucket), 0);
  }

  /// Calls `f(name, value)` with what all ranks must have alike.
  template <class F>
  void options(F&& f) const {
    f("k", k), f("bucket", bucket);
  }

  template <index_type Index = std::uint32_t, kernel::ranked T>
  sparse_stream<T, Index> operator()(std::span<T> x, pool& memory) const {
    validate(x.size());
    const std::size_t n = x.size(), length = std::min<std::uint64_t>(bucket, std::max<std::size_t>(n, 1));
    const std::size_t room = n / length * std::min<std::uint64_t>(k, length) + std::min<std::uint64_t>(k, n % length);
    auto selected = sparse_stream<T, Index>::sparse(memory, n, room);
    std::size_t count = 0;
    for (std::size_t first = 0; first < n; first += length) {
      const auto part = x.subspan(first, std::min(length, n - first));
      count += kernel::take_largest(part, kernel::largest<T>(part, k, memory), first, selected.indices().data() + count,
                                    selected.values().data() + count);
    }
    selected.shrink(count);
    return selected;
  }
};

} // namespace spar::selector
