// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A type that does not have the form of a selector is rejected in one sentence, wherever a selector may stand. Each
// place has a type of its own, because the compiler prints a sentence once for each.
#include <spar/spar.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <cstdint>
#include <span>
#include <string_view>

template <int Number>
struct writes_to {
  static constexpr std::string_view name = "writes_to";
  static constexpr spar::slot fills = spar::slot::selector;
  static void validate(std::uint64_t) {}
  void options(auto&&) const {}
  template <class T, class Index>
  void operator()(std::span<T>, spar::sparse_stream<T, Index>&) const {}
};
#ifdef POSITIVE_CONTROL
template <int>
using chosen = spar::selector::nonzeros;
#else
template <int Number>
using chosen = writes_to<Number>;
#endif

void f(spar::threads& net, std::span<float> x) {
  spar::allreduce(net, x, spar::compose(chosen<1>{}));
  (void)spar::start_allreduce(net, x, chosen<2>{});
  spar::with_error_feedback<float>(spar::compose(chosen<3>{}))(net, x);
  (void)spar::partial_allreduce<float>(net, 10, spar::solo{}, chosen<4>{});
  (void)spar::select(chosen<5>{}, x, net.memory());
}
