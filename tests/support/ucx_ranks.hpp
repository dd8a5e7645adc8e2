// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks of a test program over UCX, each of which is a process.
#pragma once

#include <spar/ucx.hpp>

namespace spar_test {

/// Where the ranks of this program meet.
const spar::rendezvous& meeting();

/// Waits until all ranks call it, without UCX.
inline void wait_for_all() { (void)meeting().exchange(""); }

} // namespace spar_test
