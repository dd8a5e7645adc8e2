// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles all systems for integers.
#include "typed_measurement.hpp"

namespace spar::perf {

template std::unique_ptr<measurement> measurement_for<std::int32_t, std::uint32_t>(const measured_systems&);
#ifndef SPAR_PERF_FEW_TYPES
template std::unique_ptr<measurement> measurement_for<std::int64_t, std::uint32_t>(const measured_systems&);
#endif

} // namespace spar::perf
