// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split and allgather in the order of a CUDA stream: slices have room for quotas, and blocks of the sum for
// all sums that these can make, or are dense.
#pragma once

#include <spar/collective/allreduce/split_allgather.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/values/ordered.cuh>
#include <spar/cuda/values/ordered_blocks.cuh>
#include <spar/cuda/values/ordered_merge.cuh>
#include <spar/storage/storage.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar::inline v0_1::detail {

/// The memory of the calls of a split_allgather on n values, and the calls (SparCML, sections 5.3.2, 5.3.3 and 6):
/// every rank sends each owner its slice of the k largest sums of gradient and residual, and gathers the sums of all
/// blocks. The blocks travel as `Phase` says, where `adaptive` takes the smaller messages; `Codec` encodes them if all
/// are dense.
template <kernel::ranked T, index_type Index, second_phase Phase, class Codec>
class ordered_split {
  using message_type = kernel::padded_message<T, Index>;
  using part_type = kernel::device_coo<T, Index>;
  static constexpr bool is_plain = std::same_as<Codec, storage::dense>;
  static_assert(Phase == second_phase::dense || is_plain);

 public:
  /// For the composition `algorithm`, whose selector is an exact top-k.
  template <class Composition>
  ordered_split(rank_t ranks, std::uint64_t n, const Composition& algorithm)
      : ranks_(static_cast<std::uint64_t>(ranks)), n_(n), k_(algorithm.select.bounds(n).k),
        blocks_(ranks, n, storage::blocks_of(algorithm.store)), slice_{room_of_slice()},
        sums_{std::max<std::uint64_t>(1, std::min(ranks_ * slice_.room, blocks_.most()))},
        merge_(ranks_, blocks_.most(), slice_.room, Phase == second_phase::dense ? ranks_ : split_bucket),
        is_dense_(Phase == second_phase::dense || (Phase == second_phase::adaptive && blocks_.bytes() < sums_.bytes())),
        sum_(is_dense_ ? sums_.room : ranks_ * sums_.room) {
    for (auto* slices : {&out_, &in_}) slices->reserve(ranks_ * slice_.bytes());
    if (!is_dense_ || !in_place()) gathered_.reserve(ranks_ * bytes_of_block());
    if (is_dense_ && !is_plain) block_.reserve(blocks_.most());
    parts_.reserve(ranks_), cut_.reserve(1), bad_.reserve(1);
    mine_i_.reserve(k_), mine_v_.reserve(k_);
    begins_.reserve(ranks_ + 1);
    selecting_.reserve(kernel::topk_bytes<T, Index>(n, k_));
    std::vector<std::uint64_t> bounds;
    for (rank_t r = 0; r < ranks; ++r) bounds.push_back(blocks_[r].begin);
    bounds.push_back(n);
    bounds_.assign(bounds);
  }

  /// Puts a call into the stream of `x`: `x` becomes the sum, and `residual` what this rank has not sent, and what the
  /// codec has lost of this rank's block.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, T* residual, ordered_words& words, Op op) const {
    const cudaStream_t stream = x.stream;
    const auto rank = static_cast<std::uint64_t>(net.rank());

    // Select, and send each owner its slice.
    kernel::start_add(residual, x.data, n_, residual, stream);
    kernel::start_topk(residual, n_, k_, 0, mine_i_.data(), mine_v_.data(), cut_.data(), selecting_.data(), stream);
    const kernel::outgoing_messages<T, Index> to{slice_, out_.data(), in_.data() + rank * slice_.bytes(), rank};
    kernel::start_slice(mine_i_.data(), mine_v_.data(), &cut_.data()->count, k_, bounds_.data(), ranks_, to, residual,
                        begins_.data(), &words.entries, stream);
    net.exchange(out_.data(), in_.data(), slice_.bytes(), stream);

