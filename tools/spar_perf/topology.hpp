// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tree of the network, read from a file or made from the hosts of the ranks.
#pragma once

#include "options.hpp"

#include <spar/topology/tree.hpp>

#include <span>

namespace spar::perf {

/// The tree that `--topology` names. `hosts[r]` is a number that identifies the host of rank r. Throws `usage_error` if
/// the file cannot be read, or if its tree has a different number of ranks.
spar::tree topology_of(const options& o, std::span<const spar::rank_t> hosts);

} // namespace spar::perf
