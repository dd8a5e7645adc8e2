// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule without `accepts`, which says what the schedule can be composed with, is rejected in one sentence.
#include <spar/spar.hpp>

struct mine {
  static constexpr std::string_view name = "mine";
  static constexpr spar::slot fills = spar::slot::schedule;
  static void options(auto&&) {}
#ifdef POSITIVE_CONTROL
  template <class Selector, class Storage, class Topology>
  static spar::nothing_against accepts();
#endif
};

const auto reduce = spar::compose(mine{});
