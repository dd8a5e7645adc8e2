// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device: bits, non-blocking calls, saved states, order of streams, bad input and errors of CUDA.
#include "../../examples/own_policies/policies.hpp"
#include "feedback_suite.hpp"
#include "refusals.hpp"

#include <spar/tree.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

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
    if (runs()) compare<std::int32_t>(ranks, 300, spar::compose(exact_topk{.k = 31}, spar::recursive_doubling{}));
    if (runs()) compare<float>(ranks, 1, spar::compose(exact_topk{.k = 1}, spar::recursive_doubling{}));
    if (runs())
      compare<float>(ranks, 100, spar::compose(exact_topk{.k = 0}, spar::recursive_doubling{})); // selects nothing
    if (runs()) compare<float>(ranks, 0, spar::compose(exact_topk{.density = 0.5}, spar::recursive_doubling{}));
#if SPAR_ALL_CASES
    if (runs()) compare<double>(ranks, 1000, spar::compose(exact_topk{.k = 30}, spar::gather_and_merge{}));
    if (runs())
      compare<float, std::uint64_t>(ranks, 700, spar::compose(exact_topk{.k = 7}, spar::recursive_doubling{}));
#endif
  }
}

/// A selector of a program, over the functions of any workspace.
TEST_F(feedback, runs_a_selector_of_the_programs_own) {
  cuda_double::reset(7);
  static_assert(spar::selects<own::at_least, float, std::uint32_t, spar::detail::device_work>);
  static_assert(!spar::selects<spar::selector::nonzeros, float, std::uint32_t, spar::detail::device_work>);
  compare<float>(3, 500, spar::compose(own::at_least{.threshold = 0.5F}, spar::split_allgather{}));
}

TEST_F(feedback, selects_by_a_threshold_of_the_moments) {
  cuda_double::reset(8);
  using spar::selector::gaussian;
  compare<float>(2, 1500, spar::compose(gaussian{.density = 0.05}, spar::gather_and_merge{}));
  compare<float>(1, 300, spar::compose(gaussian{.k = 250}, spar::gather_and_merge{})); // divides the threshold
#if SPAR_ALL_CASES
  compare<double>(1, 300, spar::compose(gaussian{.k = 250}, spar::gather_and_merge{}));
#endif
  compare<float>(1, 0, spar::compose(gaussian{.density = 0.5}, spar::gather_and_merge{}));
}

TEST_F(feedback, selects_from_buckets) {
  cuda_double::reset(9);
  using spar::selector::bucket_topk;
  compare<float>(2, 1500, spar::compose(bucket_topk{.k = 3, .bucket = 200}, spar::split_allgather{}));
  compare<float>(1, 0, spar::compose(bucket_topk{.k = 3}, spar::split_allgather{}));
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

/// Two objects, whose calls the ranks start in different orders, then call without names.
TEST_F(feedback, starts_calls_with_the_bits_of_the_host) {
  constexpr std::size_t n = 300;
  const spar::ok_topk_allreduce<> parts{.select = {.k = 20, .period = 3}};
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 20 : 3); ++seed) {
    cuda_double::reset(seed);
    on_ranks(3, [&](spar::threads& net) {
      spar::on_device gpu(net);
      const stream works[2];
      const device_array<float> memory[2] = {device_array<float>(std::vector<float>(n)),
                                             device_array<float>(std::vector<float>(n))};
      spar::device_feedback<float, spar::ok_topk_allreduce<>> reduce[2] = {
          spar::device_feedback<float, spar::ok_topk_allreduce<>>(parts),
          spar::device_feedback<float, spar::ok_topk_allreduce<>>(parts)};
      spar::ok_topk<float> on_host[2] = {spar::ok_topk<float>(parts), spar::ok_topk<float>(parts)};
      const spar::named names[2] = {{"a"}, {"b"}};
      for (int step = 0; step < 4; ++step) {
        const std::size_t first = static_cast<std::size_t>(net.rank() + step) % 2;
        const auto start = [&](std::size_t i) {
          memory[i].write(works[i], gradient<float>(net.rank(), 2 * step + static_cast<int>(i), n));
          return reduce[i].start(gpu, names[i], spar::device_span(memory[i].data(), n, works[i]));
        };
        {
          auto one = start(first);
          auto other = start(1 - first);
          one.wait();
        } // the destructor of the other handle waits, and keeps the residual
        for (std::size_t i = 0; i < 2; ++i) {
          auto x = gradient<float>(net.rank(), 2 * step + static_cast<int>(i), n);
          on_host[i](net, std::span(x));
          EXPECT_EQ(bits(std::span<const float>(memory[i].read(works[i]))), bits(std::span<const float>(x))) << seed;
          EXPECT_EQ(reduce[i].save(), on_host[i].save());
        }
      }
      auto x = gradient<float>(net.rank(), 9, n);
      memory[0].write(works[0], x);
      reduce[0].start(gpu, spar::device_span(memory[0].data(), n, works[0]), spar::average{}).wait();
      on_host[0](net, std::span(x), spar::average{});
      EXPECT_EQ(bits(std::span<const float>(memory[0].read(works[0]))), bits(std::span<const float>(x))) << seed;
      EXPECT_EQ(reduce[0].save(), on_host[0].save());
      return 0;
    });
  }
}

