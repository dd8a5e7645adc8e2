// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML: the sparse allreduce that uses the cheapest of its three algorithms (SparCML, sections 5.3 and 8.1).
#pragma once

#include <spar/collective/allreduce/compose.hpp>

namespace spar {

/// The default algorithm of `allreduce`. With a `Storage` of two codecs, such as then<storage::coo, storage::qsgd<4>>,
/// the second phase of the dense algorithm (DSAR) is quantised (section 6).
template <class Storage = storage::coo>
using basic_sparcml = composition<everything, Storage, flat, cheapest>;
using sparcml = basic_sparcml<>;

} // namespace spar
