// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What does not select cannot stand in the place of a selector.
#include <spar/spar.hpp>
#include <spar/system/collective.hpp>

struct nothing {
  static constexpr std::string_view name = "nothing";
};

#ifdef POSITIVE_CONTROL
using chosen = spar::collective<spar::selector::all>;
#else
using chosen = spar::collective<nothing>;
#endif

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, chosen{}); }
