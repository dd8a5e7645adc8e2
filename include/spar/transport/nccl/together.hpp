// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the ranks of a control transport create and free an NCCL communicator together.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/runtime/barrier.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/transport/nccl/communicator.hpp>

#include <nccl.h>

#include <span>

namespace spar::detail {

/// A collective by which all ranks get the NCCL id of rank 0.
struct share_nccl_id {
  template <transport Net>
  task<void> operator()(channel<Net> net, ncclUniqueId* id) const {
    const std::span<ncclUniqueId> all(id, 1);
    if (net.rank() == 0) {
      for (rank_t peer = 1; peer < net.size(); ++peer) {
        auto sending = net.send(peer, {.format = wire_format::encoded, .count = 1, .pieces = {std::as_bytes(all)}});
        co_await sending;
      }
    } else {
      message_buffer in(net.memory());
      in.place(0, all);
      auto receiving = net.receive(0, in);
      co_await receiving;
    }
  }
  static constexpr signature agreed{
      .digest = fnv1a("spar::nccl"), .element = element_code::uint32, .dimension = sizeof(ncclUniqueId)};
};

/// Returns the id of a new NCCL communicator, the same on all ranks; collective.
template <transport Net>
ncclUniqueId shared_nccl_id(Net& control) {
  ncclUniqueId id{};
  if (control.rank() == 0) id = nccl_communicator::new_id();
  run_collective(control, share_nccl_id::agreed, share_nccl_id{}, &id);
  return id;
}

/// A collective that no rank ends before all ranks have begun it.
struct meet_ranks {
  template <transport Net>
  task<void> operator()(channel<Net> net) const {
    return barrier(net);
  }
  static constexpr signature agreed{.digest = fnv1a("spar::~nccl"), .element = element_code::uint32, .dimension = 1};
};

/// Waits until all ranks have called this.
template <transport Net>
void meet(Net& control) {
  run_collective(control, meet_ranks::agreed, meet_ranks{});
}

} // namespace spar::detail
