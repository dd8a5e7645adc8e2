// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The steps that the schedules of Ok-Topk have in common (algorithm 1): the exchange with the owners of balanced
// blocks, and the global threshold, which is used again in later calls (section 3.1.3). The quotas say how many entries
// a rank may send to each owner without a round that first adds up the entries of each block.
#pragma once

#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/topk/balanced_ownership.hpp>
#include <spar/collective/topk/global_threshold.hpp>
#include <spar/collective/topk/owners_state.hpp>
#include <spar/core/element.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/checked_cast.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// The largest number of entries that an owner gets if all ranks are within their quotas; a balanced block has at most
/// `most` entries. The square root is room for chance: if the entries are at random indices, and a rank has c = most /
/// P entries in a block, then c changes from call to call by sqrt(2 c), its standard deviation. The room of a rank
/// is 2.8 times as large.
inline std::uint64_t most_within_quotas(std::uint64_t most, std::size_t ranks) {
  return most + 4 * static_cast<std::uint64_t>(__builtin_sqrt(static_cast<double>(most) * static_cast<double>(ranks)));
}

/// The quotas of this rank in a call, and what the exchange of the call has counted (see split_sparse). A rank's quota
/// for a block is what the rank sent to the block in the last call, and a P-th of what the owner may get in addition.
/// So the quotas of all ranks for a block add up to at most most_within_quotas.
struct block_quotas {
  buffer<std::uint64_t> quotas;  ///< for each block
  bool known = false;            ///< whether there are quotas; if not, slices may have any length
  bool enforced = false;         ///< whether a rank that exceeds a quota withholds its slices
  std::span<std::uint64_t> sent; ///< the number of this rank's entries in each block
  std::uint64_t received = 0;    ///< the number of all ranks' entries in this rank's block
  bool exceeded = false;         ///< whether this rank has exceeded a quota in this call
  bool withheld = false;         ///< whether a rank has withheld its slices; if so, no rank gets sums

  /// No quotas.
  block_quotas() = default;
  /// Computes the quotas for blocks of at most `most` entries from the `last` counts, in which the exchange will count
  /// the entries of this call. There are no quotas if the last counts are not known, or if a block had too many
  /// entries.
  block_quotas(pool& memory, std::size_t ranks, std::uint64_t most, block_counts& last)
      : quotas(memory, ranks), known(last.received.size() == ranks) {
    const std::uint64_t limit = most_within_quotas(most, ranks);
    last.sent.resize(ranks);
    sent = last.sent;
    for (std::size_t b = 0; b < ranks && known; ++b) {
      known = last.received[b] <= limit;
      quotas.data()[b] = sent[b] + (limit - last.received[b]) / ranks;
    }
    enforced = known && last.quotas_hold != 0;
  }

  /// Counts the `slices` of this rank, and returns whether the rank withholds them.
  template <class Slices>
  bool withhold(const Slices& slices) {
    for (std::size_t b = 0; b < sent.size(); ++b) {
      sent[b] = slices[static_cast<rank_t>(b)].count();
      exceeded = exceeded || (known && sent[b] > std::as_const(quotas).data()[b]);
    }
    return withheld = enforced && exceeded;
  }
  /// Notes that `in` has arrived. Returns whether all slices are void because a rank has withheld its own.
  bool are_void(const message_buffer& in) {
    withheld = withheld || (enforced && in.head().format == wire_format::parts && in.head().count == 0);
    return withheld;
  }
  /// Counts the entries of all ranks' `slices` in this rank's block.
  template <class Slices>
  void count_received(const Slices& slices) {
    received = 0;
    for (const auto& slice : slices) received += slice.count();
  }

  /// What an owner tells all ranks: the number of entries that it has received, and whether it has exceeded a quota as
  /// a sender, in one number that fits an index.
  template <index_type Index>
  [[nodiscard]] std::uint64_t report() const noexcept {
    if (received > std::numeric_limits<Index>::max() / 2) return 1; // too many for quotas
    return 2 * received + (exceeded ? 1 : 0);
  }
};

