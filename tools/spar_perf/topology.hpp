// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tree of the network that a run is told of, or finds.
#pragma once

#include "options.hpp"

#include <spar/topology/tree.hpp>

#include <span>

namespace perf {

/// That of `--topology`; `hosts`: of each rank, a number that names its host. Throws `usage_error` where the file has
/// no tree of these ranks.
spar::tree topology_of(const options& o, std::span<const spar::rank_t> hosts);

} // namespace perf
