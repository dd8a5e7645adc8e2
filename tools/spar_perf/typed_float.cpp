// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles all systems for values of type float.
#include "typed_measurement.hpp"

namespace spar::perf {

template std::unique_ptr<measurement> measurement_for<float, std::uint32_t>(const measured_systems&);

} // namespace spar::perf
