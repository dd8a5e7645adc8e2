// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selected entries that stay in device memory, against the same collectives on the host: kernels run by fibres, in the
// streams of a double of the CUDA runtime.
#include "../../examples/own_policies/policies.hpp"
#include "feedback_suite.hpp"
#include "refusals.hpp"

#include <spar/coalesce.cuh>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/cuda/values/zfp.cuh>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>

#include <deque>
#include <random>
#include <tuple>
#include <utility>

namespace feedback_test {
namespace {

class entries_on_device : public feedback {};

TEST_F(entries_on_device, have_the_bits_of_the_host) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    on_host::machine::seed = static_cast<std::uint64_t>(ranks);
    const exact_topk select{.k = 40};
    const auto runs = [&](int number) { return spar_test::runs_case(4, ranks, number); };
    if (runs(1))                                                                              // 3
      compare_entries<float>(ranks, 2100, spar::compose(select, spar::recursive_doubling{})); // more than a tile
    if (runs(2))                                                                              // 2
      compare_entries<double>(ranks, 300, spar::compose(select, spar::split_allgather{}), spar::average{});
    if (runs(3)) // 1, 5
      compare_entries<float>(ranks, 300, spar::compose(select, spar::tree_of_topk{}));
    if (runs(6)) // 2
      compare_entries<float>(ranks, 300, spar::compose(own::at_least{.threshold = 0.5F}, spar::split_allgather{}));
    if (runs(6)) // 2
      compare_entries<float>(ranks, 2100, spar::gaussiank_allreduce{.select = {.density = 0.02}});
    if (runs(5)) // 3
      compare_entries<float>(
          ranks, 2100, spar::compose(spar::selector::bucket_topk{.k = 9, .bucket = 100}, spar::split_allgather{}));
#if SPAR_ALL_CASES
    compare_entries<float>(ranks, 300, spar::compose(select, spar::quantile_owners{}));
    compare_entries<float, std::uint64_t>(ranks, 300, spar::compose(select, spar::ssar_split{}));
    compare_entries<std::int32_t>(ranks, 300, spar::compose(select, spar::gather_and_merge{}));
    compare_entries<float>(ranks, 300, spar::compose(select, spar::cheapest{}));
    compare_entries<float>(ranks, 300, spar::compose(exact_topk{.k = 0}, spar::split_allgather{})); // nothing
    compare_entries<float>(ranks, 0, spar::compose(exact_topk{.density = 1}, spar::recursive_doubling{}));
#endif
  }
}

TEST_F(entries_on_device, keep_what_the_schedule_drops) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    const threshold_reuse reuse{.k = 30, .period = 4};
    const auto runs = [&](int number) { return spar_test::runs_case(4, ranks, number); };
    if (runs(3)) // 1, 5
      compare_entries<float>(ranks, 600, spar::compose(reuse, spar::balanced_owners{.tau = 2}), spar::average{});
    if (runs(2)) // 2
      compare_entries<float>(ranks, 400,
                             spar::compose(threshold_reuse{.k = 50, .epsilon = 0}, spar::recursive_doubling{}));
    if (runs(1)) // 3
      compare_entries<float>(ranks, 300, spar::compose(threshold_reuse{.k = 0}, spar::recursive_doubling{}));
#if SPAR_ALL_CASES
    compare_entries<double, std::uint64_t>(ranks, 300, spar::compose(reuse, spar::balanced_owners{.tau = 2}));
    compare_entries<float>(ranks, 300, spar::compose(exact_topk{.k = 20}, spar::balanced_owners{}));
#endif
  }
}

