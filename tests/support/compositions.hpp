// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions that several tests use.
#pragma once

#include "support/schedules.hpp"

#include <spar/spar.hpp>

#include <cstdint>

namespace spar_test {

/// A schedule with a storage, for all values, on a flat network.
template <class Storage, class Schedule>
using stored = spar::composition<spar::everything, Storage, spar::flat, Schedule>;

/// Recursive doubling whose encoded streams travel in parts.
template <std::uint64_t Parts>
struct doubling_in_parts : spar::recursive_doubling {
  doubling_in_parts() : recursive_doubling{.parts = Parts} {}
};

/// A storage: streams as coordinates, dense blocks quantised.
template <int Bits>
using then_qsgd = spar::storage::then<spar::storage::coo, spar::storage::qsgd<Bits>>;
template <int Bits>
using quantised_split = stored<then_qsgd<Bits>, spar::dsar_split>;
template <int Bits>
using quantised_sparcml = spar::basic_sparcml<then_qsgd<Bits>>;

} // namespace spar_test
