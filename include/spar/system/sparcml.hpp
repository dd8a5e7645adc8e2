// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML: an allreduce of sparse streams that runs whichever of three algorithms is the cheapest according to the
// model of the network (SparCML, sections 5.3 and 8.1).
#pragma once

#include <spar/collective/allreduce/compose.hpp>

namespace spar {

/// SparCML, the default algorithm of `allreduce`. If `Storage` has two codecs, as in `then<storage::coo,
/// storage::qsgd<4>>`, the second codec encodes the second phase of DSAR, SparCML's dynamic sparse allreduce (SparCML,
/// section 6).
template <class Storage = storage::coo>
using basic_sparcml = composition<everything, Storage, flat, cheapest>;
/// SparCML without compression, the default algorithm of `allreduce`.
using sparcml = basic_sparcml<>;

} // namespace spar
