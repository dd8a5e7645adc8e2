// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk in the order of a CUDA stream: a step between two searches for thresholds and boundaries, whose messages have
// room for the quotas of owners.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/values/ordered.cuh>
#include <spar/cuda/values/ordered_merge.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace spar::inline v0_1::detail {

/// The memory of Ok-Topk's calls on n values, and the calls (Ok-Topk, algorithm 1, without the lines that find
/// thresholds and boundaries). A checked call finds these, and `renew` copies them to the device.
template <kernel::ranked T, index_type Index>
class ordered_ok_topk {
  using message_type = kernel::padded_message<T, Index>;
  using part_type = kernel::device_coo<T, Index>;

 public:
  /// For the composition `algorithm`, whose selector reuses a threshold.
  template <class Composition>
  ordered_ok_topk(rank_t ranks, std::uint64_t n, const Composition& algorithm)
      : ranks_(static_cast<std::uint64_t>(ranks)), n_(n),
        most_(std::max<std::uint64_t>(algorithm.select.bounds(n).most, 1)), form_{slice_quota(ranks_, most_)},
        received_(std::min(ranks_ * form_.room, n)), merge_(ranks_, n, form_.room), sum_(ranks_ * form_.room) {
    for (auto* messages : {&out_, &in_, &shares_}) messages->reserve(ranks_ * form_.bytes());
    for (auto* parts : {&slices_, &gathered_}) parts->reserve(ranks_);
    for (auto* indices : {&mine_i_, &sums_i_, &kept_i_}) indices->reserve(std::max(most_, received_));
    for (auto* values : {&mine_v_, &sums_v_, &kept_v_}) values->reserve(std::max(most_, received_));
    sums_.reserve(1), thresholds_.reserve(1), counts_.reserve(3);
    bounds_.reserve(ranks_ + 1), begins_.reserve(ranks_ + 1);
    taking_.reserve(kernel::take_words(n));
    dividing_.reserve(kernel::partition_words(received_));
  }

  /// Starts to copy the thresholds and boundaries of a checked call to the device.
  template <class State>
  void renew(const State& state, ordered_host_memory& memory, cudaStream_t stream) {
    std::byte* at = memory.staging(sizeof(thresholds) + sizeof(part_type) + bytes_of_bounds());
    const auto upload = [&](void* to, const void* from, std::size_t bytes) {
      std::memcpy(at, from, bytes);
      start_copy(static_cast<std::byte*>(to), at, bytes, cudaMemcpyHostToDevice, stream);
      at += bytes;
    };
    const auto global = static_cast<kernel::magnitude<T>>(state.by.global_threshold);
    const auto local = static_cast<kernel::magnitude<T>>(state.select.threshold);
    const thresholds both{{global, 0, 1, 0}, std::max<kernel::magnitude<T>>(local, 1)}; // all ties are kept
    const part_type sums{sums_i_.data(), sums_v_.data(), 0};
    upload(thresholds_.data(), &both, sizeof(both));
    upload(sums_.data(), &sums, sizeof(sums));
    upload(bounds_.data(), state.by.boundaries.data(), bytes_of_bounds());
    has_ = {state.select.threshold, state.by.global_threshold, state.by.boundaries};
  }
  /// Whether `renew` has copied this state.
  template <class State>
  [[nodiscard]] bool is_ready(const State& state) const {
    return has_.local > 0 && has_.local == state.select.threshold && has_.global == state.by.global_threshold &&
           has_.boundaries == state.by.boundaries;
  }

  /// Puts a call into the stream of `x`: `x` becomes the sum, and `residual` what of this rank is not in it.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, T* residual, ordered_words& words, Op op) const {
    const cudaStream_t stream = x.stream;
    const auto rank = static_cast<std::uint64_t>(net.rank());
    std::uint64_t *const taken = counts_.data(), *const kept = taken + 1, *const bad = taken + 2;
    const thresholds* const above = thresholds_.data();

