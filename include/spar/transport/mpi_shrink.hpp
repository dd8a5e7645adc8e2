// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The function `mpi::shrink`, by which the ranks of an MPI communicator go on after a failure.
#pragma once

#include <spar/core/util/fnv1a.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/survivors.hpp>
#include <spar/transport/mpi.hpp>
#include <spar/transport/patience.hpp>

#include <string>
#include <vector>

namespace spar::inline v0_1 {

inline mpi mpi::shrink(const rendezvous& meeting) {
  if (meeting.rank() != rank() || meeting.size() != size()) {
    raise<invalid_argument>({"rank ", rank(), " of ", size(), " calls shrink with the rendezvous of rank ",
                             meeting.rank(), " of ", meeting.size(), "; expected that of its communicator"});
  }
  detail::end_for_shrink(port());
  detail::patience_of<mpi_port> with(port());
  std::vector<int> left;
  const std::string prefix = meeting.key("survivors/");
  for (const detail::survivor& one : detail::agree_on_survivors(meeting.meeting(), prefix, rank(), size(), "", with))
    left.push_back(one.rank);
  return mpi(port().communicator().among(left, detail::fnv1a(prefix)), *this);
}

} // namespace spar::inline v0_1
