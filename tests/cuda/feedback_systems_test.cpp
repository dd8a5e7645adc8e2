// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device with schedules that drop entries of the sum, and with storages that round.
#include "feedback_suite.hpp"

#include "support/collectives.hpp"
#include "support/varint.hpp"

namespace feedback_test {
namespace {

TEST_F(feedback, keeps_what_the_schedule_drops) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    const threshold_reuse reuse{.k = 30, .period = 4};
    compare<float>(ranks, 2000, spar::compose(reuse, spar::balanced_owners{.tau = 2}), spar::average{});
    compare<double, std::uint64_t>(ranks, 500, spar::compose(reuse, spar::balanced_owners{.tau = 2}));
    compare<float>(ranks, 500, spar::compose(threshold_reuse{.k = 50, .epsilon = 0}, spar::recursive_doubling{}));
    compare<float>(ranks, 500, spar::compose(threshold_reuse{.k = 0}, spar::recursive_doubling{})); // selects nothing
    compare<float>(ranks, 0, spar::compose(threshold_reuse{.density = 0.5}, spar::recursive_doubling{}));
    compare<float>(ranks, 500, spar::compose(exact_topk{.k = 20}, spar::tree_of_topk{}));
  }
}

TEST_F(feedback, keeps_what_the_storage_rounds) {
  using rounding = spar_test::gap_codec<false>;
  using spar::storage::as_bfloat16, spar::storage::qsgd, spar::storage::then, spar::storage::coo;
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    const exact_topk select{.k = 50};
    compare<float>(ranks, 600, spar::compose(select, then<coo, qsgd<4>>{}, spar::dsar_split{}), spar::average{});
    compare<float>(ranks, 600, spar::compose(select, rounding{}, spar::recursive_doubling{}));
    const spar::tree_plans plans(spar_test::two_hosts(ranks));
    const threshold_reuse reuse{.k = 50, .period = 3};
    compare<float>(ranks, 600, spar::compose(reuse, rounding{}, spar::on_tree(plans), spar::balanced_owners{}));
    compare<float>(ranks, 600, spar::compose(as_bfloat16{}, spar::ring{.piece = 64}));
  }
}

/// Two steps, then a reducer on the other side resumes for two more, in both directions.
TEST_F(feedback, resumes_what_was_saved_on_the_host_and_on_the_device) {
  constexpr std::size_t n = 200;
  cuda_double::reset(9);
  const spar::ok_topk_allreduce<> parts{.select = {.k = 10, .period = 3}};
  on_ranks(3, [&](spar::threads& net) {
    const stream work;
    const device_array<float> memory(std::vector<float>(n, 0));
    auto reference = spar::with_error_feedback<float>(parts), host = spar::with_error_feedback<float>(parts);
    auto device = spar::with_device_feedback<float>(parts), late_device = spar::with_device_feedback<float>(parts);
    const auto on_device = [&](auto& reduce, int step) {
      memory.write(work, gradient<float>(net.rank(), step, n));
      reduce(net, spar::device_span(memory.data(), n, work));
      return bits(std::span<const float>(memory.read(work)));
    };
    const auto on_the_host = [&](auto& reduce, int step) {
      auto x = gradient<float>(net.rank(), step, n);
      reduce(net, std::span(x));
      return bits(std::span<const float>(x));
    };
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(on_device(device, step), on_the_host(reference, step));
    }
    EXPECT_EQ(device.save(), reference.save());
    host.load(device.save());
    late_device.load(reference.save());
    for (int step = 2; step < 6; ++step) {
      const auto expected = on_the_host(reference, step);
      EXPECT_EQ(on_the_host(host, step), expected);
      EXPECT_EQ(on_device(late_device, step), expected);
    }
    auto damaged = device.save();
    damaged[damaged.size() / 2] ^= std::byte{1};
    EXPECT_THROW(device.load(damaged), spar::invalid_argument);
    EXPECT_EQ(device.save().size(), damaged.size());
    return 0;
  });
}

