// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codecs with a grain: every schedule that takes them cuts the vector only at multiples of the grain.
#include "support/ranks.hpp"

#include <spar/core/error.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {
namespace {

/// Encodings of one size. Throws if an encoding or decoding has no whole number of grains, unless it ends the vector.
struct in_sevens : spar::storage::as_half {
  static constexpr std::uint64_t n = 100;

  [[nodiscard]] static constexpr std::uint64_t grain() noexcept { return 7; }
  template <spar::element T>
  static void encode(std::span<const T> values, std::span<std::byte> out, spar::block_position at) {
    const std::uint64_t end = at.first + values.size();
    if (at.first % grain() != 0 && !values.empty()) throw spar::error("a piece begins within a grain");
    if (end % grain() != 0 && end != n) throw spar::error("a piece ends within a grain");
    spar::storage::as_half::encode(values, out, at);
  }
};

template <class Algorithm>
struct sum_of_ranks {
  Algorithm algorithm;
  float large;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(in_sevens::n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 9) + static_cast<float>(net.rank());
    x[50] = large; // a value that the codec refuses is sent unencoded
    auto pending = spar::start_allreduce(net, std::span(x), algorithm);
    co_await pending;
    const auto p = static_cast<float>(net.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(x[i], i == 50 ? p * large : p * static_cast<float>(i % 9) + p * (p - 1) / 2) << "index " << i;
  }
};

template <class Schedule>
void expect_sums(const Schedule& by) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 6, 20}) {
    std::vector<spar::rank_t> host_of;
    for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r / 2);
    const spar::tree_plans plans(spar::tree_of_hosts(host_of));
    const auto flat = spar::compose(in_sevens{}, by);
    const auto tree = spar::compose(in_sevens{}, spar::on_tree(plans), by);
    for (const float large : {3.0F, 1e6F}) {
      SCOPED_TRACE(testing::Message() << by.name << ", P = " << ranks << ", value " << large);
      for (const mode where : free_modes) {
        run(where, ranks, sum_of_ranks<decltype(flat)>{flat, large});
        run(where, ranks, sum_of_ranks<decltype(tree)>{tree, large});
      }
    }
  }
}

TEST(whole_pieces, of_a_ring) { expect_sums(spar::ring{.piece = 10}); }
TEST(whole_pieces, of_recursive_doubling) { expect_sums(spar::recursive_doubling{.piece = 20}); }
TEST(whole_pieces, of_rabenseifners_algorithm) { expect_sums(spar::rabenseifner{}); }
TEST(whole_pieces, of_a_split_allgather) { expect_sums(spar::dsar_split{}); }
TEST(whole_pieces, of_two_shots) { expect_sums(spar::two_shot{.piece = 10}); }
TEST(whole_pieces, of_one_shot) { expect_sums(spar::one_shot{.piece = 20}); }
TEST(whole_pieces, of_flexreduce) { expect_sums(spar::chains{}); }

TEST(grained_ownership, divides_whole_grains) {
  for (const std::uint64_t n : {0, 1, 2, 9, 10, 11, 100}) {
    for (const std::uint64_t grain : {1, 2, 3, 10, 200}) {
      for (const spar::rank_t blocks : {1, 2, 3, 7}) {
        const spar::grained_ownership owner{n, blocks, grain};
        std::uint64_t end = 0, least = n, most = 0;
        for (spar::rank_t b = 0; b < blocks; ++b) {
          ASSERT_EQ(owner[b].begin, end);
          ASSERT_TRUE(end % grain == 0 || end == n);
          end = owner[b].end;
          const std::uint64_t grains = (owner[b].size() + grain - 1) / grain;
          least = std::min(least, grains), most = std::max(most, grains);
        }
        ASSERT_EQ(end, n);
        ASSERT_LE(most, least + 1);
        ASSERT_EQ(owner.range(1, blocks).begin, owner[0].end);
        ASSERT_EQ(owner.range(1, blocks).end, n);
      }
    }
  }
}

} // namespace
} // namespace spar_test
