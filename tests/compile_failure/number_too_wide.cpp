// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An option of a type whose values do not fit into 64 bits is rejected in one sentence: its digest would be rounded.
#include <spar/spar.hpp>

struct mine : spar::algorithm_defaults {
  static constexpr std::string_view name = "mine";
#ifdef POSITIVE_CONTROL
  double share = 0.5;
#else
  long double share = 0.5L;
#endif
  void options(auto&& f) const { f("share", share); }
  template <spar::transport Net, class T, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<T>, Op) const& {
    co_return;
  }
};

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, mine{}); }
