// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkA in the order of a CUDA stream: messages have room for k entries, and no host learns how many they contain.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/values/ordered.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::detail {

/// The memory of TopkA's calls on n values, and the calls: every rank gathers the k largest sums of gradient and
/// residual of all ranks, and merges them (the baseline TopkA of Ok-Topk, section 2).
template <kernel::ranked T, index_type Index>
class ordered_topka {
 public:
  /// For the composition `algorithm`, whose selector is an exact top-k.
  template <class Composition>
  ordered_topka(rank_t ranks, std::uint64_t n, const Composition& algorithm)
      : ranks_(static_cast<std::uint64_t>(ranks)), n_(n), k_(algorithm.select.bounds(n).k), form_{k_},
        sum_(std::min(ranks_ * k_, n)) {
    messages_.reserve(ranks_ * form_.bytes());
    parts_.reserve(ranks_);
    selecting_.reserve(kernel::topk_bytes<T, Index>(n, k_));
    merging_.reserve(kernel::merge_many_words<T>(ranks_, n));
  }

  /// Puts a call into the stream of `x`: `x` becomes the sum, and `residual` what this rank has not sent.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, T* residual, ordered_words& words, Op op) const {
    const cudaStream_t stream = x.stream;
    const auto rank = static_cast<std::uint64_t>(net.rank());
    std::byte* const mine = messages_.data() + rank * form_.bytes();

    kernel::start_add(residual, x.data, n_, residual, stream);
    kernel::start_topk(residual, n_, k_, 0, form_.indices(mine), form_.values(mine), form_.head(mine),
                       selecting_.data(), stream);
    net.all_gather(messages_.data(), form_.bytes(), stream);
    kernel::start_list_messages(messages_.data(), ranks_, form_, parts_.data(), rank, &words.entries.sent,
                                &words.too_many, stream);
    kernel::start_merge_many(parts_.data(), ranks_, 0, n_, sum_.indices(), sum_.values(), op, sum_.count(),
                             &words.disordered, merging_.data(), stream);
    sum_.write(x, op, net.size());
  }

  [[nodiscard]] ordered_entries<T, Index> sum() const noexcept { return sum_.view(); }
  /// The room for entries in a message, and for those that a rank sends, and the bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t message_room() const noexcept { return form_.room; }
  [[nodiscard]] std::uint64_t room() const noexcept { return form_.room; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return (ranks_ - 1) * form_.bytes(); }

 private:
  std::uint64_t ranks_, n_, k_;
  kernel::padded_message<T, Index> form_;
  ordered_sum<T, Index> sum_;
  device_array<std::byte> messages_;                 // of all ranks
  device_array<kernel::device_coo<T, Index>> parts_; // the entries in them
  device_array<std::byte> selecting_;
  device_array<std::uint64_t> merging_;
};

} // namespace spar::inline v0_1::detail
