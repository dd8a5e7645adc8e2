// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is no type of values or indices is named by the compiler's message, with a sentence that says what would be one.
#include <spar/spar.hpp>

#include <vector>

#ifdef POSITIVE_CONTROL
using value = long long;
using position = unsigned long long;
#else
using value = long double;
using position = short;
#endif

void f(spar::threads& net, std::vector<value>& values, std::vector<position>& indices) {
  spar::allreduce(net, values);
  spar::broadcast(net, values, 0);
  (void)spar::sparse_view(9, indices, std::span<float>());
}
