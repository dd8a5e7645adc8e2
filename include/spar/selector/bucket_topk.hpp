// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selects the k largest entries of each bucket of consecutive entries (SparCML, section 8.3).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/buckets.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1::selector {

/// Selects the `k` entries of largest magnitude from each bucket of `bucket` consecutive entries, or all nonzeros of a
/// bucket with fewer than k nonzeros. The last bucket may be shorter. Among equal magnitudes, the entries with the
/// lowest indices are selected; NaN ranks above infinity. The result is sorted by index, and deterministic.
struct bucket_topk {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "bucket_topk";

  std::uint64_t k = unset;    ///< the number of entries selected from a bucket, at most `bucket`
  std::uint64_t bucket = 512; ///< the number of entries in a bucket, at least 1

  void validate(std::uint64_t) const {
    if (k == unset)
      raise<invalid_argument>({"bucket_topk has no k; expected the number of entries to select from each "
                               "bucket (.k = 0 selects nothing)"});
    if (bucket == 0) raise<invalid_argument>({"the selector's buckets have 0 entries; expected at least 1"});
    if (k > bucket)
      raise<invalid_argument>({"the selector's k is ", k, "; expected at most the bucket size, ", bucket});
  }

  /// Returns the number of entries that a call selects out of n, provided that each bucket has enough nonzeros. A
  /// schedule that keeps the largest entries of the sum keeps the same number of entries.
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return topk_bounds::around(n / bucket * k + std::min(k, n % bucket), 0);
  }

  /// Calls `f(name, value)` for each option that must be equal on all ranks.
  void options(auto&& f) const { f("k", detail::compared_k(k)), f("bucket", bucket); }

  template <index_type Index, class Work, kernel::ranked T, class Prepare>
  auto operator()(Work& work, std::span<T> x, no_state&, const Prepare& prepare) const ->
      typename Work::template answer<sparse_stream<T, Index>> {
    validate(x.size());
    prepare(0, x.size());
    const std::size_t n = x.size(), length = std::min<std::uint64_t>(bucket, std::max<std::size_t>(n, 1));
    const std::size_t most = std::min<std::uint64_t>(k, length);
    const std::size_t room = n / length * most + std::min<std::uint64_t>(k, n % length);
    if constexpr (requires { work.template take_from_buckets<Index>(x, length, most, room); }) {
      return work.template take_from_buckets<Index>(x, length, most, room);
    } else { // on the host: every program includes host_work, which therefore does not include these loops
      auto selected = sparse_stream<T, Index>::sparse(work.memory(), n, room);
      selected.shrink(kernel::take_from_buckets(x, length, most, selected.indices().data(), selected.values().data(),
                                                work.memory()));
      return ready(std::move(selected));
    }
  }
};

} // namespace spar::inline v0_1::selector