    // Select, and send each owner its slice.
    kernel::start_add(residual, x.data, n_, residual, stream);
    kernel::start_take_at_least(residual, n_, &above->local, mine_i_.data(), mine_v_.data(), most_, taken,
                                taking_.data(), stream);
    const kernel::outgoing_messages<T, Index> to{form_, out_.data(), in_.data() + rank * form_.bytes(), rank};
    kernel::start_slice(mine_i_.data(), mine_v_.data(), taken, most_, bounds_.data(), ranks_, to, residual,
                        begins_.data(), &words.entries, stream);
    net.exchange(out_.data(), in_.data(), form_.bytes(), stream);

    // Sum this rank's block, and keep the sums that reach the global threshold.
    std::uint64_t* const sums_count = &sums_.data()->count;
    kernel::start_list_messages(in_.data(), ranks_, form_, slices_.data(), rank, nullptr, &words.too_many, stream);
    merge_(bounds_.data() + rank, slices_.data(), sums_i_.data(), sums_v_.data(), sums_count, &words.disordered, op,
           stream);
    const kernel::by_cut_at<T> keep{&above->global};
    kernel::start_partition(sums_.data(), received_, keep, kept_i_.data(), kept_v_.data(), kept, dividing_.data(),
                            stream);

    // Gather the kept sums of all blocks.
    kernel::start_write_message(kept_i_.data(), kept_v_.data(), kept, form_, shares_.data() + rank * form_.bytes(),
                                &words.dropped, stream);
    net.all_gather(shares_.data(), form_.bytes(), stream);
    kernel::start_list_messages(shares_.data(), ranks_, form_, gathered_.data(), rank, nullptr, &words.too_many,
                                stream);
    kernel::start_join_messages(gathered_.data(), ranks_, form_.room, bounds_.data(), sum_.indices(), sum_.values(),
                                sum_.count(), &words.disordered, bad, stream);
    sum_.write(x, op, net.size());

    // What is not in the sum returns to the residual.
    kernel::start_assign_unlisted(mine_i_.data(), mine_v_.data(), begins_.data() + ranks_, most_, sum_.indices(),
                                  sum_.count(), residual, stream);
  }

  [[nodiscard]] ordered_entries<T, Index> sum() const noexcept { return sum_.view(); }
  /// The room for entries in a message, and in all slices of a rank, and the bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t message_room() const noexcept { return form_.room; }
  [[nodiscard]] std::uint64_t room() const noexcept { return ranks_ * form_.room; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return 2 * (ranks_ - 1) * form_.bytes(); }

 private:
  struct thresholds {
    kernel::cut<T> global;
    kernel::magnitude<T> local;
  };
  /// The state that the device has.
  struct copied {
    std::uint64_t local = 0, global = 0;
    std::vector<std::uint64_t> boundaries;
  };

  [[nodiscard]] std::size_t bytes_of_bounds() const noexcept { return (ranks_ + 1) * sizeof(std::uint64_t); }

  std::uint64_t ranks_, n_, most_;
  message_type form_;
  std::uint64_t received_; // the most sums of a block
  ordered_merge<T, Index> merge_;
  ordered_sum<T, Index> sum_;
  device_array<std::byte> out_, in_, shares_;    // the messages of all ranks
  device_array<part_type> slices_, gathered_;    // the entries in `in_` and `shares_`
  device_array<Index> mine_i_, sums_i_, kept_i_; // selected, summed, and kept from the sums
  device_array<T> mine_v_, sums_v_, kept_v_;
  device_array<part_type> sums_; // describes the sums
  device_array<thresholds> thresholds_;
  device_array<std::uint64_t> counts_, bounds_, begins_; // `begins_` of the slices, and the number of entries
  device_array<std::uint64_t> taking_, dividing_;
  copied has_;
};

} // namespace spar::inline v0_1::detail
