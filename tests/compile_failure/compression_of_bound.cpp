// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The choice of `cheapest` is for a block codec: another argument is rejected in one sentence for each.
#include <spar/collective/compressed/bound.hpp>
#include <spar/spar.hpp>
#include <spar/storage/packed.hpp>

#include <cstdint>

#ifdef POSITIVE_CONTROL
using value = std::int32_t;
constexpr spar::storage::packed sums{.bits = 12};
constexpr spar::storage::dense blocks{};
#else
using value = float;
constexpr spar::storage::bound sums{.error = 0.1};
constexpr auto blocks = spar::compose(spar::storage::qsgd<8>{});
#endif

void f(const spar::network_model& model) {
  (void)spar::cheapest::compression<value>(sums, model, 4, 1000);
  (void)spar::cheapest::compression<value>(blocks, model, 4, 1000);
}
