// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stream codecs of variable size in every algorithm that takes streams: those of the library, and those of a user.
#include "storage_suite.hpp"
#include "support/varint.hpp"

#include <spar/storage/coded.hpp>

namespace spar_test {
namespace {

static_assert(spar::stream_codec<varint, float, std::uint32_t> && spar::stream_codec<rounded, double, std::uint64_t>);
static_assert(!spar::lending_codec<varint, float, std::uint32_t>);
static_assert(spar::has_stream_codec<varint> && !spar::has_block_codec<varint>);

/// How the encoded bytes are damaged.
enum class damage { short_by_a_byte, long_by_a_byte, index_out_of_range };
template <damage Is>
struct damaged : varint {
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static constexpr std::size_t bound(spar::index_range range, std::size_t count) noexcept {
    return varint::bound<T, Index>(range, count) + 1;
  }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] static std::size_t encode(spar::coo_span<T, Index> entries, spar::index_range range,
                                          std::span<std::byte> out) noexcept {
    const std::size_t bytes = varint::encode(entries, range, out);
    if (entries.empty()) return bytes;
    out[bytes] = std::byte{0};
    if (Is == damage::short_by_a_byte) return bytes - 1;
    if (Is == damage::long_by_a_byte) return bytes + 1;
    out[0] = std::byte{127};
    return bytes;
  }
};

template <class Algorithm, class Storage>
struct damaged_program {
  const std::vector<contribution<float, std::uint32_t>>* mine;
  std::vector<int>* corrupt; // by rank: 1 if the rank found damage
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const storing<Algorithm, Storage, float> algorithm{};
    try {
      auto pending = spar::start_allreduce(net, (*mine)[rank].view(), algorithm);
      co_await std::move(pending);
      ADD_FAILURE() << "rank " << rank << " returned a result although the messages are damaged";
    } catch (const spar::corrupt_message&) {
      (*corrupt)[rank] = 1;
    } catch (const spar::peer_failed&) {
    }
  }
};

template <class Algorithm>
class stream_codec : public testing::Test {
 public:
  template <damage Is>
  static void expect_found() {
    for (const mode where : free_modes) {
      const auto mine =
          contributions<float, std::uint32_t>(pattern::random, 3, most_values<Algorithm>, 1, exact_value<float>);
      std::vector<int> corrupt(mine.size());
      try {
        run(where, 3, damaged_program<Algorithm, damaged<Is>>{&mine, &corrupt});
      } catch (const spar::error&) { // another rank has failed
      }
      EXPECT_GT(corrupt[0] + corrupt[1] + corrupt[2], 0) << where;
    }
  }
};
TYPED_TEST_SUITE(stream_codec, stored_algorithms);

TYPED_TEST(stream_codec, of_variable_size_gives_the_bits_of_coordinates_in_fewer_bytes) {
  for (const mode where : all_modes) {
    for (std::size_t i = 0; i < all_ranks.size(); ++i) {
      if (!runs_case(4, i, position_of(where))) continue;
      expect_bits_of_coordinates<varint, TypeParam, float, std::uint32_t>(where, all_ranks[i]);
      expect_bits_of_coordinates<spar::storage::coded<>, TypeParam, float, std::uint32_t>(where, all_ranks[i]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(stream_codec, of_long_indices) {
  for (const spar::rank_t ranks : all_ranks) {
    expect_bits_of_coordinates<spar::storage::coded<>, TypeParam, double, std::uint64_t>(mode::sim, ranks);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(stream_codec, of_rows) {
  for (const spar::rank_t ranks : all_ranks) {
    expect_bits_of_coordinates<spar::storage::coded<>, TypeParam, spar::row<float, 3>, std::uint32_t>(mode::sim, ranks);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(stream_codec, that_rounds_gives_all_ranks_the_same_and_loses_nothing_but_to_residuals) {
  for (const mode where : all_modes) {
    for (std::size_t i = 0; i < all_ranks.size(); ++i) {
      if (!runs_case(4, 2, i, position_of(where))) continue;
      expect_bounded_loss<rounded, TypeParam, float, std::uint32_t>(where, all_ranks[i], 0x1p-8);
      expect_bounded_loss<spar::storage::coded<7>, TypeParam, float, std::uint32_t>(where, all_ranks[i], 0x1p-8);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

#ifdef SPAR_HAS_HALF
TYPED_TEST(stream_codec, of_halves) {
  for (const spar::rank_t ranks : all_ranks) {
    expect_bits_of_coordinates<spar::storage::coded<>, TypeParam, spar::half, std::uint32_t>(mode::sim, ranks);
    // The sums and their rounding errors are exact: so are all sums with all residuals.
    expect_bounded_loss<spar::storage::coded<4>, TypeParam, spar::half, std::uint32_t>(mode::sim, ranks, 0x1p-5,
                                                                                       up_to_100<spar::half>, 0);
    if (testing::Test::HasFatalFailure()) return;
  }
}
#endif

/// Disjoint contributions of 4 ranks, as evenly spread as possible, with `entries` entries of 3200 together.
allreduce_case<float, std::uint32_t> spread_evenly(std::uint32_t entries) {
  allreduce_case<float, std::uint32_t> all{pattern::disjoint, 3200, {}, {}};
  all.inputs.resize(4);
  for (auto& input : all.inputs) input.n = 3200;
  for (std::uint32_t e = 0; e < entries; ++e) {
    all.inputs[e % 4].indices.push_back(e * 3200 / entries);
    all.inputs[e % 4].values.push_back(1.0F);
  }
  return all;
}

// Delta is 3100 of 3200 entries, where that of coordinates is 1600.
TYPED_TEST(stream_codec, turns_dense_at_its_own_delta) {
  using algorithm = TypeParam;
  if constexpr (std::same_as<algorithm, spar::cheapest>) return; // chooses by the model
  const bool always = std::same_as<algorithm, spar::dsar_split> || std::same_as<algorithm, early_dense_doubling>;
  const bool never = std::same_as<algorithm, spar::gather_and_merge>;
  std::vector<allreduce_case<float, std::uint32_t>> cases;
  cases.push_back(spread_evenly(3096));
  cases.push_back(spread_evenly(3104));
  const auto results = results_of<spar::storage::coded<>, algorithm>(mode::sim, 4, cases);
  EXPECT_EQ(results[0].sums[0].is_dense(), always);
  EXPECT_EQ(results[1].sums[0].is_dense(), !never);
}

TYPED_TEST(stream_codec, finds_damaged_bytes) {
  this->template expect_found<damage::short_by_a_byte>();
  this->template expect_found<damage::long_by_a_byte>();
  this->template expect_found<damage::index_out_of_range>();
}

} // namespace
} // namespace spar_test
