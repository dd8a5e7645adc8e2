// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms in which users call: containers, spans and owned streams; averages of the pieces, not of allreduce alone.
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace {

constexpr spar::rank_t ranks = 4;

TEST(front_door, dense_values_come_in_any_contiguous_container) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    std::array<float, 3> array{1, 2, 3};
    std::vector<float> vector{1, 2, 3};
    std::vector<float> out(3);
    spar::allreduce(net, array);
    spar::allreduce(net, vector, out);
    spar::allreduce(net, std::span(vector), spar::ring{}, spar::average{});
    EXPECT_EQ(array, (std::array<float, 3>{4, 8, 12}));
    EXPECT_EQ(out, (std::vector<float>{4, 8, 12}));
    EXPECT_EQ(vector, (std::vector<float>{1, 2, 3}));
  });
}

TEST(front_door, the_pieces_average_too) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    std::vector<float> x(8, static_cast<float>(net.rank()));
    spar::reduce(net, std::span(x), 2, spar::average{});
    if (net.rank() == 2) {
      EXPECT_EQ(x, std::vector<float>(8, 1.5F));
    }
    std::vector<float> y(8, static_cast<float>(net.rank()));
    spar::reduce_scatter(net, std::span(y), spar::average{});
    EXPECT_EQ(y[static_cast<std::size_t>(2 * net.rank())], 1.5F);

    const std::vector<std::uint32_t> indices{0, 2, 4, 6};
    const std::vector<float> values(4, static_cast<float>(net.rank()));
    const auto mine = spar::sparse_view(8, indices, values);
    const auto block = spar::reduce_scatter(net, mine, spar::average{});
    ASSERT_EQ(block.count(), 1U);
    EXPECT_EQ(block.values()[0], 1.5F);
    const auto sum = spar::reduce(net, mine, 1, spar::average{});
    std::vector<float> dense(8, -1);
    sum.to_dense(dense);
    EXPECT_EQ(std::accumulate(dense.begin(), dense.end(), 0.0F), net.rank() == 1 ? 6.0F : 0.0F);
  });
}

TEST(front_door, a_result_goes_on_as_an_argument) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    const std::vector<std::uint32_t> indices{static_cast<std::uint32_t>(net.rank())};
    const std::vector<float> values{1};
    const auto sum = spar::allreduce(net, spar::sparse_view(100, indices, values));
    const auto again = spar::allreduce(net, sum);
    const auto everywhere = spar::broadcast(net, again, 3);
    std::vector<float> dense(100);
    everywhere.to_dense(dense);
    EXPECT_EQ(dense[0], 4.0F);
    EXPECT_EQ(std::accumulate(dense.begin(), dense.end(), 0.0F), 16.0F);
  });
}

} // namespace
