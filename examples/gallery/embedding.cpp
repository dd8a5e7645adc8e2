// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradient of an embedding, of which a batch touches few rows: the rows of all ranks are summed with an index for
// each value, then with one index for each row; and the largest rows are sent while the others stay in a residual.
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <cstdio>
#include <random>
#include <span>
#include <vector>

constexpr std::size_t tokens = 50'000, width = 16;
using row = spar::row<float, width>;

std::vector<float> gradient_of(int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(tokens * width);
  for (row& touched : spar::rows<width>(gradient)) { // a view of the vector
    if (random() % 100 > 0) continue;
    for (float& value : touched.values) value = normal(random);
  }
  return gradient;
}

void print(spar::threads& net, const char* what) {
  const auto bytes = static_cast<double>(net.last_call().bytes_sent);
  if (net.rank() == 0) std::printf("%-24s%8.0f bytes sent\n", what, bytes);
}

template <class T, class Storage>
void add(spar::threads& net, const char* what, std::span<T> gradient, const Storage& storage) {
  spar::allreduce(net, gradient, spar::compose(spar::selector::nonzeros{}, storage, spar::ssar_split{}));
  print(net, what);
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    std::vector<float> sum = gradient_of(net.rank()), same = sum, rounded = sum, largest = sum;
    add(net, "values", std::span(sum), spar::storage::coo{});
    add(net, "rows", spar::rows<width>(same), spar::storage::coo{});
    if (same != sum) throw spar::error("the sums differ");
    same = gradient_of(net.rank());
    add(net, "rows, coded", spar::rows<width>(same), spar::storage::coded<>{});
    if (same != sum) throw spar::error("the sums differ");
    add(net, "rows, coded, 7 bits", spar::rows<width>(rounded), spar::storage::coded<7>{});

    const spar::selector::exact_topk select{.k = 100};
    const auto top_k = spar::compose(select, spar::storage::coded<>{}, spar::ssar_split{});
    auto reduce = spar::with_error_feedback<row>(top_k);
    const auto chosen = reduce.reduce(net, spar::rows<width>(std::as_const(largest)));
    print(net, "100 rows of each rank");
    for (const auto i : chosen.contributed.indices())
      if (reduce.residual()[i] != row{}) throw spar::error("a row was sent, but is still in the residual");
  });
}
