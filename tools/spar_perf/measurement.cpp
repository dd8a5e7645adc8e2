// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses the types that the options name.
#include "measurement.hpp"

#include "element_types.hpp"

#include <utility>

namespace spar::perf {

template <class T, class Index>
std::unique_ptr<measurement> measurement_for(const measured_systems& what); // in one of the files typed_*

std::unique_ptr<measurement> measurement_of(const measured_systems& what) {
  return with_types(what.o, [&](auto type, auto index) {
    return measurement_for<typename decltype(type)::type, typename decltype(index)::type>(what);
  });
}

bool take_rows(const measurement& systems, std::vector<record> records, std::vector<row>& rows) {
  const std::size_t done = records.front().seconds.size();
  if (done > 0) {
    for (auto& r : systems.rows(std::move(records))) rows.push_back(std::move(r));
  }
  return done >= systems.iterations();
}

} // namespace spar::perf