TEST_F(entries_on_device, become_dense_sums_that_a_codec_rounds) {
  using spar::storage::as_bfloat16, spar::storage::then, spar::storage::coo;
#if SPAR_ALL_CASES
  using spar::storage::qsgd;
#endif
  for (const spar::rank_t ranks : {2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    const auto runs = [&](int number) { return spar_test::runs_case(3, ranks, number); };
    if (runs(1)) { // 2, 5
      compare_entries<float>(ranks, 300, spar::compose(exact_topk{.density = 1}, spar::split_allgather{}));
#if SPAR_ALL_CASES
      compare_entries<float>(ranks, 300, spar::compose(exact_topk{.k = 50}, then<coo, qsgd<4>>{}, spar::dsar_split{}));
#endif
    }
    if (runs(0)) { // 3
      compare_entries<float>(ranks, 300, spar::compose(exact_topk{.density = 0.9}, spar::recursive_doubling{}),
                             spar::average{});
      compare_entries<float>(
          ranks, 300, spar::compose(exact_topk{.density = 0.6}, then<coo, as_bfloat16>{}, spar::recursive_doubling{}));
    }
#if SPAR_ALL_CASES
    compare_entries<float>(ranks, 300, spar::compose(as_bfloat16{}, spar::split_allgather{}));
    compare_entries<float>(ranks, 300, spar::compose(as_bfloat16{}, spar::ring{.piece = 64}));
    compare_entries<float>(ranks, 300, spar::compose(spar::storage::as_half{}, spar::recursive_doubling{.piece = 64}));
    compare_entries<float>(ranks, 300, spar::compose(qsgd<8>{}, spar::recursive_doubling{}));
#endif
  }
}

/// In a call without error feedback, which has no use for the errors.
TEST_F(entries_on_device, of_doubles_become_dense_sums_that_a_codec_rounds) {
  constexpr std::size_t n = 300;
  using rounding = spar::storage::then<spar::storage::coo, spar::storage::zfp>;
  const auto parts = spar::compose(exact_topk{.density = 0.6}, rounding{}, spar::dsar_split{});
  for (const spar::rank_t ranks : {1, 3}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    on_ranks(ranks, [&](spar::threads& net) {
      auto mine = gradient<double>(net.rank(), 0, n);
      mine[2] = 2; // zfp does not encode the largest number
      auto expected = mine;
      spar::allreduce(net, std::span(expected), parts);
      spar::on_device gpu(net);
      const device_array<double> x(mine);
      spar::allreduce(gpu, spar::device_span(x.data(), n), parts);
      EXPECT_EQ(bits(std::span<const double>(x.read(nullptr))), bits(std::span<const double>(expected)));
      return 0;
    });
  }
}

/// One object's calls reduce entries in turn on the host and on the device, in two streams, without a wait between
/// them.
TEST_F(entries_on_device, may_change_their_place_from_call_to_call) {
  constexpr std::size_t n = 200;
  using rounding = spar::storage::then<spar::storage::coo, spar::storage::qsgd<4>>; // changes the residual late
  const auto parts = spar::compose(exact_topk{.k = 50}, rounding{}, spar::dsar_split{});
  const auto expected = on_the_host<float, std::uint32_t>(1, n, parts, spar::sum{}, same_number_of_calls);
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 10 : 3); ++seed) {
    cuda_double::reset(seed);
    const auto got = on_ranks(1, [&](spar::threads& net) {
      const stream works[2];
      spar::on_device gpu(net);
      auto reduce = spar::with_device_feedback<float>(parts);
      std::deque<device_array<float>> x;
      for (int step = 0; step < steps; ++step) {
        const spar::device_span values(x.emplace_back(gradient<float>(0, step, n)).data(), n, works[step % 2]);
        if (step % 3 == 1) {
          reduce(net, values);
          cuda_double::hold(true); // the work after the last wait may not have ended
        } else {
          reduce(gpu, values);
          cuda_double::hold(false);
        }
      }
      result all;
      for (int step = 0; step < steps; ++step) {
        const std::size_t at = static_cast<std::size_t>(step);
        all.push_back(bits(std::span<const float>(x[at].read(works[step % 2]))));
      }
      all.push_back(bits(std::span<const float>(cuda_double::values_at(reduce.residual(), n, works[1]))));
      all.push_back(words(reduce.current_state()));
      return all;
    });
    EXPECT_TRUE(got == expected) << "seed " << seed;
  }
}

