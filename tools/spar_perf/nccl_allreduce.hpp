// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ncclAllReduce, with which spar_perf compares on values in device memory.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/spar.hpp>
#include <spar/transport/nccl/check.hpp>

#include <nccl.h>

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace spar::perf::detail {

/// A rank's communicator of NCCL, whose calls block the host.
class nccl_allreduce {
 public:
  /// Collective among the ranks of `net`; joins on the current device.
  template <class Net>
  explicit nccl_allreduce(Net& net) {
    using words = std::array<std::uint32_t, sizeof(ncclUniqueId) / sizeof(std::uint32_t)>;
    ncclUniqueId id{};
    if (net.rank() == 0) spar::detail::check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    auto shared = std::bit_cast<words>(id);
    spar::broadcast(net, std::span<std::uint32_t>(shared), 0);
    id = std::bit_cast<ncclUniqueId>(shared);
    spar::detail::check_nccl(ncclCommInitRank(&comm_, static_cast<int>(net.size()), id, static_cast<int>(net.rank())),
                             "ncclCommInitRank");
  }
  nccl_allreduce(const nccl_allreduce&) = delete;
  /// Waits for no other rank, which may have failed.
  ~nccl_allreduce() { ncclCommAbort(comm_); }

  /// Puts the sum in place into the stream of the values.
  void operator()(spar::device_span<float> x) const {
    spar::detail::check_nccl(
        ncclAllReduce(x.data, x.data, static_cast<std::size_t>(x.size), ncclFloat, ncclSum, comm_, x.stream),
        "ncclAllReduce");
  }

 private:
  ncclComm_t comm_ = nullptr;
};

} // namespace spar::perf::detail
