// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions that several tests use.
#pragma once

#include <spar/spar.hpp>

namespace spar_test {

/// A schedule with a storage, for all values, on a flat network.
template <class Storage, class Schedule>
using stored = spar::composition<spar::everything, Storage, spar::flat, Schedule>;

/// A storage: streams as coordinates, dense blocks quantised.
template <int Bits>
using then_qsgd = spar::storage::then<spar::storage::coo, spar::storage::qsgd<Bits>>;
template <int Bits>
using quantised_split = stored<then_qsgd<Bits>, spar::dsar_split>;
template <int Bits>
using quantised_sparcml = spar::basic_sparcml<then_qsgd<Bits>>;

} // namespace spar_test
