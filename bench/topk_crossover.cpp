// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints, as JSON, the model's times of Ok-Topk by each schedule on up to 4096 ranks, and the number of entries from
// which `pruned_owners` is the fastest.
#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/storage/coded.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>

namespace {

struct link_costs {
  const char* name;
  double alpha, beta;
};
constexpr link_costs links[] = {{"100 Mbit/s", 3e-5, 8e-8}, {"1 Gbit/s", 3e-5, 8e-9}, {"10 Gbit/s", 2e-5, 8e-10}};

spar::network_model model_of(const link_costs& l) {
  return {.alpha = l.alpha, .beta = l.beta, .gamma_sparse = 2.7e-9, .gamma_dense = 2.7e-9, .gamma_coded = 5.4e-9};
}

/// The least k of n entries, to a tenth of a decade, for which `pruned_owners` is chosen; 0 if there is none below n.
std::uint64_t pruned_from(const spar::network_model& net, spar::rank_t ranks, std::uint64_t n) {
  for (int tenths = 10;; ++tenths) {
    const auto k = static_cast<std::uint64_t>(std::lround(std::pow(10, tenths / 10.0)));
    if (k >= n) return 0;
    const auto chosen =
        spar::cheapest_owners::choose<float, std::uint32_t, spar::sum>(net, ranks, n, k, spar::storage::coded<>{});
    if (chosen == spar::owners_choice::pruned) return k;
  }
}

} // namespace

int main() {
  constexpr std::uint64_t n = 1 << 20, k = 10486; // density 1 %
  const char* separator = "[\n";
  for (const link_costs& l : links) {
    const spar::network_model net = model_of(l);
    for (spar::rank_t ranks = 2; ranks <= 4096; ranks *= 2) {
      const auto plain = spar::shape_of<float, std::uint32_t>(spar::storage::coo{}, net, ranks, n, k);
      const auto coded = spar::shape_of<float, std::uint32_t>(spar::storage::coded<>{}, net, ranks, n, k);
      std::printf("%s{\"link\": \"%s\", \"ranks\": %d, \"n\": %llu, \"k\": %llu, \"ok_topk\": %.6g, "
                  "\"ok_topk+coded\": %.6g, \"ok_topk+pruned\": %.6g, \"pruned_from\": %llu}",
                  separator, l.name, ranks, static_cast<unsigned long long>(n), static_cast<unsigned long long>(k),
                  spar::seconds_balanced_owners(net, plain), spar::seconds_balanced_owners(net, coded),
                  spar::seconds_pruned_owners(net, coded),
                  static_cast<unsigned long long>(pruned_from(net, ranks, 100'000'000)));
      separator = ",\n";
    }
  }
  std::printf("\n]\n");
}
