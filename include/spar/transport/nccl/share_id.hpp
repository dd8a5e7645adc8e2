// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the ranks of a control transport agree on the id by which NCCL lets them find each other.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>

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
        auto sending = net.send(peer, {.format = wire_format::block_coded, .count = 1, .pieces = {std::as_bytes(all)}});
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

} // namespace spar::detail