/// One call of Ok-Topk on a rank. Each rank owns a block of indices. A schedule runs these steps, in this order:
/// - `exchange` sends this rank's entries to their owners, and gets the sums of this rank's block;
/// - `count` counts all ranks' sums that reach the threshold of the last call;
/// - `threshold` searches for a new threshold if needed, and keeps the sums that reach it.
/// Then the schedule gathers the kept sums: `shares()` says how many each rank has.
///
/// The entries, the state and the report must outlive the object.
template <transport Net, element T, index_type Index, class Target>
class owners_call {
 public:
  /// A call with the entries `mine`. `target` prescribes how many entries each block should get; the boundaries are
  /// computed again every `tau` calls. If `limited`, ranks send entries within quotas; otherwise, the ranks add up the
  /// entries of each block in every call.
  template <class Call>
  owners_call(channel<Net> net, stream_view<T, Index> mine, Target target, const Call& call, std::uint64_t tau,
              bool limited)
      : net_(net), mine_(mine), target_(target), bounds_(call.bounds), state_(&call.state), report_(&call.report),
        anew_(call.state.calls % tau == 0), searches_(call.state.calls % call.period == 0), width_(limited ? 3 : 2),
        counts_(net.memory(), width_ * ranks()), shares_(net.memory(), ranks() + 1) {
    *report_ = {};
    ++state_->calls;
    state_->boundaries.resize(static_cast<std::size_t>(target.count()) + 1);
    most_ = (bounds_.most + ranks()) * ranks() / static_cast<std::size_t>(target.count());
    if (limited) quotas_ = block_quotas(net.memory(), ranks(), most_, state_->counts);
  }