/// The collective without a residual: dense values become the sum of the selected entries.
TEST_F(entries_on_device, are_selected_and_reduced_without_a_residual) {
  constexpr std::size_t n = 300;
  const auto parts = spar::compose(exact_topk{.k = 20}, spar::split_allgather{});
  cuda_double::reset(5);
  const auto sums = on_ranks(3, [&](spar::threads& net) {
    spar::on_device gpu(net);
    auto expected = gradient<float>(net.rank(), 0, n);
    const device_array<float> x(expected);
    spar::allreduce(gpu, spar::device_span(x.data(), n), parts, spar::average{});
    auto second = spar::start_allreduce(gpu, spar::device_span(x.data(), n), parts);
    second.wait();
    spar::allreduce(net, std::span(expected), parts, spar::average{});
    spar::allreduce(net, std::span(expected), parts);
    return bits(std::span<const float>(x.read(nullptr))) == bits(std::span<const float>(expected));
  });
  EXPECT_EQ(sums, std::vector<bool>(3, true));
}

TEST_F(entries_on_device, are_reduced_as_streams_of_the_program) {
  constexpr std::size_t n = 1000;
  using on_device_view = spar::stream_view<float, std::uint32_t, spar::cuda>;
  cuda_double::reset(7);
  const auto all_equal = on_ranks(3, [&](spar::threads& net) {
    spar::on_device gpu(net);
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = static_cast<std::uint32_t>(net.rank()); i < n; i += 9) indices.push_back(i);
    const std::vector<float> values = gradient<float>(net.rank(), 0, indices.size());
    const device_array<std::uint32_t> at(indices);
    const device_array<float> x(std::vector<float>(values.size(), 0));
    const stream work;
    const auto mine = on_device_view::sparse(n, {at.data(), indices.size()}, {x.data(), values.size()});
    const auto compare_with = [&](const auto& algorithm, auto op) {
      const auto expected = spar::allreduce(net, spar::sparse_view(n, indices, values), algorithm, op);
      x.write(work, values); // the call must wait for it
      cuda_double::stall(work);
      const auto sum = spar::allreduce(gpu, mine, work, algorithm, op);
      const auto values_of = [&](const auto& s) { return cuda_double::values_at(s.values().data(), s.count(), work); };
      EXPECT_EQ(sum.is_dense(), expected.is_dense());
      EXPECT_EQ(sum.dimension(), n);
      EXPECT_EQ(bits(std::span<const float>(values_of(sum))), bits(expected.values()));
      if (!sum.is_dense()) {
        const auto got = cuda_double::values_at(sum.indices().data(), sum.count(), work);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.indices().begin(), expected.indices().end()));
      }
    };
    compare_with(spar::recursive_doubling{}, spar::sum{});
    compare_with(spar::gather_and_merge{}, spar::average{});
    compare_with(spar::dsar_split{}, spar::sum{});
    compare_with(spar::compose(spar::storage::as_bfloat16{}, spar::recursive_doubling{}), spar::sum{});
    const auto whole = spar::allreduce(gpu, on_device_view::dense(100, 0, {x.data(), 100}), work);
    const auto expected = spar::allreduce(net, spar::dense_view(std::span(values).first(100)));
    EXPECT_EQ(bits(std::span<const float>(cuda_double::values_at(whole.values().data(), whole.count(), work))),
              bits(expected.values()));
    return 0;
  });
  EXPECT_EQ(all_equal.size(), 3U);
}