/// A selection by a reused threshold adds the residual, selects and leaves the new residual in one pass: with one rank,
/// a call has one other kernel, which writes the sum.
TEST_F(feedback, reuses_a_threshold_in_one_pass) {
  constexpr std::size_t n = 5000;
  on_ranks(1, [](spar::threads& net) {
    const device_array<float> x(std::vector<float>(n, 0));
    auto reduce = spar::with_device_feedback<float>(
        spar::compose(threshold_reuse{.k = 100, .period = 10}, spar::recursive_doubling{}));
    const auto kernels_of_call = [&](const std::vector<float>& values) {
      x.write(nullptr, values);
      cuda_double::finish(nullptr);
      const std::uint64_t before = on_host::machine::launches;
      reduce(net, spar::device_span(x.data(), n));
      (void)x.read(nullptr);
      return on_host::machine::launches - before;
    };
    EXPECT_GT(kernels_of_call(gradient<float>(0, 0, n)), 5U); // searches the threshold
    std::vector<float> large(n);
    for (std::size_t i = 0; i < 100; ++i) large[i] = 1e6F;
    EXPECT_EQ(kernels_of_call(large), 2U);
    return 0;
  });
}

/// The second call reuses the threshold, and the collective returns entries and rounding errors to the device.
TEST_F(feedback, ends_on_every_rank_if_cuda_fails_in_the_collective) {
  const auto parts =
      spar::compose(threshold_reuse{.k = 20, .period = 4}, spar_test::gap_codec<false>{}, spar::balanced_owners{});
  EXPECT_GE(fail_each_cuda_call(2, 200, parts), 6U);
}

TEST_F(feedback, takes_part_in_a_call_with_ranks_on_the_host) {
  constexpr std::size_t n = 300;
  const spar::ok_topk_allreduce<> parts{.select = {.k = 20}};
  const auto sums = on_ranks(3, [&](spar::threads& net) {
    auto x = gradient<float>(net.rank(), 0, n);
    if (net.rank() != 1) {
      spar::with_error_feedback<float>(parts)(net, std::span(x));
      return bits(std::span<const float>(x));
    }
    const device_array<float> memory(x);
    spar::with_device_feedback<float>(parts)(net, spar::device_span(memory.data(), n));
    return bits(std::span<const float>(memory.read(nullptr)));
  });
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

/// A rank changes its accumulated values, and then finds that the other rank has another k. The next call has another
/// communicator and another stream, and begins after the changes.
TEST_F(feedback, orders_a_call_after_a_call_that_has_failed) {
  constexpr std::size_t n = 40;
  const auto parts_of = [](std::uint64_t k) {
    return spar::compose(exact_topk{.k = k}, spar_test::gap_codec<false>{}, spar::split_allgather{});
  };
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    cuda_double::reset(seed);
    const std::uint64_t k = seed % 2 == 0 ? 10 : 0; // with 0, a call does not wait for the device
    const stream works[2];
    const device_array<float> x(gradient<float>(0, 0, n));
    auto reduce = spar::with_device_feedback<float>(parts_of(k));
    on_ranks(2, [&](spar::threads& net) {
      if (net.rank() == 0) {
        EXPECT_THROW(reduce(net, spar::device_span(x.data(), n, works[0])), spar::error);
      } else {
        auto other = spar::with_error_feedback<float>(parts_of(k + 1));
        std::vector<float> values(n, 1);
        EXPECT_THROW(other(net, std::span(values)), spar::error);
      }
      return 0;
    });
    on_ranks(1, [&](spar::threads& net) {
      x.write(works[1], gradient<float>(0, 1, n));
      reduce(net, spar::device_span(x.data(), n, works[1]));
      auto expected = gradient<float>(0, 1, n);
      auto on_host = spar::with_error_feedback<float>(parts_of(k));
      on_host(net, std::span(expected));
      EXPECT_EQ(bits(std::span<const float>(x.read(works[1]))), bits(std::span<const float>(expected))) << seed;
      EXPECT_EQ(bits(std::span<const float>(cuda_double::values_at(reduce.residual(), n, works[1]))),
                bits(on_host.residual()));
      return 0;
    });
  }
}

} // namespace
} // namespace feedback_test
