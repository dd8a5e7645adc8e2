// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A participation that does not say who starts a round is rejected in one sentence.
#include <spar/spar.hpp>
#include <spar/system/partial_allreduce.hpp>

struct mine {
  static constexpr std::string_view name = "mine";
  static constexpr void validate(spar::rank_t) noexcept {}
  void options(auto&&) const {}
#ifdef POSITIVE_CONTROL
  [[nodiscard]] static constexpr bool initiates(spar::rank_t rank, std::uint64_t, spar::rank_t) noexcept {
    return rank == 0;
  }
#endif
};

void f(spar::threads& net) { (void)spar::partial_allreduce<float>(net, 10, mine{}); }
