// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The agreement of ranks on the order of their NCCL transfers. NCCL matches sends and receives only by their order, and
// runs the groups of a rank one after another, so all ranks must submit their transfers in orders that fit together.
//
// Time is divided into epochs, as in Skeen's total order of messages. Each transfer gets an epoch in three steps:
//
// 1. The sender announces the transfer.
// 2. The receiver, once it wants the message, offers the first epoch that it has not submitted.
// 3. The sender decides the later one of the offer and the first epoch that the sender has not submitted.
//
// A rank submits all transfers of an epoch as one group, in the order of (sender, id), once none of the rank's offers
// could still be decided to be in this epoch. Both ends of a transfer thus submit it in the same epoch, and transfers
// between the same two ranks have the same order at both ends.
//
// No deadlock: the sender answers each offer when it makes progress, whatever its coroutines wait for, so each offer is
// decided. Of all decided transfers that have not ended, consider those of the least epoch. At both ends, all groups of
// earlier epochs have ended, and no earlier group can follow. Both ends therefore submit the epoch, and nothing is
// before their groups in their streams. All operations of a group run concurrently, so the transfers end.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/transport/nccl/transfer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <tuple>
#include <vector>

namespace spar::inline v0_1::detail {

/// The transfers of one rank that have not ended, and the rank's part in the agreement.
class nccl_agreement {
  using stage = nccl_transfer::stage;

 public:
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

  /// Adds a transfer that this rank sends, and gives it a number.
  void announce(nccl_transfer& t, rank_t own) {
    t.at = stage::announced;
    t.sender = own;
    t.id = ++announced_;
    all_.push_back(&t);
  }
  /// Adds a transfer that `t.peer` has announced by the number `id`, and offers an epoch for it: `t.epoch`.
  void offer(nccl_transfer& t, std::uint64_t id) {
    t.at = stage::offered;
    t.sender = t.peer;
    t.id = id;
    t.epoch = open_;
    all_.push_back(&t);
  }
  /// Decides the epoch of this rank's transfer `id` to `receiver`, which has offered the epoch `offered`. Throws
  /// `corrupt_message` if there is no such transfer without an epoch.
  const nccl_transfer& decide(rank_t receiver, std::uint64_t id, std::uint64_t offered) {
    nccl_transfer& t = find(stage::announced, receiver, id, "an offer");
    set_epoch(t, std::max(offered, open_));
    return t;
  }
  /// Learns that `sender` has decided the epoch of the transfer `id`. Throws `corrupt_message` if there is no such
  /// transfer without an epoch, or if the epoch is earlier than this rank's offer.
  void learn(rank_t sender, std::uint64_t id, std::uint64_t epoch) {
    nccl_transfer& t = find(stage::offered, sender, id, "a decision");
    if (epoch < t.epoch) {
      raise<corrupt_message>({"rank ", sender, " has decided the epoch ", epoch, " for the NCCL transfer ", id,
                              "; expected the offered epoch ", t.epoch, " or a later one"});
    }
    set_epoch(t, epoch);
  }

  /// Whether the next epoch can be submitted: all its transfers are known.
  [[nodiscard]] bool has_due() const noexcept {
    const std::uint64_t next = least(stage::decided);
    return next != none && least(stage::offered) > next;
  }
  /// Replaces the contents of `group` by the transfers of the next epoch, in their order. Only if `has_due()`.
  void get_next(std::vector<nccl_transfer*>& group) const {
    group.clear();
    const std::uint64_t next = least(stage::decided);
    for (nccl_transfer* t : all_) {
      if (t->at == stage::decided && t->epoch == next) group.push_back(t);
    }
    std::sort(group.begin(), group.end(), [](const nccl_transfer* a, const nccl_transfer* b) {
      return std::tie(a->sender, a->id) < std::tie(b->sender, b->id);
    });
  }
  /// Notes that NCCL gets the transfers of the next epoch, which `get_next` has returned.
  void submit(const std::vector<nccl_transfer*>& group) noexcept {
    for (nccl_transfer* t : group) t->at = stage::submitted;
    open_ = group.front()->epoch + 1;
  }

  /// Removes the submitted transfers of an epoch that has ended, and calls `end(transfer)` for each.
  template <class End>
  void end(std::uint64_t epoch, End end) {
    remove([=](const nccl_transfer& t) { return t.at == stage::submitted && t.epoch == epoch; }, end);
  }
  /// Removes all transfers, and calls `end(transfer)` for each.
  template <class End>
  void end_all(End end) {
    remove([](const nccl_transfer&) { return true; }, end);
  }
  /// Makes the operations of all transfers end in the error `why` once their coroutines are resumed.
  void set_error(const std::exception_ptr& why) noexcept {
    for (nccl_transfer* t : all_) t->error = why;
  }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

  /// The least epoch of the transfers in the stage `at`; `none` if there are none.
  [[nodiscard]] std::uint64_t least(stage at) const noexcept {
    std::uint64_t epoch = none;
    for (const nccl_transfer* t : all_) {
      if (t->at == at) epoch = std::min(epoch, t->epoch);
    }
    return epoch;
  }
  nccl_transfer& find(stage at, rank_t peer, std::uint64_t id, const char* what) const {
    for (nccl_transfer* t : all_) {
      if (t->at == at && t->peer == peer && t->id == id) return *t;
    }
    raise<corrupt_message>({"rank ", peer, " has sent ", what, " for the NCCL transfer ", id,
                            ", which does not exist or already has an epoch"});
  }
  /// The later transfers of this rank join the same epoch, so that one group contains many transfers.
  void set_epoch(nccl_transfer& t, std::uint64_t epoch) noexcept {
    t.at = stage::decided;
    t.epoch = epoch;
    open_ = std::max(open_, epoch);
  }
  template <class Predicate, class End>
  void remove(Predicate ended, End end) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      nccl_transfer* const t = all_[i];
      if (ended(*t))
        end(*t);
      else
        all_[kept++] = t;
    }
    all_.resize(kept);
  }

  std::vector<nccl_transfer*> all_;
  std::uint64_t announced_ = 0; // number of transfers that this rank has announced
  std::uint64_t open_ = 1;      // the first epoch that further transfers may join; later than all submitted epochs
};

} // namespace spar::inline v0_1::detail
