// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cost model: expected sizes, limits, and which algorithm it chooses when.
#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr spar::network_model network{.alpha = 1e-5, .beta = 1e-9, .gamma_sparse = 2e-9, .gamma_dense = 5e-10};

TEST(cost_model, expected_union) {
  const spar::call_shape p{8, 1000, 100, 4, 4};
  EXPECT_DOUBLE_EQ(p.expected_union(1), 100);
  EXPECT_NEAR(p.expected_union(2), 190, 1e-9); // 100 + 100, of which a tenth coincide
  EXPECT_LT(p.expected_union(8), 800);
  EXPECT_NEAR(p.expected_union(1e6), 1000, 1e-6);
  EXPECT_EQ((spar::call_shape{4, 1000, 0, 4, 4}.expected_union(4)), 0);
  EXPECT_EQ((spar::call_shape{4, 1000, 1000, 4, 4}.expected_union(3)), 1000);
  EXPECT_EQ((spar::call_shape{4, 0, 0, 4, 4}.expected_union(3)), 0);
}

TEST(cost_model, dense_where_that_is_smaller_or_merging_costs_more) {
  const spar::call_shape p{8, 1000, 100, 4, 4};
  spar::network_model free_merging = network;
  free_merging.gamma_sparse = 0;
  free_merging.gamma_dense = 0;
  EXPECT_DOUBLE_EQ(p.dense_limit(free_merging), static_cast<double>(spar::dense_threshold<float, std::uint32_t>(1000)));
  EXPECT_DOUBLE_EQ(p.stream_bytes(free_merging, 500), 4000);
  EXPECT_DOUBLE_EQ(p.stream_bytes(free_merging, 499), 499 * 8);
  EXPECT_DOUBLE_EQ(p.stream_bytes(free_merging, 900), 4000);
  spar::network_model slow_merging = network;
  slow_merging.gamma_sparse = 1e-6;
  EXPECT_LT(p.dense_fraction(slow_merging), 0.1);
  EXPECT_LE(p.dense_fraction(network), 1.0);
}

TEST(cost_model, one_rank_sends_nothing) {
  const spar::call_shape p{1, 1000, 100, 4, 4};
  EXPECT_EQ(spar::seconds_split(network, p), 0);
  EXPECT_EQ(spar::seconds_balanced_owners(network, p), 0);
  EXPECT_EQ(spar::seconds_pruned_owners(network, p), 0);
  EXPECT_EQ(spar::seconds_recursive_doubling(network, p), 0);
  EXPECT_EQ(spar::seconds_dense_recursive_doubling(network, p), 0);
  EXPECT_EQ(spar::seconds_rabenseifner(network, p), 0);
  EXPECT_EQ(spar::seconds_ring(network, p), 0);
}

TEST(cost_model, is_the_papers_where_local_work_is_free) {
  const spar::network_model wire{.alpha = 1e-5, .beta = 1e-9, .gamma_sparse = 0, .gamma_dense = 0};
  // Few entries in a huge vector hardly overlap: 2^t k entries in round t.
  const spar::call_shape p{16, 1e12, 100, 4, 4};
  EXPECT_NEAR(spar::seconds_recursive_doubling(wire, p), 4 * 1e-5 + 15 * 100 * 8 * 1e-9, 1e-12);
  EXPECT_NEAR(spar::seconds_ssar_split(wire, p),
              15 * 1e-5 + 100 * 8 * 15 / 16.0 * 1e-9 + 4 * 1e-5 + 1600 * 8 * 15 / 16.0 * 1e-9, 1e-12);
  const spar::call_shape q{16, 1e6, 100, 4, 4};
  EXPECT_NEAR(spar::seconds_dsar_split(wire, q, 4),
              15 * 1e-5 + 100 * 8 * 15 / 16.0 * 1e-9 + 4 * 1e-5 + 1e6 * 4 * 15 / 16.0 * 1e-9, 1e-12);
  EXPECT_NEAR(spar::seconds_dsar_split(wire, q, 4) - spar::seconds_dsar_split(wire, q, 1), 1e6 * 3 * 15 / 16.0 * 1e-9,
              1e-12);
}

