// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles all systems for 16-bit floats.
#ifndef SPAR_PERF_FEW_TYPES
#include "typed_measurement.hpp"

namespace spar::perf {

#ifdef SPAR_HAS_HALF
template std::unique_ptr<measurement> measurement_for<spar::half, std::uint32_t>(const measured_systems&);
#endif
#ifdef SPAR_HAS_BFLOAT16
template std::unique_ptr<measurement> measurement_for<spar::bfloat16, std::uint32_t>(const measured_systems&);
#endif

} // namespace spar::perf
#endif
