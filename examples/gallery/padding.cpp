// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A matrix whose rows are padded: a selector that gets the whole array selects the padding, one that gets a
// `spar::strided` sees only the values.
#include <spar/spar.hpp>
#include <spar/strided.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <vector>

constexpr std::size_t rows = 100, columns = 30, width = 32; // two values of padding in each row

std::vector<float> gradient_of(spar::rank_t rank) {
  std::vector<float> x(rows * width, std::numeric_limits<float>::quiet_NaN()); // memory that nobody has written
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      x[i * width + j] = std::sin(static_cast<float>((i * columns + j + 1) * static_cast<std::size_t>(rank + 1)));
  return x;
}

/// How many values of the matrix got a sum.
unsigned sums_in(std::span<const float> x) {
  unsigned sums = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sums += i % width < columns && x[i] != 0 ? 1 : 0;
  return sums;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const auto top_k = spar::compose(spar::selector::exact_topk{.k = 150}, spar::ssar_split{});

    std::vector<float> whole = gradient_of(net.rank());
    spar::allreduce(net, whole, top_k); // NaN ranks above all numbers: each rank sends 150 values of padding

    std::vector<float> x = gradient_of(net.rank());
    const spar::strided values(x.data(), {rows, columns}, {width, 1});
    spar::allreduce(net, values, top_k);

    if (net.rank() == 0) {
      std::printf("the array with its padding: %u values got a sum\n", sums_in(whole));
      std::printf("the values alone:           %u values got a sum\n", sums_in(x));
    }
    if (sums_in(whole) != 0 || sums_in(x) < 150) throw spar::error("unexpected");

    auto reduce = spar::with_error_feedback<float>(top_k);
    std::vector<float> gradient = gradient_of(net.rank());
    reduce(net, spar::strided(gradient.data(), {rows, columns}, {width, 1}));
    if (reduce.residual().size() != rows * columns) throw spar::error("the residual has padding");
  });
}
