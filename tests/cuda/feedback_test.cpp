// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device: bits, order of streams, bad input and errors of CUDA.
#include "../../examples/own_policies/policies.hpp"
#include "feedback_suite.hpp"
#include "refusals.hpp"

#include <spar/tree.hpp>

#include <string>

namespace feedback_test {
namespace {

TEST_F(feedback, has_the_bits_of_the_host) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    on_host::machine::seed = static_cast<std::uint64_t>(ranks);
    int number = ranks / 2;
    const auto runs = [&number] { return spar_test::runs_case(3, number++); };
    if (runs()) compare<float>(ranks, 2100, spar::compose(exact_topk{.k = 40}, spar::split_allgather{}));
    if (runs())
      compare<float>(ranks, 300, spar::compose(exact_topk{.density = 0.4}, spar::recursive_doubling{}),
                     spar::average{});
    if (runs()) compare<double>(ranks, 1000, spar::compose(exact_topk{.k = 30}, spar::gather_and_merge{}));
    if (runs())
      compare<float, std::uint64_t>(ranks, 700, spar::compose(exact_topk{.k = 7}, spar::recursive_doubling{}));
    if (runs()) compare<std::int32_t>(ranks, 300, spar::compose(exact_topk{.k = 31}, spar::recursive_doubling{}));
    if (runs()) compare<float>(ranks, 1, spar::compose(exact_topk{.k = 1}, spar::recursive_doubling{}));
    if (runs())
      compare<float>(ranks, 100, spar::compose(exact_topk{.k = 0}, spar::recursive_doubling{})); // selects nothing
    if (runs()) compare<float>(ranks, 0, spar::compose(exact_topk{.density = 0.5}, spar::recursive_doubling{}));
  }
}

/// A selector of a program, over the functions of any workspace.
TEST_F(feedback, runs_a_selector_of_the_programs_own) {
  cuda_double::reset(7);
  static_assert(spar::selects<own::at_least, float, std::uint32_t, spar::detail::device_work>);
  static_assert(!spar::selects<spar::selector::gaussian, float, std::uint32_t, spar::detail::device_work>);
  compare<float>(3, 500, spar::compose(own::at_least{.threshold = 0.5F}, spar::split_allgather{}));
}

TEST_F(feedback, orders_calls_on_different_streams) {
  constexpr std::size_t n = 40;
  const auto parts = spar::compose(exact_topk{.k = 4}, spar::recursive_doubling{});
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 60 : 5); ++seed) {
    cuda_double::reset(seed);
    on_ranks(1, [&](spar::threads& net) {
      const stream works[2];
      const device_array<float> a(gradient<float>(0, 0, n)), b(gradient<float>(0, 1, n));
      auto reduce = spar::with_device_feedback<float>(parts);
      reduce(net, spar::device_span(a.data(), n, works[0]));
      cuda_double::stall(works[0]); // the first call's last kernels may still wait
      reduce(net, spar::device_span(b.data(), n, works[1]));
      auto x = gradient<float>(0, 0, n), y = gradient<float>(0, 1, n);
      auto on_host = spar::with_error_feedback<float>(parts);
      on_host(net, std::span(x)), on_host(net, std::span(y));
      EXPECT_EQ(bits(std::span<const float>(a.read(works[0]))), bits(std::span<const float>(x))) << seed;
      EXPECT_EQ(bits(std::span<const float>(b.read(works[1]))), bits(std::span<const float>(y))) << seed;
      return 0;
    });
  }
}

TEST_F(feedback, writes_a_sum_that_has_turned_dense) {
  cuda_double::reset(3);
  compare<float>(3, 500, spar::compose(exact_topk{.density = 1}, spar::split_allgather{}));
  compare<float>(3, 500, spar::compose(exact_topk{.density = 0.9}, spar::recursive_doubling{}));
}

