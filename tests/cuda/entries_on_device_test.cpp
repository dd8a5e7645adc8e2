// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selected entries that stay in device memory, against the same collectives on the host: kernels run by fibres, in the
// streams of a double of the CUDA runtime.
#include "feedback_suite.hpp"
#include "support/extent.hpp"

#include <spar/collective/topk/quantile_owners.hpp>

namespace feedback_test {
namespace {

/// Six calls of a composition with a residual on the host, and on a device on which the entries stay: equal bits of
/// sums, residuals and states, whether ranks read each other's memory or messages travel through the host.
template <class T, class Index = std::uint32_t, class Composition, class Op = spar::sum>
void compare_on_device(spar::rank_t ranks, std::size_t n, const Composition& parts, Op op = {}) {
  SCOPED_TRACE(testing::Message() << Composition::name << ", " << ranks << " ranks, " << n << " values");
  const auto expected = on_the_host<T, Index>(ranks, n, parts, op);
  for (const bool lends : {true, false}) {
    cuda_double::let_peers_reach_each_other(lends);
    const auto got = on_ranks(ranks, [&](spar::threads& net) {
      if (!lends) cuda_double::set_device(net.rank());
      spar::on_device gpu(net);
      EXPECT_EQ(gpu.lends(), lends || ranks == 1);
      return on_a_device<T, Index>(gpu, net.rank(), n, parts, op);
    });
    EXPECT_EQ(got, expected) << (lends ? "lent" : "through the host");
  }
  cuda_double::let_peers_reach_each_other(true);
}

TEST_F(feedback, entries_on_the_device_have_the_bits_of_the_host) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    on_host::machine::seed = static_cast<std::uint64_t>(ranks);
    const exact_topk select{.k = 40};
    compare_on_device<float>(ranks, 3000, spar::compose(select, spar::recursive_doubling{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::split_allgather{}), spar::average{});
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::ssar_split{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::dsar_split{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::gather_and_merge{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::tree_of_topk{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::quantile_owners{}));
    compare_on_device<float>(ranks, 700, spar::compose(select, spar::cheapest{}));
    const threshold_reuse reuse{.k = 30, .period = 4};
    compare_on_device<float>(ranks, 2000, spar::compose(reuse, spar::balanced_owners{.tau = 2}), spar::average{});
  }
}

} // namespace
} // namespace feedback_test