  // The steps are coroutines of the call (see task).
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return net_.scheduler(); }
  [[nodiscard]] detail::call_error& call_error() const noexcept { return net_.call_error(); }
  /// The boundaries of the blocks.
  [[nodiscard]] std::span<const std::uint64_t> boundaries() const noexcept { return state_->boundaries; }
  /// The P + 1 bounds of the ranks' shares of the kept sums, in rank order: rank r has [shares[r], shares[r + 1]).
  [[nodiscard]] std::span<const std::uint64_t> shares() const noexcept { return shares_.span(); }
  /// The quotas of this rank, and what has been counted.
  [[nodiscard]] block_quotas& quotas() noexcept { return quotas_; }

  /// Returns the sums of this rank's block, which `reduce(quotas)` computes. If possible, the ranks send their entries
  /// at once, each within its quotas. A rank that would exceed a quota withholds its entries; all ranks then add up the
  /// entries of each block, balance the blocks if one has more entries than a balanced one, and send their entries. The
  /// ranks count first, and send once, if it is time for new boundaries, if the last call has left no quotas, or if a
  /// rank would have exceeded its quotas in the last call.
  ///
  /// A rank sends the messages of `reduce`; in a call that counts first, also those of balance_ownership; in a call in
  /// which a rank exceeds a quota, both, and P - 1 flags or slices more.
  template <class Reduce>
  task<sparse_stream<T, Index>> exchange(Reduce reduce) {
    quotas_.enforced = quotas_.enforced && !anew_ && detail::divides(state_->boundaries, target_.n);
    report_->counted_first = !quotas_.enforced;
    if (quotas_.enforced) {
      sparse_stream<T, Index> sums = co_await reduce(quotas_);
      report_->repeated = quotas_.withheld;
      quotas_.enforced = false;
      if (!report_->repeated) co_return sums;
    }
    const std::span<std::uint64_t> boundaries(state_->boundaries);
    report_->boundary_rounds = co_await balance_ownership(net_, mine_.indices(), target_, boundaries, anew_, most_);
    co_return co_await reduce(quotas_);
  }

  /// Counts the sums of all ranks above and at the threshold; `sums` are those of this rank's block. A rank sends
  /// ceil(log2 P) messages, which have 2 (P - 1) words of 4 bytes in all, or 4 (P - 1) words with 64-bit indices. With
  /// quotas, what each owner has received travels in the same messages, which then have half as many words again.
  /// Throws `corrupt_message` if the counts that arrive are impossible.
  task<void> count(const sparse_stream<T, Index>& sums) {
    const auto rank = static_cast<std::size_t>(net_.rank());
    const std::span<counter> counts = counts_.span();
    const detail::threshold_counts own = co_await detail::count_from(net_, sums.values(), last_threshold());
    counts[width_ * rank] = checked_cast<counter>(own.above);
    counts[width_ * rank + 1] = checked_cast<counter>(own.at);
    if (width_ > 2) counts[width_ * rank + 2] = checked_cast<counter>(quotas_.template report<Index>());
    const bruck_allgather allgather;
    co_await allgather(net_.on_host().template with_element<counter>(), counts);
    all_ = {};
    block_counts& next = state_->counts;
    next.received.resize(width_ > 2 ? ranks() : 0);
    next.quotas_hold = 1;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const detail::threshold_counts theirs{counts[width_ * r], counts[width_ * r + 1]};
      if (theirs.above > sums.dimension() || theirs.at > sums.dimension() - theirs.above) {
        raise<corrupt_message>({"rank ", r, " reports ", theirs.above, " entries above the threshold and ", theirs.at,
                                " at the threshold; expected at most ", sums.dimension(), " (the dimension) in all"});
      }
      all_.above += theirs.above;
      all_.at += theirs.at;
      if (width_ == 2) continue;
      next.received[r] = counts[width_ * r + 2] / 2;
      if (counts[width_ * r + 2] % 2 != 0) next.quotas_hold = 0;
    }
  }

  /// After `count`: the least threshold that `threshold` may find. The sums that `threshold` gets may lack some below
  /// this magnitude; those that `count` gets may lack some below the last threshold.
  [[nodiscard]] kernel::magnitude<T> lowest_threshold() const {
    return needs_search() ? search().lowest() : last_threshold();
  }

  /// Removes from `sums` every sum that is not among the largest sums of all ranks by magnitude. The number of sums
  /// that all ranks keep together is within the bounds; if fewer sums are nonzero, the ranks keep all nonzero sums. If
  /// not all sums at the threshold can be kept, sums of lower ranks have priority; among the sums of one rank, those
  /// with lower indices have priority.
  ///
  /// If it is time, or if too few or too many sums reach the last threshold, the ranks search for a new one. Each round
  /// is an allreduce by recursive doubling, with messages of 62 words. For values of 4 bytes, a search takes at most 8
  /// rounds, and fewer if the threshold changes little or if the bounds do not require exactly k sums; if the threshold
  /// changes, the ranks count again. Throws `corrupt_message` if the counts that arrive are inconsistent.
  task<void> threshold(sparse_stream<T, Index>& sums) {
    if (needs_search()) {
      detail::threshold_search<T> search = this->search();
      for (; !search.done(); ++report_->threshold_rounds) {
        const std::span<std::uint64_t> own = co_await search.count(net_, sums.values());
        const recursive_doubling allreduce;
        co_await allreduce(net_.on_host().template with_element<std::uint64_t>(), own, sum{});
        search.narrow();
      }
      if (last_threshold() != search.threshold()) {
        state_->global_threshold = search.threshold();
        co_await count(sums);
        ++report_->threshold_rounds;
      }
    }
    co_await net_.work().keep_from(sums, last_threshold(), share_ties());
  }

 private:
  // A block has at most as many entries as there are indices, so counters of the width of an index suffice.
  using counter = std::conditional_t<sizeof(Index) == 4, std::uint32_t, std::uint64_t>;

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(net_.size()); }
  [[nodiscard]] kernel::magnitude<T> last_threshold() const noexcept {
    return static_cast<kernel::magnitude<T>>(state_->global_threshold);
  }
  [[nodiscard]] bool needs_search() const noexcept {
    const std::uint64_t kept = all_.kept(bounds_);
    return searches_ || kept > bounds_.most || (kept < bounds_.least && last_threshold() > 1);
  }
  [[nodiscard]] detail::threshold_search<T> search() const { return {last_threshold(), all_, bounds_}; }

  /// Sets the shares, and returns how many of this rank's sums at the threshold are kept.
  std::uint64_t share_ties() {
    const std::span<const counter> counts = std::as_const(counts_).span();
    const std::span<std::uint64_t> shares = shares_.span();
    std::uint64_t ties = all_.kept(bounds_) - all_.above, own = 0;
    shares[0] = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint64_t taken = std::min<std::uint64_t>(ties, counts[width_ * r + 1]);
      shares[r + 1] = shares[r] + counts[width_ * r] + taken;
      ties -= taken;
      if (r == static_cast<std::size_t>(net_.rank())) own = taken;
    }
    return own;
  }

  channel<Net> net_;
  stream_view<T, Index> mine_;
  Target target_;
  selector::topk_bounds bounds_;
  owners_state* state_;
  owners_report* report_;
  bool anew_;              // whether it is time for new boundaries
  bool searches_;          // whether it is time for a new threshold
  std::uint64_t most_ = 0; // the largest number of entries in a block of average size
  block_quotas quotas_;
  std::size_t width_;      // of a row of `counts_`
  buffer<counter> counts_; // for each owner: the sums above the threshold, those at it, and the report of its quotas
  detail::threshold_counts all_; // the totals
  buffer<std::uint64_t> shares_;
};

} // namespace spar::inline v0_1
