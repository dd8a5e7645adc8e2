// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each selector takes from two gradients, one after the other: the number of entries, and their share of the
// squared length of the gradient. The rest stays in the vector.
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <cstdio>
#include <memory_resource>
#include <numeric>
#include <random>
#include <span>
#include <vector>

double square(std::span<const float> x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

/// Few large values among many small ones, as in a gradient; all values grow from step to step.
std::vector<float> gradient_of(int step) {
  std::mt19937 random(static_cast<unsigned>(step));
  std::student_t_distribution<float> heavy_tailed(3);
  std::vector<float> x(100'000);
  for (float& value : x) value = heavy_tailed(random) * (1 + 0.01F * static_cast<float>(step));
  return x;
}

int main() {
  const spar::pool_owner memory(*std::pmr::new_delete_resource());
  const auto show = [&]<class Selector>(const Selector& by) {
    spar::state_of<Selector> state; // in which threshold_reuse keeps its threshold
    std::printf("%-15s", Selector::name.data());
    for (int step = 0; step < 2; ++step) {
      std::vector<float> x = gradient_of(step);
      const double all = square(x);
      const spar::sparse_stream<float> selected = spar::select(by, std::span(x), *memory, state);
      std::printf("  %5u entries, %4.1f %%", static_cast<unsigned>(selected.view().count()),
                  100 * square(selected.view().values()) / all);

      selected.for_each([&](std::uint32_t i, float value) { x[i] += value; });
      if (x != gradient_of(step)) throw spar::error("an entry is neither in the selection nor in the rest");
    }
    std::printf("\n");
  };

  std::printf("%-17sfirst gradient         second gradient\n", "selector");
  show(spar::selector::exact_topk{.density = 0.01});
  show(spar::selector::bucket_topk{.k = 5});              // of each 512 entries
  show(spar::selector::threshold_reuse{.density = 0.01}); // the second call reuses the threshold of the first
  show(spar::selector::gaussian{.density = 0.01});
}
