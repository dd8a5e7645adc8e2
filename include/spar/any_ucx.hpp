// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport over UCX, whose code is in the compiled library.
#pragma once

#include <spar/any.hpp>
#include <spar/rendezvous/rendezvous.hpp>

#include <span>

namespace spar::inline v0_1 {

/// Returns the rank of this process among those that `meeting` names, with the conditions and the errors of the
/// constructor of `spar::ucx`. Collective over these ranks. Unless `hosts` is empty, writes to `hosts[r]`, for each
/// rank r, the lowest rank on the same host (see `hosts_of`): with these numbers, an any_allreduce or an any_feedback
/// uses the tree of the hosts. Throws `invalid_argument` if `hosts` has another length than the number of ranks.
[[nodiscard]] any_transport any_ucx(const rendezvous& meeting = rendezvous::from_environment(),
                                    std::span<rank_t> hosts = {});

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/transport/ucx_any-inl.hpp>
#endif
