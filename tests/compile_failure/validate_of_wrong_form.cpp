// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm whose `validate` has a wrong signature, so that the library would never call it, is rejected in one
// sentence.
#include <spar/spar.hpp>

struct mine : spar::algorithm_defaults {
  static constexpr std::string_view name = "mine";
#ifdef POSITIVE_CONTROL
  template <class T, class Op>
  void validate(std::uint64_t, spar::rank_t, const Op&) const {}
#else
  void validate(std::span<float>) const {}
#endif
  template <spar::transport Net, class T, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<T>, Op) const& {
    co_return;
  }
};

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, mine{}); }
