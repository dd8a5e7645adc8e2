// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views, and calls that outlive their expression, reject temporaries that own their values, which would be gone. Each
// call has types of its own, because the compiler prints a sentence once for each.
#include <spar/spar.hpp>

#include <array>
#include <vector>

template <class T>
std::vector<T> variable;
template <class T>
#ifdef POSITIVE_CONTROL
std::vector<T>& values() {
  return variable<T>;
}
#else
std::vector<T> values() {
  return variable<T>;
}
#endif

void views() {
  (void)spar::sparse_view(9, values<std::uint32_t>(), variable<float>);
  (void)spar::sparse_view(9, variable<std::uint32_t>, values<double>());
  (void)spar::dense_view(values<std::int32_t>());
  (void)spar::rows<1>(values<std::int64_t>());
  (void)spar::bounded_ownership{values<std::uint64_t>()};
}
void calls(spar::threads& net, spar::ok_topk<float>& feedback) {
  (void)spar::start_allreduce(net, values<std::uint32_t>());
  (void)spar::start_broadcast(net, spar::named{"n"}, values<double>(), 0);
  (void)feedback.start_reduce(net, values<float>());
}
