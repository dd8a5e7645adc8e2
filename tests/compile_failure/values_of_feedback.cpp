// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback rejects values that it cannot overwrite, or of another type, in one sentence for each.
#include <spar/spar.hpp>

#include <vector>

#ifdef POSITIVE_CONTROL
using values = std::vector<float>;
using other = std::vector<float>;
#else
using values = const std::vector<float>;
using other = std::vector<double>;
#endif

void f(spar::threads& net, values& x, other& y, spar::ok_topk<float>& in_place, spar::topka<float>& started,
       spar::gtopk<float>& out_of_place) {
  in_place(net, x);
  (void)started.start(net, y);
  (void)out_of_place.reduce(net, y);
}
