// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of any transport, and groups of ranks in one process.
#include <spar/system/any/group-inl.hpp>
#include <spar/system/any/results-inl.hpp>
#include <spar/system/any/transport-inl.hpp>
#include <spar/transport/any-inl.hpp>

template class spar::any_pending<void>;
