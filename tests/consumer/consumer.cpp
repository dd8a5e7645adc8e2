// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program: sums sparse vectors of four in-process ranks, with the library from the installed package,
// and encodes values by zfp, which needs no other library.
#include <spar/spar.hpp>
#include <spar/storage/named_codec.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

int main() {
  constexpr int ranks = 4;
  std::atomic<int> right = 0;
  spar::thread_group group{ranks};
  group.run([&](spar::threads& net) {
    // Rank r contributes the entries (r, 1) and (7, 2).
    const std::array<std::uint32_t, 2> indices{static_cast<std::uint32_t>(net.rank()), 7};
    const std::array<float, 2> values{1, 2};
    const auto sum = spar::allreduce(net, spar::sparse_view(100, indices, values));
    std::array<float, 100> dense{};
    sum.to_dense(dense, spar::sum{});
    std::array<float, 100> expected{};
    for (std::size_t r = 0; r < ranks; ++r) expected[r] = 1;
    expected[7] = 2 * ranks;
    if (dense == expected) ++right;
  });
  const spar::storage::named_codec code("zfp:8");
  std::array<float, 1000> constant{};
  constant.fill(0.5F);
  std::array<std::byte, 1000> encoded{};
  code.encode(std::span<const float>(constant), encoded, {});
  constant.fill(0);
  code.decode<float>(encoded, constant);
  return right == ranks && constant[999] == 0.5F ? 0 : 1;
}
