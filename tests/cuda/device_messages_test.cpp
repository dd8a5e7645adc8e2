// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of every form in device memory, over each way that they may take.
#include "places.hpp"

#include "support/extent.hpp"
#include "support/messages.hpp"

#include <spar/transport/counting.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>

#include <cstdint>

namespace spar_test {
namespace {

template <class Place>
struct device_messages : testing::Test {
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::let_peers_reach_each_other(false);
  }
  void TearDown() override {
    on_host::put = nullptr;
    EXPECT_EQ(nccl_double::communicators(), 0U);
    EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
    EXPECT_EQ(cuda_double::device_allocations(), 0U);
  }
};
/// With values on the host, NCCL is an ordinary transport.
template <std::size_t EagerBytes>
struct by_nccl_on_host {
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    spar::nccl over(net, {.eager_bytes = EagerBytes});
    body(over);
  }
};
/// Decorators that only observe, between the values and the place.
template <class Place>
struct observed {
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    spar::counting counted(net);
    spar::tracing traced(counted);
    Place::on(traced, body);
  }
};
using places = testing::Types<lent, through_the_host, by_nccl<0>, by_nccl<400>, by_nccl<4096>, by_nccl_on_host<0>,
                              by_nccl_on_host<400>, observed<lent>, observed<by_nccl<0>>>;
TYPED_TEST_SUITE(device_messages, places);

TYPED_TEST(device_messages, arrive) {
  const std::uint64_t seeds = runs_all_cases() ? 15 : 6;
  for (std::uint64_t seed = 1; seed <= seeds && !this->HasFailure(); ++seed) {
    for (const bool synchronous : {false, true}) {
      cuda_double::reset(seed);
      nccl_double::reset(seed);
      spar::thread_group group(static_cast<spar::rank_t>(2 + seed % 3), {.synchronous = synchronous});
      group.run([&](spar::threads& net) {
        net.set_deadline(over_nccl::deadline);
        exchange_messages<TypeParam>(net, seed);
      });
    }
  }
}

} // namespace
} // namespace spar_test
