// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A type that does not say which slot it fills is not a part of a composition.
#include <spar/spar.hpp>

struct mine {
  static constexpr std::string_view name = "mine";
  static void options(auto&&) {}
#ifdef POSITIVE_CONTROL
  static constexpr spar::slot fills = spar::slot::selector;
#endif
};

const auto reduce = spar::compose(mine{}, spar::ring{});