TEST_F(entries_on_device, are_coalesced_and_then_reduced) {
  static constexpr std::size_t n = 500, count = 2000;
  cuda_double::reset(8);
  on_ranks(2, [](spar::threads& net) {
    spar::on_device gpu(net);
    std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()));
    std::vector<std::int64_t> indices(count);
    for (auto& i : indices) i = static_cast<std::int64_t>(random() % n);
    const std::vector<float> values = gradient<float>(net.rank(), 0, count);
    const device_array<std::int64_t> at(indices);
    const device_array<float> x(std::vector<float>(count, 0));
    const stream work;
    const auto given = std::span<const std::int64_t>(at.data(), count);
    const auto its_values = std::span<const float>(x.data(), count);
    x.write(work, values); // the call must wait for it
    cuda_double::stall(work);
    const auto mine = spar::coalesce(gpu, n, given, its_values, work);
    const auto expected = spar::coalesce(net.memory(), n, indices, values);
    const auto same = [&](const auto& got, const auto& wanted) {
      const auto i = cuda_double::values_at(got.indices().data(), got.indices().size(), work);
      const auto v = cuda_double::values_at(got.values().data(), got.count(), work);
      return std::equal(i.begin(), i.end(), wanted.indices().begin(), wanted.indices().end()) &&
             bits(std::span<const float>(v)) == bits(std::span<const float>(wanted.values()));
    };
    EXPECT_EQ(mine.dimension(), n);
    EXPECT_TRUE(same(mine, expected));
    EXPECT_TRUE(same(spar::allreduce(gpu, mine.view(), work), spar::allreduce(net, expected.view())));
    EXPECT_TRUE(same(spar::coalesce(gpu, n, given, its_values, work, spar::maximum{}),
                     spar::coalesce(net.memory(), n, indices, values, spar::maximum{})));
    EXPECT_EQ(spar::coalesce(gpu, 0, given.first(0), its_values.first(0), work).count(), 0U);
    EXPECT_TRUE(same(spar::coalesce(gpu, n, std::span(at.data(), count), its_values, work), expected)); // not const

    const auto error = [&](std::uint64_t dimension, std::size_t of_values) {
      return spar_test::refusal_of(
          [&] { (void)spar::coalesce(gpu, dimension, given, its_values.first(of_values), work); });
    };
    EXPECT_NE(error(1, count).find(" is not an index of a vector of dimension 1;"), std::string::npos);
    EXPECT_EQ(error(n, count - 1), "there are 2000 indices, but 1999 values");
    EXPECT_EQ(spar_test::refusal_of(
                  [&] { (void)spar::coalesce(gpu, n, std::span(std::as_const(indices)), its_values, work); }),
              "the 2000 indices of a stream are in host memory; expected device memory");
    indices[7] = -1;
    at.write(work, indices);
    EXPECT_EQ(error(n, count).substr(0, 19), "index -1 at entry 7");
    return 0;
  });
}

TEST_F(entries_on_device, are_refused_as_streams_that_are_malformed) {
  using on_device_view = spar::stream_view<float, std::uint32_t, spar::cuda>;
  on_ranks(1, [](spar::threads& net) {
    spar::on_device gpu(net);
    const device_array<float> values(std::vector<float>(3, 1));
    const auto error = [&](std::span<const std::uint32_t> indices, std::uint64_t n) {
      return spar_test::refusal_of(
          [&] { (void)spar::allreduce(gpu, on_device_view::sparse(n, indices, {values.data(), 3}), cudaStream_t()); });
    };
    const std::vector<std::uint32_t> unordered{4, 2, 6}, ordered{2, 4, 6};
    const device_array<std::uint32_t> bad(unordered), good(ordered);
    EXPECT_EQ(error({good.data(), 3}, 10), "");
    EXPECT_NE(error({bad.data(), 3}, 10).find("indices must ascend"), std::string::npos);
    EXPECT_NE(error({good.data(), 3}, 6).find("below the dimension 6"), std::string::npos);
    EXPECT_NE(error({good.data(), 2}, 10).find("2 indices but 3 values"), std::string::npos);
    return 0;
  });
}

