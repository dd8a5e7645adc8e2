// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stream codecs from outside the library through every algorithm that takes streams: one that is exact and of variable
// size, and one that rounds.
#include "storage_suite.hpp"
#include "support/varint.hpp"

namespace spar_test {
namespace {

static_assert(spar::stream_codec<varint, float, std::uint32_t> && spar::stream_codec<rounded, double, std::uint64_t>);
static_assert(!spar::lending_codec<varint, float, std::uint32_t>);
static_assert(spar::has_stream_codec<varint> && !spar::has_block_codec<varint>);

template <class Algorithm>
class stream_codec : public testing::Test {};
TYPED_TEST_SUITE(stream_codec, stored_algorithms);

TYPED_TEST(stream_codec, of_variable_size_gives_the_bits_of_coordinates_in_fewer_bytes) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      expect_bits_of_coordinates<varint, TypeParam, float, std::uint32_t>(where, ranks);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(stream_codec, of_long_indices) {
  for (const spar::rank_t ranks : all_ranks) {
    expect_bits_of_coordinates<varint, TypeParam, double, std::uint64_t>(mode::sim, ranks);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(stream_codec, that_rounds_gives_all_ranks_the_same_and_loses_nothing_but_to_residuals) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      expect_bounded_loss<rounded, TypeParam, float, std::uint32_t>(where, ranks, 0x1p-8);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

} // namespace
} // namespace spar_test
