// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A selector that keeps the largest values cannot rank those of a user's type, and says so.
#include <spar/spar.hpp>

struct money {
  std::int64_t cents;
  friend money operator+(money a, money b) { return {a.cents + b.cents}; }
  friend bool operator==(money, money) = default;
};
template <>
inline constexpr spar::element_code spar::code_of<money> = static_cast<spar::element_code>(64);

#ifdef POSITIVE_CONTROL
using selector_type = spar::selector::nonzeros;
#else
using selector_type = spar::selector::exact_topk;
#endif

void f(spar::threads& net, std::span<money> x) {
  spar::allreduce(net, x, spar::compose(selector_type{}, spar::ssar_split{}));
}