TEST_F(feedback, has_one_call_at_a_time) {
  const auto parts = spar::compose(exact_topk{.k = 4}, spar::recursive_doubling{});
  on_ranks(2, [&](spar::threads& net) {
    const stream work;
    const device_array<float> x(gradient<float>(net.rank(), 0, 40)), y(std::vector<float>(40));
    spar::on_device gpu(net);
    auto reduce = spar::with_device_feedback<float>(parts);
    const auto saved = reduce.save();
    const spar::device_span values(x.data(), 40, work), others(y.data(), 40, work);
    auto call = reduce.start(gpu, values);
    const std::function<void()> refused[] = {
        [&] { reduce(net, others); },     [&] { reduce(gpu, others); },        [&] { (void)reduce.start(gpu, others); },
        [&] { (void)reduce.save(); },     [&] { reduce.load(saved); },         [&] { reduce.take_over(saved); },
        [&] { reduce.set_residual({}); }, [&] { reduce.set_algorithm(parts); }};
    for (const auto& other : refused) {
      EXPECT_EQ(spar_test::refusal_of(other),
                "a call of this device_feedback object has not ended; the object allows one call at a time")
          << &other - refused;
    }
    while (!call.done()) net.progress(false);
    EXPECT_THROW((void)reduce.save(), spar::invalid_argument); // not before `wait`, which keeps the residual
    EXPECT_EQ(reduce.residual(), nullptr);
    call.wait();
    EXPECT_NE(reduce.residual(), nullptr);
    EXPECT_FALSE(net.dead());
    reduce(gpu, values);
    return 0;
  });
}

TEST_F(feedback, keeps_residual_and_state_if_a_started_call_fails) {
  const auto parts_of = [](std::uint64_t k) { return spar::compose(exact_topk{.k = k}, spar::recursive_doubling{}); };
  on_ranks(2, [&](spar::threads& net) {
    const device_array<float> x(gradient<float>(net.rank(), 0, 40));
    spar::on_device gpu(net);
    auto reduce = spar::with_device_feedback<float>(parts_of(4 + static_cast<std::uint64_t>(net.rank())));
    reduce.set_residual(std::vector<float>(40, 1));
    const auto before = reduce.save();
    auto call = reduce.start(gpu, spar::device_span(x.data(), 40));
    EXPECT_THROW(call.wait(), spar::error);
    EXPECT_EQ(reduce.save(), before);
    return 0;
  });
}

