// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce out of place converts no values, neither to a narrower type nor to a wider one. Each call has types of
// its own, because the compiler prints a sentence once for each.
#include <spar/spar.hpp>

#include <vector>

#ifdef POSITIVE_CONTROL
template <class, class Out>
using input = Out;
#else
template <class In, class>
using input = In;
#endif

template <class T>
std::vector<T> values;

void f(spar::threads& net, std::vector<std::int32_t>& int32, std::vector<float>& float32, std::span<double> float64) {
  spar::allreduce(net, values<input<std::int64_t, std::int32_t>>, int32);
  spar::allreduce(net, spar::named{"n"}, values<input<double, float>>, float32);
  (void)spar::start_allreduce(net, values<input<float, double>>, float64);
  (void)spar::start_allreduce(net, spar::named{"n"}, values<input<std::uint32_t, std::int32_t>>, int32);
}
