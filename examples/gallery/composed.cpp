// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One program, composed in several ways: which bytes it sends, and how much of the sum of four gradients arrives.
#include <spar/spar.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

/// The gradient of a rank: few large values, most of them at the same indices on all ranks, and many small ones.
std::vector<float> gradient_of(spar::rank_t rank) {
  std::mt19937 common(0), own(static_cast<unsigned>(rank));
  std::student_t_distribution<float> signal(1.5F);
  std::normal_distribution<float> noise(0, 0.1F);
  std::vector<float> x(50'000);
  for (float& value : x) value = signal(common) + noise(own);
  return x;
}

/// Sums by `algorithm`, and prints what rank 0 sends and the error relative to the exact sum, which `bound` limits.
template <class Algorithm>
void measure(spar::threads& net, std::span<const float> exact, const char* name, double bound,
             const Algorithm& algorithm) {
  std::vector<float> x = gradient_of(net.rank());
  spar::allreduce(net, x, algorithm);
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares += (x[i] - exact[i]) * (x[i] - exact[i]);
    all += exact[i] * exact[i];
  }
  const double error = std::sqrt(squares / all);
  if (!(error <= bound)) throw spar::error("the error is too large");
  if (net.rank() == 0) {
    std::printf("%-23s %6u bytes, error %4.1f %%\n", name, static_cast<unsigned>(net.last_call().bytes_sent),
                100 * error);
  }
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    std::vector<float> exact = gradient_of(net.rank());
    spar::allreduce(net, exact, spar::ring{});

    using namespace spar;
    const selector::exact_topk top{.density = 0.01};
    measure(net, exact, "everything, ring", 0, compose(ring{}));
    measure(net, exact, "8 bits, ring", 0.1, compose(storage::qsgd<8>{}, ring{}));
    measure(net, exact, "1 %, split-allgather", 0.4, compose(top, ssar_split{}));
    measure(net, exact, "1 % of the sum, owners", 0.4, compose(top, balanced_owners{}));
  });
}
