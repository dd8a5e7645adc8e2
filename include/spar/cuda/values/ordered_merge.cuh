// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sum of the slices of all ranks in the order of a CUDA stream, with the additions in the order of the host.
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/core/element.hpp>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spar::inline v0_1::detail {

/// Merges of one slice of each rank. As in `split_sparse`, groups of 16 ranks are merged first, and then their sums.
template <element T, index_type Index>
class ordered_merge {
  using part_type = kernel::device_coo<T, Index>;

 public:
  /// For slices of at most `room` entries in a range of at most `most` indices. Merges `group` ranks at a time.
  ordered_merge(std::uint64_t ranks, std::uint64_t most, std::uint64_t room, std::uint64_t group = split_bucket)
      : ranks_(ranks), most_(most), group_(std::min(ranks, group)), groups_((ranks + group_ - 1) / group_),
        room_(std::min(group_ * room, most)) {
    words_.reserve(kernel::merge_many_words<T>(std::max(group_, groups_), most));
    if (groups_ == 1) return;
    indices_.reserve(groups_ * room_), values_.reserve(groups_ * room_);
    std::vector<part_type> sums;
    for (std::uint64_t g = 0; g < groups_; ++g)
      sums.push_back({indices_.data() + g * room_, values_.data() + g * room_, 0});
    sums_.assign(sums);
  }

  /// Starts to merge the slices `parts`, whose indices lie in `range`, two words in device memory. Sets `*wrong` to 1
  /// if the indices of a slice do not ascend in the range.
  template <class Op>
  void operator()(const std::uint64_t* range, const part_type* parts, Index* indices, T* values, std::uint64_t* count,
                  std::uint64_t* wrong, Op op, cudaStream_t stream) const {
    const auto merge = [&](const part_type* some, std::uint64_t number, Index* i, T* v, std::uint64_t* merged) {
      kernel::start_merge_many_in(range, most_, some, number, i, v, op, merged, wrong, words_.data(), stream);
    };
    if (groups_ == 1) return merge(parts, ranks_, indices, values, count);
    for (std::uint64_t g = 0; g < groups_; ++g) {
      const std::uint64_t first = g * group_;
      merge(parts + first, std::min(group_, ranks_ - first), indices_.data() + g * room_, values_.data() + g * room_,
            &sums_.data()[g].count);
    }
    merge(sums_.data(), groups_, indices, values, count);
  }

 private:
  std::uint64_t ranks_, most_, group_, groups_;
  std::uint64_t room_; // for the sum of a group
  device_array<Index> indices_;
  device_array<T> values_;
  device_array<part_type> sums_; // of the groups
  device_array<std::uint64_t> words_;
};

} // namespace spar::inline v0_1::detail