TEST_F(feedback, refuses_what_it_cannot_do) {
  const auto errors = on_ranks(1, [](spar::threads& net) {
    std::vector<std::string> all;
    const auto call = [&](auto& reduce, std::size_t n) {
      const device_array<float> x(std::vector<float>(n, 1));
      try {
        reduce(net, spar::device_span(x.data(), n));
        all.emplace_back();
      } catch (const spar::invalid_argument& e) {
        all.emplace_back(e.what());
      }
    };
    auto reduce = spar::with_device_feedback<float>(spar::compose(exact_topk{.k = 10}, spar::recursive_doubling{}));
    call(reduce, 5), call(reduce, 20), call(reduce, 30), call(reduce, 20);
    auto share = spar::with_device_feedback<float>(spar::compose(exact_topk{.density = 1}, spar::recursive_doubling{}));
    call(share, 0), call(share, 3);
    return all;
  });
  ASSERT_EQ(errors[0].size(), 6U);
  EXPECT_EQ(errors[0][5], "") << "after a call without values, any length";
  EXPECT_EQ(errors[0][0], "the selector's k is 10; expected at most n = 5");
  EXPECT_EQ(errors[0][1], "");
  EXPECT_EQ(errors[0][2], "the vector has length 30, but the residual has length 20");
  EXPECT_EQ(errors[0][3], "");
}

TEST_F(feedback, refuses_memory_of_the_host_and_other_devices) {
  on_ranks(3, [](spar::threads& net) {
    const auto parts = spar::compose(exact_topk{.density = 1}, spar::recursive_doubling{});
    {
      auto reduce = spar::with_device_feedback<float>(parts);
      spar_test::refuses_other_devices(3, "spar::device_feedback", [&](spar::device_span<float> x) { reduce(net, x); });
    }
    auto reduce = spar::with_device_feedback<float>(parts);
    spar::on_device gpu(net);
    spar_test::refuses_other_devices(3, "spar::device_feedback", [&](spar::device_span<float> x) { reduce(gpu, x); });
    EXPECT_FALSE(net.dead());
    return 0;
  });
}

TEST_F(feedback, refuses_a_plan_for_other_ranks) {
  const spar::tree_plans plans(spar::tree::flat(4));
  on_ranks(3, [&](spar::threads& net) {
    const device_array<float> x({1, 2});
    auto reduce = spar::with_device_feedback<float>(
        spar::compose(exact_topk{.k = 1}, spar::on_tree(plans), spar::recursive_doubling{}));
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(net, spar::device_span(x.data(), 2)); }),
              "a plan is for 4 ranks, but the number of ranks is 3");
    EXPECT_EQ(x.read(nullptr), (std::vector<float>{1, 2}));
    EXPECT_EQ(reduce.residual(), nullptr);
    EXPECT_FALSE(net.dead());
    return 0;
  });
}

TEST_F(feedback, compares_the_options_of_the_selector) {
  const auto errors = on_ranks(2, [](spar::threads& net) -> std::string {
    const device_array<float> x(std::vector<float>(50, 1));
    auto reduce = spar::with_device_feedback<float>(
        spar::compose(exact_topk{.k = 5U + static_cast<unsigned>(net.rank())}, spar::recursive_doubling{}));
    try {
      reduce(net, spar::device_span(x.data(), 50));
    } catch (const spar::error& e) {
      return e.what();
    }
    return "";
  });
  EXPECT_NE((errors[0] + errors[1]).find("select.k"), std::string::npos) << errors[0] << "\n" << errors[1];
}

TEST_F(feedback, ends_on_every_rank_if_cuda_fails_on_one) {
  EXPECT_GE(fail_each_cuda_call(3, 300, spar::compose(exact_topk{.k = 20}, spar::recursive_doubling{})), 2U);
}

TEST_F(feedback, frees_its_memory) { EXPECT_EQ(cuda_double::pinned_bytes(), 0U); }

} // namespace
} // namespace feedback_test