TEST_F(entries_on_device, are_refused_as_streams_in_memory_of_the_host_and_other_devices) {
  constexpr std::size_t n = 100;
  using on_device_view = spar::stream_view<float, std::uint32_t, spar::cuda>;
  const auto sums = on_ranks(3, [](spar::threads& net) {
    const std::vector<std::uint32_t> indices{2, 4, 6};
    const std::vector<float> values{1, 2, 3};
    const device_array<std::uint32_t> at(indices);
    const device_array<float> x(values);
    spar::on_device gpu(net);
    const stream own;
    const auto mine = on_device_view::sparse(n, {at.data(), 3}, {x.data(), 3});
    const auto error = [&](const on_device_view& entries, cudaStream_t work) {
      return spar_test::refusal_of([&] { (void)spar::allreduce(gpu, entries, work); });
    };
    EXPECT_EQ(error(on_device_view::sparse(n, indices, {x.data(), 3}), own),
              "the 3 indices of a stream are in host memory; expected device memory");
    EXPECT_EQ(error(on_device_view::sparse(n, {at.data(), 3}, values), own),
              "the 3 values of a stream are in host memory; expected device memory");
    EXPECT_EQ(error(on_device_view::dense(3, 0, values), own),
              "the 3 values of a stream are in host memory; expected device memory");
    cuda_double::set_device_of_memory(3);
    EXPECT_EQ(error(mine, own), "the 3 values of a stream are in memory of device 3, but the current device is 0");
    cuda_double::set_device_of_memory(-1);
    cuda_double::set_device(3);
    {
      const stream other;
      EXPECT_EQ(error(mine, own), "the current device is 3, but this spar::on_device was made for device 0; expected "
                                  "cudaSetDevice(0) before the call");
      cuda_double::set_device(0);
      EXPECT_EQ(error(mine, other), "the CUDA stream is of device 3, but the current device is 0");
    }
    EXPECT_FALSE(net.dead());
    const auto sum = spar::allreduce(gpu, mine, own);
    return cuda_double::values_at(sum.values().data(), sum.count(), own);
  });
  EXPECT_EQ(sums, std::vector(3, std::vector<float>{3, 6, 9}));
}

/// The messages of the host, also if a rank has its values on the host.
TEST_F(entries_on_device, travel_in_the_messages_of_the_host) {
  constexpr std::size_t n = 300;
  cuda_double::reset(6);
  const spar::ok_topk_allreduce<> parts{.select = {.k = 20, .period = 2}};
  const auto traffic = [&](auto call) {
    return on_ranks(3, [&](spar::threads& net) {
      spar::faulty<spar::threads> reads_payloads(net, {}); // so no memory is lent
      spar::counting counted(reads_payloads);
      const auto sums = call(counted);
      return std::tuple(sums, counted.sent().messages, counted.sent().bytes, counted.received().bytes);
    });
  };
  const auto on_host = [&](auto& net) {
    auto reduce = spar::with_error_feedback<float>(parts);
    auto x = gradient<float>(net.rank(), 0, n), y = gradient<float>(net.rank(), 1, n);
    reduce(net, std::span(x)), reduce(net, std::span(y));
    return bits(std::span<const float>(y));
  };
  const auto on_device = [&](auto& net) {
    spar::on_device gpu(net);
    auto reduce = spar::with_device_feedback<float>(parts);
    const device_array<float> x(gradient<float>(net.rank(), 0, n)), y(gradient<float>(net.rank(), 1, n));
    reduce(gpu, spar::device_span(x.data(), n)), reduce(gpu, spar::device_span(y.data(), n));
    return bits(std::span<const float>(y.read(nullptr)));
  };
  const auto expected = traffic(on_host);
  EXPECT_EQ(traffic(on_device), expected);
  EXPECT_EQ(traffic([&](auto& net) { return net.rank() == 1 ? on_host(net) : on_device(net); }), expected);
}

