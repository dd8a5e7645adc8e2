// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the ranks of a communicator over UCX find each other.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/rendezvous/joiners.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/survivors.hpp>
#include <spar/transport/ucx/member.hpp>
#include <spar/transport/ucx/worker.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Options of the transport `ucx`.
struct ucx_options {
  /// Upstream resource of the rank's memory pool.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  /// Whether UCX is given values in device memory, if UCX says that it takes them: see `on_device`. Set this option to
  /// false if a transfer from device memory fails or is slower than one by way of the host, and for managed memory.
  bool device_memory = true;
};

namespace detail {

/// What a communicator passes on to one that takes its place, so that it is the same on all ranks.
struct ucx_heritage {
  network_model network;
  double deadline = 0;
  std::uint64_t checksums = 0;  // 1: on
  std::uint64_t next_place = 0; // where processes that join the job ask next; those before have been taken

  [[nodiscard]] std::string text() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
  /// Throws `corrupt_message` if `text` is malformed.
  static ucx_heritage read(std::string_view text) {
    ucx_heritage own;
    if (text.size() != sizeof(own))
      raise<corrupt_message>({"the settings of a communicator have ", text.size(), " bytes; expected ", sizeof(own)});
    std::memcpy(static_cast<void*>(&own), text.data(), sizeof(own));
    return own;
  }
};

/// What a rank has when it founds a communicator together with the others: its worker, and what all have told.
struct ucx_founders {
  rendezvous meeting;
  ucx_worker worker;
  std::vector<ucx_member> members; // by rank

  /// Collective over the ranks that meet: each tells the others about itself.
  static ucx_founders meet(const rendezvous& meeting) {
    std::optional<ucx_worker> made;
    std::string self;
    try {
      made.emplace(make_ucx_context(meeting.network_interface(), meeting.size()));
      self = ucx_member::self(made->address(), 0, 0).text();
    } catch (...) { // the others would wait for this rank
      meeting.refuse_exchange(message_of(std::current_exception()).view());
      throw;
    }
    std::vector<ucx_member> members = read_all(meeting.exchange(self));
    const rendezvous own = group_of(meeting, members, 0, meeting.rank(), meeting.size());
    return {own, std::move(*made), std::move(members)};
  }

  /// Collective over the ranks of an existing communicator, which meet at `meeting`: of those with the same `colour`,
  /// by `key` and then by rank. While this rank waits, it calls `meanwhile()`.
  template <class Meanwhile>
  static ucx_founders split(const rendezvous& meeting, const ucx_worker& other, int colour, int key,
                            Meanwhile& meanwhile) {
    ucx_worker worker(other.context());
    const std::vector<ucx_member> all =
        read_all(meeting.exchange(ucx_member::self(worker.address(), colour, key).text(), meanwhile));
    std::vector<std::pair<int, rank_t>> chosen; // key and rank
    for (rank_t r = 0; r < meeting.size(); ++r) {
      const ucx_member& its = all[static_cast<std::size_t>(r)];
      if (its.colour == colour) chosen.emplace_back(its.key, r);
    }
    std::sort(chosen.begin(), chosen.end());
    std::vector<ucx_member> members;
    rank_t own = 0;
    for (const auto& [its_key, r] : chosen) {
      if (r == meeting.rank()) own = static_cast<rank_t>(members.size());
      members.push_back(all[static_cast<std::size_t>(r)]);
    }
    const rendezvous group = group_of(meeting, members, chosen[0].second, own, static_cast<rank_t>(members.size()));
    return {group, std::move(worker), std::move(members)};
  }

  /// Of the ranks of a dead communicator, which meet at `meeting`: those that go on. Each reports its address as it
  /// agrees who is left, so that nothing is to be exchanged afterwards.
  static ucx_founders shrink(const rendezvous& meeting, const ucx_worker& other, patience& with) {
    ucx_worker worker(other.context());
    const std::string self = ucx_member::self(worker.address(), 0, 0).text();
    std::vector<ucx_member> members;
    rank_t own = 0;
    for (const survivor& one :
         agree_on_survivors(meeting.meeting(), meeting.key("survivors/"), meeting.rank(), meeting.size(), self, with)) {
      if (one.rank == meeting.rank()) own = static_cast<rank_t>(members.size());
      members.push_back(ucx_member::read(sentence("rank ", one.rank), one.text));
    }
    const rendezvous group = meeting.among("survivors", own, static_cast<rank_t>(members.size()));
    return {group, std::move(worker), std::move(members)};
  }

  /// The ranks of a communicator that has grown by the decision `all`, of which this one is the rank `own`, and has the
  /// `worker`. They meet in the store of `meeting`.
  static ucx_founders grown(const rendezvous& meeting, ucx_worker&& worker, const growth& all, rank_t own) {
    std::vector<ucx_member> members = read_all(all.all);
    const rendezvous group =
        meeting.among_all(sentence("grown/", all.next_place), own, static_cast<rank_t>(members.size()));
    return {group, std::move(worker), std::move(members)};
  }

  /// A process that joins the job which meets in the store of `meeting`, and what its communicator takes over.
  static std::pair<ucx_founders, ucx_heritage> join(const rendezvous& meeting) {
    constexpr rank_t several = 8; // nobody knows yet how many
    ucx_worker worker(make_ucx_context(meeting.network_interface(), several));
    const std::string self = ucx_member::self(worker.address(), 0, 0).text();
    const growth all = join_group(meeting.meeting(), self, meeting.deadline());
    const auto own = std::find(all.all.begin(), all.all.end(), self) - all.all.begin();
    ucx_heritage given = ucx_heritage::read(all.settings);
    given.next_place = all.next_place;
    return {grown(meeting, std::move(worker), all, static_cast<rank_t>(own)), given};
  }

 private:
  /// The rendezvous of the `members` alone, of which `rank_of_first` is the rank of the first in `meeting`.
  static rendezvous group_of(const rendezvous& meeting, const std::vector<ucx_member>& members, rank_t rank_of_first,
                             rank_t rank, rank_t size) {
    return meeting.among(sentence("rank", rank_of_first, "number", members[0].number), rank, size);
  }
  static std::vector<ucx_member> read_all(const std::vector<std::string>& texts) {
    std::vector<ucx_member> all;
    for (const std::string& text : texts) all.push_back(ucx_member::read(sentence("rank ", all.size()), text));
    return all;
  }
};

} // namespace detail

} // namespace spar::inline v0_1
