// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport over UCX, whose code is in the compiled library.
#pragma once

#include <spar/any.hpp>
#include <spar/rendezvous/rendezvous.hpp>

#include <memory>

namespace spar::inline v0_1 {

/// Returns the rank of this process among those that `meeting` names, with the conditions and the errors of the
/// constructor of `spar::ucx`. Collective over these ranks.
[[nodiscard]] any_transport any_ucx(const rendezvous& meeting = rendezvous::from_environment());

/// Joins the ranks of a job when they call `grow` next, with the conditions and the errors of `ucx::join`. The job
/// meets where `meeting` and the variables of the environment say.
[[nodiscard]] any_transport any_ucx_join(const rendezvous_options& meeting = {});
/// The same for a job that meets in `store`, a store that the program brings, with the errors of `ucx::join`. Of
/// `meeting`, only the deadline and the network interface count.
[[nodiscard]] any_transport any_ucx_join(const std::shared_ptr<rendezvous_store>& store,
                                         const rendezvous_options& meeting = {});

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/system/any/ucx-inl.hpp>
#endif
