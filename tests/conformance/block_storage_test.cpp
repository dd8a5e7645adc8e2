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
  static void check(double relative) {
    for (const mode where : all_modes) {
      for (const spar::rank_t ranks : all_ranks) {
        expect_bounded_loss<Storage, Algorithm, float, std::uint32_t>(where, ranks, relative);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
};
TYPED_TEST_SUITE(block_storage, stored_algorithms);

TYPED_TEST(block_storage, qsgd) { this->template check<then<spar::storage::coo, spar::storage::qsgd<8>>>(1.01 / 127); }
TYPED_TEST(block_storage, bfloat16) { this->template check<spar::storage::bfloat16>(0x1p-8); }
TYPED_TEST(block_storage, half_after_a_stream_codec) {
  this->template check<then<varint, spar::storage::half>>(0x1p-10);
}

} // namespace
} // namespace spar_test
