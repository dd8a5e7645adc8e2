// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Block codecs for sums that turn dense, in every algorithm that takes streams.
#include "storage_suite.hpp"
#include "support/varint.hpp"

namespace spar_test {
namespace {

using spar::storage::then;

template <class Algorithm>
class block_storage : public testing::Test {
 public:
  template <class Storage>
  static void check(int position, double relative) {
    for (const mode where : all_modes) {
      for (std::size_t i = 0; i < all_ranks.size(); ++i) {
        if (!runs_case(4, position, i, position_of(where))) continue;
        expect_bounded_loss<Storage, Algorithm, float, std::uint32_t>(where, all_ranks[i], relative);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
};
TYPED_TEST_SUITE(block_storage, stored_algorithms);

TYPED_TEST(block_storage, bfloat16) { this->template check<spar::storage::as_bfloat16>(1, 0x1p-8); }
#if SPAR_ALL_CASES
TYPED_TEST(block_storage, qsgd) {
  this->template check<then<spar::storage::coo, spar::storage::qsgd<8>>>(0, 1.01 / 127);
}
TYPED_TEST(block_storage, half_after_a_stream_codec) {
  this->template check<then<varint, spar::storage::as_half>>(2, 0x1p-10);
}
#endif

} // namespace
} // namespace spar_test