    kernel::start_list_messages(in_.data(), ranks_, slice_, parts_.data(), rank, nullptr, &words.too_many, stream);
    if (is_dense_)
      gather_dense(net, x, residual, words, op);
    else
      gather_entries(net, x, words, op);
  }

  /// Throws `invalid_argument` if the sum is dense.
  [[nodiscard]] ordered_entries<T, Index> sum() const {
    if (is_dense_)
      raise<invalid_argument>({"the sums of this spar::stream_ordered_feedback travel as blocks of ", blocks_.most(),
                               " values, and have no entries: use the vector of the call, or ssar_split"});
    return sum_.view();
  }
  /// The room for entries in a slice, and in all slices of a rank, and the bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t message_room() const noexcept { return slice_.room; }
  [[nodiscard]] std::uint64_t room() const noexcept { return ranks_ * slice_.room; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return (ranks_ - 1) * (slice_.bytes() + bytes_of_block()); }

 private:
  [[nodiscard]] std::uint64_t room_of_slice() const {
    return std::max<std::uint64_t>(1, std::min(slice_quota(ranks_, std::max<std::uint64_t>(k_, 1)), blocks_.most()));
  }
  [[nodiscard]] std::uint64_t bytes_of_block() const noexcept { return is_dense_ ? blocks_.bytes() : sums_.bytes(); }

  /// Starts to sum this rank's block into its message, and to gather the blocks as entries.
  template <class Net, class Op>
  void gather_entries(Net& net, device_span<T> x, ordered_words& words, Op op) const {
    const auto rank = static_cast<std::uint64_t>(net.rank());
    std::byte* const own = gathered_.data() + rank * sums_.bytes();
    merge_(bounds_.data() + rank, parts_.data(), sums_.indices(own), sums_.values(own), &sums_.head(own)->count,
           &words.disordered, op, x.stream);
    net.all_gather(gathered_.data(), sums_.bytes(), x.stream);
    kernel::start_list_messages(gathered_.data(), ranks_, sums_, parts_.data(), rank, nullptr, &words.too_many,
                                x.stream);
    kernel::start_join_messages(parts_.data(), ranks_, sums_.room, bounds_.data(), sum_.indices(), sum_.values(),
                                sum_.count(), &words.disordered, bad_.data(), x.stream);
    sum_.write(x, op, net.size());
  }
  /// Whether the messages of all ranks, one after the other, are the n values: then they are in the vector itself.
  [[nodiscard]] bool in_place() const noexcept { return is_plain && blocks_.all_bytes() == n_ * sizeof(T); }
  /// Starts to sum this rank's block to dense values, and to gather the blocks, of which each is encoded once.
  template <class Net, class Op>
  void gather_dense(Net& net, device_span<T> x, T* residual, ordered_words& words, Op op) const {
    if (n_ == 0) return;
    const rank_t rank = net.rank();
    const index_range own = blocks_[rank];
    std::byte* const messages = in_place() ? reinterpret_cast<std::byte*>(x.data) : gathered_.data();
    std::byte* const message = blocks_.message(messages, rank);
    T* const sum = is_plain ? reinterpret_cast<T*>(message) : block_.data();

    merge_(bounds_.data() + rank, parts_.data(), sum_.indices(), sum_.values(), sum_.count(), &words.disordered, op,
           x.stream);
    const std::uint64_t* const entries = sum_.count();
    kernel::start_write_entries(sum_.indices(), sum_.values(), entries, own.begin, sum, own.size(), T{}, x.stream);
    if constexpr (!is_plain)
      blocks_.encode(std::span<const T>(sum, own.size()), own.begin, message, 0, &words.refused, x.stream);
    net.all_gather(messages, blocks_.bytes(), x.stream);
    for (rank_t r = 0; r < net.size() && !in_place(); ++r)
      blocks_.decode(blocks_.message(messages, r), blocks_.of(x.data, r), x.stream);
    if constexpr (!is_plain)
      kernel::start_scatter_difference<Index>(nullptr, sum, x.data + own.begin, own.size(), residual + own.begin,
                                              x.stream);
    blocks_.end_call(x.stream);
    if constexpr (requires { op.finalize(T{}, net.size()); })
      kernel::start_finalize(x.data, n_, net.size(), op, x.stream);
  }

  std::uint64_t ranks_, n_, k_;
  ordered_blocks<T, Codec> blocks_; // of the sum
  message_type slice_, sums_;       // of a rank's entries for an owner, and of the entries of a block of the sum
  ordered_merge<T, Index> merge_;   // in the order of the host, whose dense sums add rank after rank
  bool is_dense_;                   // whether blocks travel as dense values
  ordered_sum<T, Index> sum_;       // of this rank's block, if blocks are dense
  device_array<std::byte> out_, in_, gathered_; // the messages of all ranks
  device_array<T> block_;                       // this rank's, before a codec encodes it
  device_array<part_type> parts_;               // the entries in `in_`, then those in `gathered_`
  device_array<Index> mine_i_;
  device_array<T> mine_v_;
  device_array<kernel::cut<T>> cut_; // of the selection
  device_array<std::uint64_t> bounds_, begins_, bad_;
  device_array<std::byte> selecting_;
};

} // namespace spar::inline v0_1::detail
