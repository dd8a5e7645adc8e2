// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split and allgather in the order of a CUDA stream: slices have room for quotas, and blocks of the sum for
// all sums that these can make.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/values/ordered.cuh>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spar::inline v0_1::detail {

/// The memory of the calls of a split_allgather on n values, and the calls (SparCML, section 5.3.2): every rank sends
/// each owner its slice of the k largest sums of gradient and residual, and gathers the sums of all blocks.
template <kernel::ranked T, index_type Index>
class ordered_split {
  using message_type = kernel::padded_message<T, Index>;
  using part_type = kernel::device_coo<T, Index>;

 public:
  /// For the composition `algorithm`, whose selector is an exact top-k.
  template <class Composition>
  ordered_split(rank_t ranks, std::uint64_t n, const Composition& algorithm)
      : ranks_(static_cast<std::uint64_t>(ranks)), n_(n), k_(algorithm.select.bounds(n).k),
        form_{slice_quota(ranks_, std::max<std::uint64_t>(k_, 1))}, block_(uniform_ownership{n, ranks}[0].size()),
        sums_{std::max<std::uint64_t>(1, std::min(ranks_ * form_.room, block_))}, sum_(ranks_ * sums_.room) {
    for (auto* slices : {&out_, &in_}) slices->reserve(ranks_ * form_.bytes());
    blocks_.reserve(ranks_ * sums_.bytes());
    parts_.reserve(ranks_), cut_.reserve(1), bad_.reserve(1);
    mine_i_.reserve(k_), mine_v_.reserve(k_);
    begins_.reserve(ranks_ + 1);
    selecting_.reserve(kernel::topk_bytes<T, Index>(n, k_));
    merging_.reserve(kernel::merge_many_words<T>(ranks_, block_));
    const uniform_ownership owner{n, ranks};
    std::vector<std::uint64_t> bounds;
    for (rank_t r = 0; r <= ranks; ++r) bounds.push_back(owner.begin(r));
    bounds_.reserve(ranks_ + 1);
    check_cuda(cudaMemcpy(bounds_.data(), bounds.data(), bounds.size() * sizeof(std::uint64_t), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // a short copy may still be on its way
  }

  /// Puts a call into the stream of `x`: `x` becomes the sum, and `residual` what this rank has not sent.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, T* residual, ordered_words& words, Op op) const {
    const cudaStream_t stream = x.stream;
    const auto rank = static_cast<std::uint64_t>(net.rank());
    std::byte* const own = blocks_.data() + rank * sums_.bytes();

    // Select, and send each owner its slice.
    kernel::start_add(residual, x.data, n_, residual, stream);
    kernel::start_topk(residual, n_, k_, 0, mine_i_.data(), mine_v_.data(), cut_.data(), selecting_.data(), stream);
    const kernel::outgoing_messages<T, Index> to{form_, out_.data(), in_.data() + rank * form_.bytes(), rank};
    kernel::start_slice(mine_i_.data(), mine_v_.data(), &cut_.data()->count, k_, bounds_.data(), ranks_, to, residual,
                        begins_.data(), &words.entries, stream);
    net.exchange(out_.data(), in_.data(), form_.bytes(), stream);

    // Sum this rank's block into its message, and gather the blocks.
    kernel::start_list_messages(in_.data(), ranks_, form_, parts_.data(), rank, nullptr, &words.too_many, stream);
    kernel::start_merge_many_in(bounds_.data() + rank, block_, parts_.data(), ranks_, sums_.indices(own),
                                sums_.values(own), op, &sums_.head(own)->count, &words.disordered, merging_.data(),
                                stream);
    net.all_gather(blocks_.data(), sums_.bytes(), stream);
    kernel::start_list_messages(blocks_.data(), ranks_, sums_, parts_.data(), rank, nullptr, &words.too_many, stream);
    kernel::start_join_messages(parts_.data(), ranks_, sums_.room, bounds_.data(), sum_.indices(), sum_.values(),
                                sum_.count(), &words.disordered, bad_.data(), stream);
    sum_.write(x, op, net.size());
  }

  [[nodiscard]] ordered_entries<T, Index> sum() const noexcept { return sum_.view(); }
  /// The room for entries in a slice, and in all slices of a rank, and the bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t message_room() const noexcept { return form_.room; }
  [[nodiscard]] std::uint64_t room() const noexcept { return ranks_ * form_.room; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return (ranks_ - 1) * (form_.bytes() + sums_.bytes()); }

 private:
  std::uint64_t ranks_, n_, k_;
  message_type form_;   // of a slice
  std::uint64_t block_; // the indices of the largest block
  message_type sums_;   // of a block of the sum
  ordered_sum<T, Index> sum_;
  device_array<std::byte> out_, in_, blocks_; // the messages of all ranks
  device_array<part_type> parts_;             // the entries in `in_`, then those in `blocks_`
  device_array<Index> mine_i_;
  device_array<T> mine_v_;
  device_array<kernel::cut<T>> cut_; // of the selection
  device_array<std::uint64_t> bounds_, begins_, bad_, merging_;
  device_array<std::byte> selecting_;
};

} // namespace spar::inline v0_1::detail
