// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each selector takes from two gradients, one after the other: the number of entries, and their share of the
// squared length of the gradient. The rest stays in the vector.
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <cstdio>
#include <functional>
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
  const auto show = [&](const char* name, auto select) {
    std::printf("%-15s", name);
    for (int step = 0; step < 2; ++step) {
      std::vector<float> x = gradient_of(step);
      const double all = square(x);
      const spar::sparse_stream<float> selected = select(std::span(x), *memory);
      std::printf("  %5u entries, %4.1f %%", static_cast<unsigned>(selected.view().count()),
                  100 * square(selected.view().values()) / all);

      selected.for_each([&](std::uint32_t i, float value) { x[i] += value; });
      if (x != gradient_of(step)) throw spar::error("an entry is neither in the selection nor in the rest");
    }
    std::printf("\n");
  };

  std::printf("%-17sfirst gradient         second gradient\n", "selector");
  show("exact_topk", spar::selector::exact_topk{.density = 0.01});
  show("bucket_topk", spar::selector::bucket_topk{.k = 5}); // of each 512 entries
  const spar::selector::threshold_reuse reuse{.density = 0.01};
  spar::selector::threshold_reuse::state threshold; // of the first call, which the second one reuses
  show("threshold_reuse", [&](auto x, spar::pool& from) { return reuse(x, from, threshold); });
  show("gaussian", spar::selector::gaussian{.density = 0.01});
}
