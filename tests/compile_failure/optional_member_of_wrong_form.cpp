// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An optional member of a part whose form spar would never call is rejected in one sentence.
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

struct halves : spar::storage::as_half {
#ifndef POSITIVE_CONTROL
  bool can_encode(std::span<const float>, float) const { return false; }
#endif
};
struct entries : spar::storage::coo {
#ifdef POSITIVE_CONTROL
  template <class T>
  double cost(const spar::network_model&) const {
    return 1e-9;
  }
#else
  double cost(const spar::network_model&) const { return 1e-9; }
#endif
};
struct nonzeros : spar::selector::nonzeros {
#ifdef POSITIVE_CONTROL
  std::uint64_t period = 8;
#else
  std::uint64_t period() const { return 8; }
#endif
};
struct largest : spar::selector::exact_topk {
#ifdef POSITIVE_CONTROL
  spar::selector::topk_bounds
#else
  std::uint64_t
#endif
  bounds(std::uint64_t n) const {
    return {n};
  }
};

void f(spar::threads& net, std::span<float> x) {
  spar::allreduce(net, x, spar::compose(halves{}, spar::ring{}));
  spar::allreduce(net, x, spar::compose(spar::selector::nonzeros{}, entries{}));
  spar::allreduce(net, x, spar::compose(nonzeros{}));
  spar::allreduce(net, x, spar::compose(largest{}));
}
