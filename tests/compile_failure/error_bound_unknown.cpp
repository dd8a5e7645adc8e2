// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nothing bounds the error of a composition that drops entries, of an unknown schedule, or of a sum of integers:
// rejected, in one sentence each.
#include <spar/spar.hpp>
#include <spar/tolerance.hpp>

struct mine {
  static constexpr std::string_view name = "mine";
  static constexpr spar::slot fills = spar::slot::schedule;
  static void validate(std::uint64_t) {}
  static void options(auto&&) {}
  template <class Selector, class Storage, class Topology>
  static spar::nothing_against accepts();
};

#ifdef POSITIVE_CONTROL
const double bound = spar::error_bound(spar::ring{}, 2, 1.0);
#else
const double of_selector = spar::error_bound(spar::selector::exact_topk{.k = 3}, 2, 1.0);
const double of_schedule = spar::error_bound(mine{}, 2, 1.0);
const double of_integers = spar::error_bound<int>(spar::ring{}, 2, 1.0);
#endif
