// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs sums on 1 to 5 ranks. Compiled with _GLIBCXX_DEBUG, the standard library ends the program where a span, an
// iterator or a reference is made of what does not exist.
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace {

/// Throws unless the values are those of a sum over the ranks of `net` of vectors of ones.
void check(const spar::threads& net, const std::vector<float>& x, const char* what) {
  for (const float value : x) {
    if (value != static_cast<float>(net.size()))
      throw spar::error(spar::sentence(what, " of ", net.size(), " ones is ", double{value}));
  }
}

template <class Algorithm>
void sum_ones(spar::threads& net, std::size_t n, const Algorithm& algorithm) {
  std::vector<float> x(n, 1);
  spar::allreduce(net, x, algorithm);
  check(net, x, "a sum");
}

void call(spar::threads& net, std::size_t n) {
  sum_ones(net, n, spar::recursive_doubling{});
  sum_ones(net, n, spar::rabenseifner{});
  sum_ones(net, n, spar::ring{});
  const std::vector<std::uint32_t> indices(n == 0 ? 0 : 1, 0);
  const std::vector<float> ones(indices.size(), 1);
  const auto sum = spar::allreduce(net, spar::sparse_view(n, indices, ones));
  std::vector<float> x(n, static_cast<float>(net.size()));
  sum.for_each([&](auto at, float value) { x[at] = value; });
  check(net, x, "a sparse sum");
}

} // namespace

int main() {
  for (spar::rank_t ranks = 1; ranks <= 5; ++ranks) {
    for (const std::size_t n : {0, 1, 7, 3000}) {
      spar::thread_group group(ranks);
      group.run([&](spar::threads& net) { call(net, n); });
    }
  }
  std::puts("done");
}
