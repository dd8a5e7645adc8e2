// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of <spar/any_mpi.hpp>.
#pragma once

#include <spar/core/error.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/mpi.hpp>
#include <spar/transport/mpi/hosts.hpp>
#include <spar/transport/mpi_shrink.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

class mpi_rank final : public owned_rank<mpi> {
 public:
  explicit mpi_rank(mpi* own, const std::optional<rendezvous>& meeting = {}) : owned_rank(own), meeting_(meeting) {
    hosts = hosts_of(net().communicator());
  }
  /// Ranks of `from`, which no other communicator of its ranks calls `group`.
  mpi_rank(mpi* own, const mpi_rank& from, std::string_view group) : mpi_rank(own) {
    if (from.meeting_) meeting_ = from.meeting_->among(group, net().rank(), net().size());
  }

  any_rank* split(int colour, int key) override {
    auto* const part = new mpi(net().split(colour, key));
    return new mpi_rank(part, *this, sentence("part", divisions_++, "of", colour));
  }
  any_rank* shrink() override {
    if (!meeting_) refuse("shrink", "it is a rank of mpi without a rendezvous, by which the ranks would agree");
    return new mpi_rank(new mpi(net().shrink(*meeting_)), *this, "rest");
  }
  any_rank* grow() override { refuse("grow", "it is a rank of mpi, and MPI connects processes by its own functions"); }

 private:
  std::optional<rendezvous> meeting_;
  std::uint64_t divisions_ = 0;
};

} // namespace detail

SPAR_INLINE any_transport any_mpi(MPI_Comm comm) {
  return detail::any_access::transport(new detail::mpi_rank(new mpi(comm)));
}
SPAR_INLINE any_transport any_mpi(MPI_Comm comm, const rendezvous& meeting) {
  return detail::any_access::transport(new detail::mpi_rank(new mpi(comm), meeting));
}

} // namespace spar::inline v0_1
