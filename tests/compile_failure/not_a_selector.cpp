// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A type that is not a selector is rejected in the place of a selector.
#include <spar/spar.hpp>

struct nothing {
  static constexpr std::string_view name = "nothing";
  static constexpr spar::slot fills = spar::slot::selector;
  static void validate(std::uint64_t) {}
  template <class F>
  void options(F&&) const {}
};

#ifdef POSITIVE_CONTROL
constexpr spar::selector::nonzeros chosen{};
#else
constexpr nothing chosen{};
#endif

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, spar::compose(chosen)); }
