// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A temporary stream has no view, no indices and no values, which would refer to memory that is gone; nor has the
// temporary result of an allgather.
#include <spar/spar.hpp>

#include <utility>

void f(spar::sparse_stream<float>& stream, spar::gathered<float>& all) {
#ifdef POSITIVE_CONTROL
  auto& temporary = stream;
  auto& of_all = all;
  (void)temporary.view(), (void)temporary.indices(), (void)temporary.values(), (void)of_all.part(0);
#else
  (void)std::move(stream).view();
  (void)std::move(stream).indices();
  (void)std::move(stream).values();
  (void)std::move(all).part(0);
#endif
}
