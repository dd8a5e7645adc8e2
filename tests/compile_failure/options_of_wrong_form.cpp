// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm whose `options` has a wrong signature is rejected in one sentence: ranks could not compare the options.
#include <spar/spar.hpp>

struct mine : spar::algorithm_defaults {
  static constexpr std::string_view name = "mine";
#ifndef POSITIVE_CONTROL
  std::uint64_t options() const { return 7; }
#endif
  template <spar::transport Net, class T, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<T>, Op) const& {
    co_return;
  }
};

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, mine{}); }