TEST(cost_model, more_entries_never_cost_less) {
  for (const std::int64_t ranks : {2, 3, 8, 13, 64}) {
    double doubling = 0, ssar = 0, dsar = 0, balanced = 0, pruned = 0;
    for (const double k : {0.0, 1.0, 10.0, 100.0, 1000.0, 10'000.0}) {
      const spar::call_shape p{ranks, 1e6, k, 4, 4};
      EXPECT_GE(spar::seconds_recursive_doubling(network, p), doubling);
      EXPECT_GE(spar::seconds_ssar_split(network, p), ssar);
      EXPECT_GE(spar::seconds_dsar_split(network, p, 4), dsar);
      EXPECT_GE(spar::seconds_balanced_owners(network, p), balanced);
      EXPECT_GE(spar::seconds_pruned_owners(network, p), pruned);
      balanced = spar::seconds_balanced_owners(network, p);
      pruned = spar::seconds_pruned_owners(network, p);
      EXPECT_TRUE(std::isfinite(balanced) && std::isfinite(pruned));
      doubling = spar::seconds_recursive_doubling(network, p);
      ssar = spar::seconds_ssar_split(network, p);
      dsar = spar::seconds_dsar_split(network, p, 4);
      EXPECT_TRUE(std::isfinite(doubling) && std::isfinite(ssar) && std::isfinite(dsar));
    }
  }
}

TEST(cost_model, counts_the_time_of_coding) {
  const spar::network_model wire{
      .alpha = 1e-5, .beta = 1e-9, .gamma_sparse = 0, .gamma_dense = 0, .alpha_shared = 1e-5};
  const double coding = 1e-8;
  const spar::call_shape plain{16, 1e12, 100, 4, 4}, coded{16, 1e12, 100, 4, 4, coding}; // entries hardly overlap
  const auto more = [&](auto seconds) { return seconds(coded) - seconds(plain); };
  EXPECT_NEAR(more([&](const auto& p) { return spar::seconds_recursive_doubling(wire, p); }), 1500 * coding, 1e-12);
  // Each rank encodes and decodes 15/16 of its entries; it encodes a sixteenth of the result and decodes the rest.
  // In the split, coding takes longer than sending, 8 ns an entry, which only one of 15 messages adds.
  const double split = 100 * 15 / 16.0 * (coding - 8e-9 * 14 / 15);
  EXPECT_NEAR(more([&](const auto& p) { return spar::seconds_ssar_split(wire, p); }),
              split + 1600 * (1 / 16.0 + 15 / 16.0) / 2 * coding, 1e-12);
  EXPECT_NEAR(more([&](const auto& p) { return spar::seconds_dsar_split(wire, p, 4); }), split, 1e-12);
  // Where coding takes long, sums turn dense earlier, and nothing dense is encoded.
  EXPECT_LT((spar::call_shape{8, 1000, 100, 4, 0.2, 1e-6}.dense_limit(network)), 10);
  EXPECT_EQ((spar::call_shape{8, 1000, 900, 4, 4, 1e-6}.coding_seconds(network, 900)), 0);
}

TEST(cost_model, hides_work_behind_messages_of_other_parts) {
  spar::network_model net{.alpha = 1e-5, .beta = 1e-9, .gamma_sparse = 2e-9, .gamma_dense = 0};
  // Two rounds with 1e5 and 2e5 entries of 8 bytes. Work: 4 ns to merge an entry of each side, and the coding.
  const auto seconds = [&](double coding, std::uint64_t parts) {
    return spar::seconds_recursive_doubling(net, {4, 1e12, 1e5, 4, 4, coding}, parts);
  };
  EXPECT_NEAR(seconds(1e-9, 1), 2e-5 + 3e5 * (8e-9 + 5e-9), 1e-9);
  // Sending decides: half of the first sum is encoded before it, and half of the last one decoded and merged after it.
  const double sending = 3e5 * 8e-9 + (1e5 * 0.5e-9 + 2e5 * 4.5e-9) / 2;
  EXPECT_NEAR(seconds(1e-9, 2), 4e-5 + sending, 1e-9);
  EXPECT_NEAR(seconds(1e-8, 4), 3e5 * 14e-9, 1e-9); // work decides: all messages are on the way meanwhile
  // Of a fold, the second part passes the link after the first one and a part of the other rank's first round. It is
  // decoded and merged, and its sum encoded. From then on, the link is busy: with this part of the only round, and with
  // both parts of the result, which is only decoded.
  const double folded = spar::seconds_recursive_doubling(net, {3, 1e12, 1e5, 4, 4, 1e-9}, 2);
  const double second_part = 3e-5 + (1e5 * (3 * 8e-9 + 1e-9) + 2e5 * (2e-9 + 0.5e-9)) / 2;
  EXPECT_NEAR(folded, second_part + 3e-5 + (2e5 / 2 + 3e5) * 8e-9 + 3e5 * 0.5e-9 / 2, 1e-9);
  // A split has P - 1 messages.
  const auto split = [&](std::int64_t ranks, double coding) {
    return spar::seconds_split(net, {ranks, 1e12, 1e5, 4, 4, coding});
  };
  EXPECT_NEAR(split(2, 1e-9), 1e-5 + 0.5e5 * 9e-9, 1e-9);
  EXPECT_NEAR(split(4, 1e-9), 3e-5 + 0.75e5 * (8e-9 + 1e-9 / 3), 1e-9);
  EXPECT_NEAR(split(4, 1e-8), 0.75e5 * 1e-8 + (3e-5 + 0.75e5 * 8e-9) / 3, 1e-9);

  EXPECT_EQ(spar::parts_of_doubling(net, {4, 1e12, 1e5, 4, 4, 1e-9}), 2U);
  EXPECT_EQ(spar::parts_of_doubling(net, {4, 1e12, 500, 4, 4, 1e-9}), 1U); // saves 5 us, and a message takes 10 us
  EXPECT_EQ(spar::parts_of_doubling(net, {4, 1e12, 1e5, 4, 4, 0}), 1U);    // not encoded
  EXPECT_EQ(spar::parts_of_doubling(net, {1, 1e12, 1e5, 4, 4, 1e-9}), 1U);

  // Messages in flight at once share a latency.
  net.alpha_shared = 1e-5;
  EXPECT_NEAR(seconds(1e-9, 1), 2e-5 + 3e5 * (8e-9 + 5e-9), 1e-9);
  EXPECT_NEAR(seconds(1e-9, 2), 1e-5 + sending, 1e-9);
  EXPECT_NEAR(split(4, 1e-9), 1e-5 + 0.75e5 * (8e-9 + 1e-9 / 3), 1e-9);
  EXPECT_EQ(spar::parts_of_doubling(net, {4, 1e12, 500, 4, 4, 1e-9}), 2U);
  net.alpha_shared = 1; // as alpha
  EXPECT_NEAR(seconds(1e-9, 2), 1e-5 + sending, 1e-9);
}

TEST(cost_model, chooses_what_the_paper_recommends) {
  // With few entries latency decides, with more entries bandwidth; with so many entries that the sum is dense, dense
  // wins.
  EXPECT_EQ(spar::choose_sparcml(network, {8, 1e7, 10, 4, 4}, 4), spar::sparcml_choice::doubling);
  EXPECT_EQ(spar::choose_sparcml(network, {8, 1e7, 1e5, 4, 4}, 4), spar::sparcml_choice::ssar);
  EXPECT_EQ(spar::choose_sparcml(network, {8, 1e7, 4e6, 4, 4}, 4), spar::sparcml_choice::dsar);
  EXPECT_EQ(spar::choose_sparcml(network, {1, 1e7, 1e5, 4, 4}, 4), spar::sparcml_choice::doubling);
  // A cheaper second phase pays off for fewer entries.
  const spar::call_shape p{8, 1e6, 3e4, 4, 4};
  EXPECT_EQ(spar::choose_sparcml(network, p, 4), spar::sparcml_choice::ssar);
  EXPECT_EQ(spar::choose_sparcml(network, p, 0.25), spar::sparcml_choice::dsar);
}

TEST(cost_model, counts_what_owners_send) {
  const spar::network_model wire{.alpha = 1e-5, .beta = 1e-9, .gamma_sparse = 0, .gamma_dense = 0, .gamma_coded = 0};
  const spar::call_shape p{16, 1e12, 1e6, 4, 4}; // entries hardly overlap
  const double others = 15 / 16.0;
  EXPECT_NEAR(spar::seconds_balanced_owners(wire, p), (15 + 8 + 2) * 1e-5 + (2 * 8e6 * others + 15 * 12) * 1e-9, 1e-9);
  // A sixteenth of the entries win. The others cost their indices of log2(1e6) + 1.5 bits, and their signs. Of the
  // winners, a rank knows a sixteenth.
  const double index = std::log2(1e6) + 1.5, sign = std::log2(32 / 15.0);
  const double bits = 64 / 16.0 + (index + sign) * 15 / 16 + 64 * 15 / 16.0 + 1.5 / 16;
  EXPECT_NEAR(spar::seconds_pruned_owners(wire, p), (60 + 4) * 1e-5 + (bits / 8 * 1e6 * others + 15 * 92) * 1e-9, 1e-6);
  // If all ranks have the same indices, all of them win, and nothing is held back.
  const spar::call_shape all{16, 1e6, 1e6, 4, 4};
  EXPECT_NEAR(spar::seconds_pruned_owners(wire, all),
              (60 + 4) * 1e-5 + ((8 + 4 + 1.5 / 8) * 1e6 * others + 15 * 92) * 1e-9, 1e-9);
}

TEST(cost_model, prunes_many_entries_on_slow_links) {
  const spar::storage::coded<> coded;
  const auto chosen = [](const spar::network_model& net, std::int64_t ranks, std::uint64_t k, const auto& code) {
    return spar::cheapest_owners::choose<float, std::uint32_t, spar::sum>(net, static_cast<spar::rank_t>(ranks),
                                                                          10'000'000, k, code);
  };
  using choice = spar::owners_choice;
  const spar::network_model slow{.alpha = 3e-5, .beta = 8e-8, .gamma_sparse = 2.7e-9, .gamma_dense = 5e-10},
      fast{.alpha = 2e-6, .beta = 8e-11, .gamma_sparse = 2.7e-9, .gamma_dense = 5e-10};
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    EXPECT_EQ(chosen(slow, ranks, 100'000, coded), choice::pruned) << ranks;
    EXPECT_EQ(chosen(slow, ranks, 100, coded), choice::encoded) << ranks;
    EXPECT_EQ(chosen(fast, ranks, 100'000, coded), choice::coordinates) << ranks;
    EXPECT_EQ(chosen(fast, ranks, 100, coded), choice::coordinates) << ranks;
    EXPECT_EQ(chosen(slow, ranks, 100, spar::storage::coo{}), choice::coordinates) << ranks;
  }
  EXPECT_EQ(chosen(slow, 1, 100'000, coded), choice::coordinates);
  // Sums of integers wrap around, so no bounds of them are known.
  EXPECT_EQ(
      (spar::cheapest_owners::choose<std::int32_t, std::uint32_t, spar::sum>(slow, 8, 10'000'000, 100'000, coded)),
      choice::encoded);
}

} // namespace