TEST_F(feedback, is_saved_loaded_and_taken_over) {
  constexpr std::size_t n = 20;
  const auto parts = spar::compose(exact_topk{.k = 1}, spar::recursive_doubling{});
  const auto device = [&] { return spar::with_device_feedback<float>(parts); };
  const auto residual_of = [](const auto& reduce) { return cuda_double::values_at(reduce.residual(), n, nullptr); };
  std::vector<float> kept[3];
  std::vector<std::byte> saved[3];
  on_ranks(3, [&](spar::threads& net) {
    const device_array<float> x(gradient<float>(net.rank(), 0, n));
    auto reduce = device();
    reduce(net, spar::device_span(x.data(), n));
    saved[net.rank()] = reduce.save();
    kept[net.rank()] = residual_of(reduce);
    return 0;
  });
  auto again = device();
  again.load(saved[1]);
  EXPECT_EQ(residual_of(again), kept[1]);

  // A job of two ranks takes over: the residuals of ranks 0 and 2 go to one rank, that of rank 1 to the other.
  auto first = device();
  first.take_over(saved[0]);
  first.take_over(saved[2]);
  first.take_over(device().save()); // the state of a rank that has made no call
  std::vector<float> total(n);
  for (std::size_t i = 0; i < n; ++i) total[i] = kept[0][i] + kept[2][i];
  EXPECT_EQ(residual_of(first), total);

  first.set_residual(kept[1]);
  EXPECT_EQ(residual_of(first), kept[1]);
  auto longer = device();
  longer.set_residual(std::vector<float>(n + 1));
  EXPECT_EQ(spar_test::refusal_of([&] { longer.take_over(saved[0]); }),
            "the saved residual has length 20, but this reducer's residual has length 21");
  longer.set_residual({});
  EXPECT_EQ(longer.residual(), nullptr);
}

/// The residual that the program sets is that of the next call, and the options may change between two calls.
TEST_F(feedback, takes_another_residual_and_other_options) {
  constexpr std::size_t n = 50;
  const auto parts_of = [](std::uint64_t k) { return spar::compose(exact_topk{.k = k}, spar::recursive_doubling{}); };
  on_ranks(2, [&](spar::threads& net) {
    const stream work;
    const device_array<float> memory(std::vector<float>(n, 0));
    auto reduce = spar::with_device_feedback<float>(parts_of(3));
    auto on_host = spar::with_error_feedback<float>(parts_of(3));
    for (int step = 0; step < 4; ++step) {
      const auto residual = gradient<float>(net.rank(), 10 + step, n);
      reduce.set_residual(residual), on_host.set_residual(residual);
      reduce.set_algorithm(parts_of(3 + static_cast<std::uint64_t>(step)));
      on_host.set_algorithm(reduce.algorithm());
      auto x = gradient<float>(net.rank(), step, n);
      memory.write(work, x);
      reduce(net, spar::device_span(memory.data(), n, work));
      on_host(net, std::span(x));
      EXPECT_EQ(bits(std::span<const float>(memory.read(work))), bits(std::span<const float>(x))) << step;
      EXPECT_EQ(reduce.save(), on_host.save()) << step;
    }
    return 0;
  });
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

TEST_F(feedback, keeps_the_residual_of_a_call_whose_handle_is_destroyed_while_another_device_is_current) {
  on_ranks(2, [](spar::threads& net) {
    auto reduce = spar::with_device_feedback<float>(spar::compose(exact_topk{.k = 1}, spar::recursive_doubling{}));
    spar::on_device gpu(net);
    const device_array<float> x({1, 2});
    {
      const auto call = reduce.start(gpu, spar::device_span(x.data(), 2));
      cuda_double::set_device(3);
    }
    cuda_double::set_device(0);
    EXPECT_EQ(x.read(nullptr), (std::vector<float>{0, 4}));
    std::vector<float> kept;
    if (reduce.residual() != nullptr) kept = cuda_double::values_at(reduce.residual(), 2, nullptr);
    EXPECT_EQ(kept, (std::vector<float>{1, 0}));
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
