// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses the types that the options name.
#include "measurement.hpp"

#include "element_types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace spar::perf {

template <class T, class Index>
std::unique_ptr<measurement> measurement_for(const measured_systems& what); // in one of the files typed_*

std::unique_ptr<measurement> measurement_of(const measured_systems& what) {
#ifdef SPAR_PERF_FLOAT_ONLY // for scripts/perf
  if (what.o.type != "float" || what.o.index_bits != 32)
    throw missing("this program was compiled for float with 32-bit indices only; spar_perf has all types");
  return measurement_for<float, std::uint32_t>(what);
#else
  return with_types(what.o, [&](auto type, auto index) {
    return measurement_for<typename decltype(type)::type, typename decltype(index)::type>(what);
  });
#endif
}

bool take_rows(const measurement& systems, std::vector<record> records, std::vector<row>& rows) {
  const auto by_iterations = [](const record& a, const record& b) { return a.seconds.size() < b.seconds.size(); };
  const auto [fewest, most] = std::minmax_element(records.begin(), records.end(), by_iterations);
  const bool complete = fewest->seconds.size() >= systems.iterations();
  const std::size_t done = most->seconds.size();
  if (done > 0) {
    for (auto& r : systems.rows(std::move(records))) rows.push_back(std::move(r));
  }
  return complete;
}

} // namespace spar::perf
