// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every member of the classes of <spar/any.hpp>, whose bodies the compiled library has.
#include "../../src/any/classes.hpp"

#include <spar/any.hpp>

#include <cstdint>
#include <vector>

SPAR_CLASSES_FOR(float, std::uint32_t);

namespace every_member {

void run(spar::any_group& ranks, std::vector<float>& x) {
  const spar::any_allreduce<float> ring("ring");
  ranks.run([&](spar::any_transport& net) { ring(net, x); });
}

} // namespace every_member