TEST_F(entries_on_device, are_refused_if_their_indices_are_wrong) {
  on_ranks(1, [](spar::threads& net) {
    spar::on_device gpu(net);
    auto& streams = gpu.transport().work();
    const auto error = [&](const std::vector<std::uint32_t>& indices, spar::index_range range) -> std::string {
      const device_array<std::uint32_t> x(indices);
      try {
        const std::span<const std::uint32_t> there(x.data(), indices.size());
        spar::run_until_done(gpu.transport(), streams.check_indices(there, range));
      } catch (const spar::corrupt_message& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_EQ(error({3, 5, 9}, {3, 10}), "");
    EXPECT_NE(error({3, 9, 9}, {3, 10}).find("index 9 at entry 2"), std::string::npos);
    EXPECT_NE(error({3, 5, 10}, {3, 10}).find("index 10 at entry 2"), std::string::npos);
    EXPECT_NE(error({2, 5, 9}, {3, 10}).find("index 2 at entry 0"), std::string::npos);
    return 0;
  });
}

/// Rank 1 gets a message with an index that is out of order or range, or with a wrong list or value: all ranks end,
/// with equal sums or with errors, and the sanitizer finds no access beyond the values.
TEST_F(entries_on_device, stay_in_their_memory_if_a_message_is_damaged) {
  constexpr std::size_t n = 300;
  const auto ends_after = [&](std::uint64_t message, std::uint64_t bit) {
    return on_ranks(3, [&](spar::threads& net) -> std::string {
      std::vector<spar::fault> plan;
      if (net.rank() == 1) plan = {{.what = spar::fault::kind::corrupt_payload, .message = message, .bit = bit}};
      spar::faulty<spar::threads> damages(net, plan);
      const device_array<float> x(gradient<float>(net.rank(), 0, n));
      try {
        spar::on_device gpu(damages);
        auto reduce = spar::with_device_feedback<float>(spar::ok_topk_allreduce<>{.select = {.k = 20}});
        reduce(gpu, spar::device_span(x.data(), n));
      } catch (const spar::error& e) {
        return e.what();
      }
      return "";
    });
  };
  bool found = false;
  for (std::uint64_t message = 0; message < 16; ++message) {
    for (const std::uint64_t bit : {31, 91, 160}) {
      for (const std::string& error : ends_after(message, bit))
        found = found || error.find("expected ascending indices below") != std::string::npos;
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(entries_on_device, are_refused_by_a_merge_if_their_indices_are_wrong) {
  on_ranks(1, [](spar::threads& net) {
    spar::on_device gpu(net);
    auto& streams = gpu.transport().work();
    const device_array<float> values(std::vector<float>(3, 1));
    const auto error = [&](const std::vector<std::uint32_t>& first, const std::vector<std::uint32_t>& second,
                           spar::index_range range) -> std::string {
      const device_array<std::uint32_t> x(first), y(second);
      using view = spar::stream_view<float, std::uint32_t>;
      const view parts[] = {view::sparse(20, {x.data(), first.size()}, {values.data(), first.size()}),
                            view::sparse(20, {y.data(), second.size()}, {values.data(), second.size()})};
      try {
        (void)spar::run_until_done(gpu.transport(),
                                   streams.merge_many(std::span<const view>(parts), 20, range, spar::sum{}));
      } catch (const spar::corrupt_message& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_EQ(error({3, 5, 9}, {4, 5}, {3, 10}), "");
    EXPECT_NE(error({3, 5, 9}, {9, 5}, {3, 10}).find("index 5 at entry 1"), std::string::npos);
    EXPECT_NE(error({3, 5, 10}, {4, 5}, {3, 10}).find("index 10 at entry 2"), std::string::npos);
    EXPECT_NE(error({3, 5, 9}, {2, 5}, {3, 10}).find("index 2 at entry 0"), std::string::npos);
    return 0;
  });
}

/// The second call reuses the threshold. No rank hangs, the residual and the state of a failed call stay, and each
/// failure has the name of the call of CUDA.
TEST_F(entries_on_device, end_on_every_rank_if_cuda_fails_on_one) {
  const std::uint64_t calls =
      fail_each_cuda_call(2, 100, spar::ok_topk_allreduce<>{.select = {.k = 10, .period = 4}}, on_the_device{});
  EXPECT_GE(calls, 10U);
}

TEST_F(entries_on_device, leave_no_memory_allocated) {
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
}

} // namespace
} // namespace feedback_test
