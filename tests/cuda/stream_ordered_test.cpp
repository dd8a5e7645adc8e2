// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in the order of CUDA streams against error feedback on the host: kernels run by fibres, and transfers
// of a double of NCCL, in the streams of a double of the CUDA runtime, which captures them and launches the graphs.
#include "in_order.hpp"

#include "feedback_suite.hpp"
#include "refusals.hpp"

#if SPAR_ALL_CASES
#include <spar/cuda/values/zfp.cuh>
#endif
#include <spar/stream_ordered.cuh>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace feedback_test;
using in_order::expect_costs, in_order::expect_launches_alone, in_order::expect_no_errors, in_order::graph,
    in_order::with_order;
using over_nccl::outcome, over_nccl::outcomes_on_devices;
using spar::rank_t, spar::storage::as_bfloat16, spar::storage::as_half, spar::storage::coo, spar::storage::qsgd,
    spar::storage::then;

class stream_ordered : public over_nccl::on_device_nccl {};

/// A gradient of which some have fewer nonzeros than a rank may send.
template <class T>
std::vector<T> gradient_of(rank_t rank, int step, std::size_t n) {
  auto x = gradient<T>(rank, step, n);
  if (step % 5 == 1) std::fill(x.begin() + static_cast<std::ptrdiff_t>(n / 20), x.end(), T{});
  return x;
}

/// Gradients that become smaller from step to step, so that thresholds remain useful.
template <class T>
std::vector<T> fading_gradient(rank_t rank, int step, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 100 + step));
  std::normal_distribution<double> normal(0, 1000 * std::pow(0.7, step % 4));
  std::vector<T> x(n);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

template <class T>
using gradients = std::vector<T> (*)(rank_t, int, std::size_t);

/// The sums of all steps and the residual on the host.
template <class T, class Index, class Composition, class Op>
std::vector<result> expected(rank_t ranks, std::size_t n, const Composition& parts, Op op, int steps,
                             gradients<T> of = gradient_of<T>) {
  return on_ranks(ranks, [&](spar::threads& net) {
    auto reduce = spar::with_error_feedback<T, Index>(parts);
    result all;
    for (int step = 0; step < steps; ++step) {
      auto x = of(net.rank(), step, n);
      reduce(net, std::span(x), op);
      all.push_back(bits(std::span<const T>(x)));
    }
    all.push_back(bits(reduce.residual()));
    return all;
  });
}

/// The same in a stream: the host makes the calls or, if `captures`, launches the graph of one.
template <class T, class Index, class Composition, class Op>
result in_a_stream(spar::threads& control, std::size_t n, const Composition& parts, Op op, int steps, bool captures,
                   gradients<T> of) {
  spar::nccl_stream order(control);
  auto reduce = spar::with_stream_ordered_feedback<T, Index>(order, n, parts, op);
  const stream work;
  const device_array<T> x(std::vector<T>(n, -1));
  const spar::device_span values(x.data(), n, work);
  std::optional<graph> once;
  if (captures) once.emplace(work, [&] { reduce(values); });
  result all;
  for (int step = 0; step < steps; ++step) {
    x.write(work, of(control.rank(), step, n));
    if (captures)
      once->launch(work);
    else
      reduce(values);
    reduce.wait(work);
    all.push_back(bits(std::span<const T>(x.read(work))));
  }
  all.push_back(bits(std::span<const T>(cuda_double::values_at(reduce.residual(), n, work))));
  return all;
}

template <class T, class Index = std::uint32_t, class Composition, class Op = spar::sum>
void compare_in_a_stream(rank_t ranks, std::size_t n, const Composition& parts, bool captures, Op op = {},
                         int steps = 4, gradients<T> of = gradient_of<T>) {
  SCOPED_TRACE(testing::Message() << Composition::name << ", " << ranks << " ranks, " << n << " values");
  std::vector<result> got(static_cast<std::size_t>(ranks));
  const auto ended =
      outcomes_on_devices(ranks, static_cast<std::uint64_t>(ranks) + n, [&](spar::threads& control, outcome&) {
        got[static_cast<std::size_t>(control.rank())] =
            in_a_stream<T, Index>(control, n, parts, op, steps, captures, of);
        return std::vector<float>();
      });
  for (const outcome& o : ended) EXPECT_EQ(o.error, "");
  EXPECT_TRUE(got == (expected<T, Index>(ranks, n, parts, op, steps, of)));
}

spar::ok_topk_allreduce<> ok_topk(std::uint64_t k, std::uint64_t period, double epsilon) {
  return {.select = {.k = k, .period = period, .epsilon = epsilon}, .by = {.tau = period}};
}

spar::topka_allreduce topka(std::uint64_t k) { return {.select = {.k = k}}; }

TEST_F(stream_ordered, topka_has_the_bits_of_the_host) {
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    if (ranks != 1 && ranks != 3 && !spar_test::runs_all_cases()) continue;
    compare_in_a_stream<float>(ranks, 120, topka(30), ranks % 2 == 1, spar::average{});
    if (spar_test::runs_all_cases()) compare_in_a_stream<float>(ranks, 300, topka(40), ranks % 2 == 0);
  }
  if (spar_test::runs_all_cases()) compare_in_a_stream<float>(18, 120, topka(30), true);
  compare_in_a_stream<double, std::uint64_t>(3, 200, topka(150), true);
#if SPAR_ALL_CASES
  compare_in_a_stream<std::int32_t>(2, 100, topka(31), false);
#endif
  compare_in_a_stream<float>(2, 1, topka(1), true);
  compare_in_a_stream<float>(2, 50, topka(0), true);
  compare_in_a_stream<float>(2, 0, spar::topka_allreduce{.select = {.density = 0.5}}, false);
}

/// What a call puts into the stream, and that it does not wait. TopkA: the residual is added; the top-k clears two
/// memories, and has four kernels for the digits of a float and one that takes; then the allgather, the list of the
/// messages, the merge with a clear and two kernels, and the sum.
TEST_F(stream_ordered, a_call_neither_waits_nor_allocates) {
  constexpr std::size_t n = 300, k = 20;
  constexpr std::uint64_t message = 32 + 8 * k; // the cut, indices and values
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    if (ranks != 1 && ranks != 3 && !spar_test::runs_all_cases()) continue;
    const auto peers = static_cast<std::uint64_t>(ranks - 1);
    expect_no_errors(with_order(ranks, 7, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_feedback<float>(order, n, topka(k));
      const stream work;
      const device_array<float> x(gradient<float>(control.rank(), 0, n));
      const spar::device_span values(x.data(), n, work);
      expect_costs(reduce, values, {13 + std::uint64_t{ranks > 1}, std::uint64_t{ranks > 1}, peers, peers * message});
      reduce.wait(work);
      EXPECT_EQ(reduce.padding().selected, k);
      EXPECT_EQ(reduce.padding().room, k);
      EXPECT_EQ(reduce.padding().bytes_sent, peers * message);

      expect_launches_alone(reduce, values);
    }));
  }
}

/// Entries of the sum, with its number on the device; a message that is not full reports how much of it is padding.
TEST_F(stream_ordered, gives_the_sum_as_entries) {
  expect_no_errors(with_order(2, 3, [&](spar::threads& control, auto& order) {
    auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
    const stream work;
    std::vector<float> mine(50);
    mine[7] = 1, mine[static_cast<std::size_t>(10 + control.rank())] = 2;
    const device_array<float> x(mine);
    reduce(spar::device_span(x.data(), 50, work));
    reduce.wait(work);
    const auto sum = reduce.sum();
    EXPECT_EQ(cuda_double::values_at(sum.count, 1, work), std::vector<std::uint64_t>{3});
    EXPECT_EQ(cuda_double::values_at(sum.indices, 3, work), (std::vector<std::uint32_t>{7, 10, 11}));
    EXPECT_EQ(cuda_double::values_at(sum.values, 3, work), (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(sum.room, 10);
    EXPECT_EQ(reduce.padding().selected, 2);
    EXPECT_EQ(reduce.padding().room, 5);
    EXPECT_EQ(reduce.padding().stayed, 0);
    EXPECT_EQ(reduce.padding().dropped, 0);
  }));
}

/// Checked calls, calls in a stream, graphs and saved states of one object, in turn.
TEST_F(stream_ordered, mixes_with_checked_calls) {
  constexpr std::size_t n = 200;
  constexpr int steps = 6;
  std::vector<result> got(3);
  expect_no_errors(outcomes_on_devices(3, 5, [&](spar::threads& control, outcome&) {
    spar::on_device gpu(control);
    spar::nccl_stream order(control);
    auto reduce = spar::with_stream_ordered_feedback<float>(order, n, topka(20));
    const stream work;
    const device_array<float> x(std::vector<float>(n, -1));
    const spar::device_span values(x.data(), n, work);
    const graph once(work, [&] { reduce(values); });
    result all;
    for (int step = 0; step < steps; ++step) {
      x.write(work, gradient_of<float>(control.rank(), step, n));
      if (step % 3 == 0)
        reduce(gpu, values);
      else if (step == 4)
        reduce(control, values);
      else
        once.launch(work);
      reduce.wait(work);
      if (step == 2) {
        const auto saved = reduce.save();
        reduce.set_residual(std::vector<float>(n, 7));
        reduce.load(saved);
      }
      all.push_back(bits(std::span<const float>(x.read(work))));
    }
    all.push_back(bits(std::span<const float>(cuda_double::values_at(reduce.residual(), n, work))));
    got[static_cast<std::size_t>(control.rank())] = all;
    return std::vector<float>();
  }));
  EXPECT_TRUE(got == (expected<float, std::uint32_t>(3, n, topka(20), spar::sum{}, steps)));
}

TEST_F(stream_ordered, ranks_with_other_options_get_a_mismatch) {
  const auto ended = with_order(2, 1, [&](spar::threads& control, auto& order) {
    const auto k = static_cast<std::uint64_t>(5 + control.rank());
    const auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(k));
  });
  for (const outcome& o : ended) {
    EXPECT_NE(o.error.find("select.k=5"), std::string::npos) << o.error;
    EXPECT_NE(o.error.find("select.k=6"), std::string::npos) << o.error;
  }
}

TEST_F(stream_ordered, refuses_other_lengths_and_memory) {
  expect_no_errors(with_order(1, 1, [&](spar::threads& control, auto& order) {
    EXPECT_EQ(spar_test::refusal_of([&] { (void)spar::with_stream_ordered_feedback<float>(order, 50, topka(51)); }),
              "the selector's k is 51; expected at most n = 50");
    auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
    const stream work;
    const device_array<float> x(std::vector<float>(50));
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(spar::device_span(x.data(), 49, work)); }),
              "the vector has length 49, but this spar::stream_ordered_feedback was made for 50 values");
    std::vector<float> on_host(50);
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(spar::device_span(on_host.data(), 50, work)); }),
              "the 50 values of a spar::device_span are in host memory; expected device memory");
    EXPECT_FALSE(control.dead());
  }));
}

/// A message of rank 0 arrives with a flipped bit at rank 1: in its number of entries, or in its first index. Rank 0
/// learns this at the latest from a barrier.
TEST_F(stream_ordered, reports_damaged_messages) {
  const auto errors = [&](std::size_t byte) {
    return with_order(2, 9, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
      const stream work;
      const device_array<float> x(gradient<float>(control.rank(), 0, 50));
      if (control.rank() == 1) nccl_double::damage(1, byte);
      reduce(spar::device_span(x.data(), 50, work));
      reduce.wait(work);
      spar::barrier(control);
    });
  };
  const auto of_count = errors(15);
  const std::string count = of_count[1].error, index = errors(32 + 3)[1].error;
  EXPECT_NE(of_count[0].error.find(count), std::string::npos) << of_count[0].error;
  EXPECT_EQ(count, "a message of a call in a CUDA stream says that it has 9223372036854775813 entries, but it has room "
                   "for 5");
  EXPECT_EQ(index, "the indices of a message of a call in a CUDA stream do not ascend, or are not below 50");
}

/// The same for a slice and for a share of Ok-Topk.
TEST_F(stream_ordered, reports_damaged_messages_of_ok_topk) {
  const auto error = [&](std::uint64_t transfer, std::size_t byte) {
    return with_order(2, 9,
                      [&](spar::threads& control, auto& order) {
                        auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, ok_topk(10, 4, 0.9));
                        const stream work;
                        const device_array<float> x(fading_gradient<float>(control.rank(), 0, 50));
                        reduce(control, spar::device_span(x.data(), 50, work));
                        x.write(work, fading_gradient<float>(control.rank(), 1, 50));
                        if (control.rank() == 1) nccl_double::damage(transfer, byte);
                        reduce(spar::device_span(x.data(), 50, work));
                        reduce.wait(work);
                        control.set_deadline(0.2);
                      })[1]
        .error;
  };
  for (const std::uint64_t transfer : {1U, 2U}) {
    EXPECT_NE(error(transfer, 15).find("entries, but it has room for "), std::string::npos) << transfer;
    EXPECT_NE(error(transfer, 32 + 3).find("the indices of a message"), std::string::npos) << transfer;
  }
}

/// A transfer that does not arrive, or a rank that makes no call: `wait` ends with the deadline.
TEST_F(stream_ordered, ends_at_the_deadline) {
  for (const bool lost : {true, false}) {
    const auto ended = with_order(2, 2, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
      control.set_deadline(control.rank() == 1 ? 0.3 : 20);
      const stream work;
      const device_array<float> x(gradient<float>(control.rank(), 0, 50));
      if (lost && control.rank() == 1) nccl_double::lose(1);
      if (lost || control.rank() == 1) reduce(spar::device_span(x.data(), 50, work));
      if (lost || control.rank() == 1) reduce.wait(work);
    });
    EXPECT_EQ(ended[1].error, "rank 1 has waited for 0.3 s for the work in a CUDA stream");
  }
}

/// The first calls of CUDA by which rank 1 makes its objects fail: the device and an event, then the device and a
/// stream of the residual. (The faults test goes over all objects and calls.)
TEST_F(stream_ordered, reports_failures_of_cuda_in_constructors) {
  for (std::uint64_t call = 1; call <= 4; ++call) {
    const auto ended = outcomes_on_devices(2, call, [&](spar::threads& control, outcome&) {
      control.set_deadline(2);
      if (control.rank() == 1) cuda_double::fail_at(call);
      spar::nccl_stream order(control);
      (void)spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
      return std::vector<float>();
    });
    for (const outcome& o : ended)
      EXPECT_NE(o.error.find("failed: cudaErrorUnknown, a planned error"), std::string::npos)
          << call << ": " << o.error;
  }
}

/// Each call of NCCL fails once.
TEST_F(stream_ordered, reports_failures_of_nccl) {
  for (std::uint64_t call = 1; call <= 3; ++call) {
    const auto ended = with_order(2, 4, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, topka(5));
      const stream work;
      const device_array<float> x(gradient<float>(control.rank(), 0, 50));
      if (control.rank() == 1) nccl_double::fail_at(call);
      reduce(spar::device_span(x.data(), 50, work));
      reduce.wait(work);
    });
    EXPECT_NE(ended[1].error.find("failed: a planned error of NCCL"), std::string::npos) << ended[1].error;
    EXPECT_NE(ended[0].error, "");
  }
}

template <spar::second_phase Phase = spar::second_phase::adaptive>
auto split(std::uint64_t k) {
  return spar::compose(exact_topk{.k = k}, spar::split_allgather<Phase>{});
}

template <class Codec = qsgd<8>>
auto encoded_dsar(std::uint64_t k, Codec codec = {.bucket = 32, .seed = 5}) {
  return spar::compose(exact_topk{.k = k}, then<coo, Codec>{{}, codec}, spar::dsar_split{});
}

TEST_F(stream_ordered, replays_a_graph) {
  const int launches = spar_test::is_full() ? 1000 : 4;
  compare_in_a_stream<float>(3, 90, topka(12), true, spar::sum{}, launches);
  compare_in_a_stream<float>(2, 90, encoded_dsar(12), true, spar::average{}, launches, fading_gradient<float>);
}

/// Ok-Topk: a checked call in each period, on an `on_device` over NCCL, then calls in the stream. On the host, the
/// calls in between neither search for a threshold nor exceed a quota, or the comparison would say nothing.
template <class T, class Index = std::uint32_t, class Op = spar::sum>
void compare_ok_topk(rank_t ranks, std::size_t n, std::uint64_t k, Op op = {}) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n << " values");
  constexpr int period = 4, steps = 2 * period;
  const auto parts = ok_topk(k, period, 0.9);
  const auto expected = on_ranks(ranks, [&](spar::threads& net) {
    auto reduce = spar::with_error_feedback<T, Index>(parts);
    result all;
    for (int step = 0; step < steps; ++step) {
      auto x = fading_gradient<T>(net.rank(), step, n);
      reduce(net, std::span(x), op);
      all.push_back(bits(std::span<const T>(x)));
      if (step % period == 0) continue;
      EXPECT_EQ(reduce.current_state().select.calls, static_cast<std::uint64_t>(step % period + 1)) << step;
      EXPECT_EQ(reduce.report().by.threshold_rounds, 0) << step;
    }
    all.push_back(bits(reduce.residual()));
    return all;
  });
  std::vector<result> got(static_cast<std::size_t>(ranks));
  expect_no_errors(outcomes_on_devices(ranks, n, [&](spar::threads& control, outcome&) {
    over_nccl::net_type net(control);
    spar::on_device gpu(net);
    spar::nccl_stream order(control);
    auto reduce = spar::with_stream_ordered_feedback<T, Index>(order, n, parts, op);
    const stream work;
    const device_array<T> x(std::vector<T>(n, T(-1)));
    const spar::device_span values(x.data(), n, work);
    std::optional<graph> once;
    result all;
    for (int step = 0; step < steps; ++step) {
      x.write(work, fading_gradient<T>(control.rank(), step, n));
      if (step % period == 0)
        reduce(gpu, values);
      else if (!once)
        once.emplace(work, [&] { reduce(values); });
      if (step % period != 0) once->launch(work);
      reduce.wait(work);
      all.push_back(bits(std::span<const T>(x.read(work))));
    }
    all.push_back(bits(std::span<const T>(cuda_double::values_at(reduce.residual(), n, work))));
    got[static_cast<std::size_t>(control.rank())] = all;
    return std::vector<float>();
  }));
  EXPECT_TRUE(got == expected);
}

TEST_F(stream_ordered, ok_topk_has_the_bits_of_the_host) {
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    if (ranks != 3 && !spar_test::runs_all_cases()) continue;
    compare_ok_topk<float>(ranks, 400, 60, spar::average{});
  }
#if SPAR_ALL_CASES
  if (spar_test::runs_all_cases()) compare_ok_topk<double, std::uint64_t>(3, 500, 50);
#endif
  if (spar_test::runs_all_cases()) compare_ok_topk<float>(18, 600, 90); // a second group of slices, with more than one
}

/// The residual is added; the selection and the division of the sums clear a memory each and have a kernel; two kernels
/// make the slices, two the list and the join of what has been gathered; the merge is that of TopkA.
TEST_F(stream_ordered, a_call_of_ok_topk_neither_waits_nor_allocates) {
  constexpr std::size_t n = 300, k = 60;
  for (rank_t ranks = 2; ranks <= 8; ++ranks) {
    if (ranks != 3 && !spar_test::runs_all_cases()) continue;
    const auto p = static_cast<std::uint64_t>(ranks), most = k + p;
    const auto deviation = static_cast<std::uint64_t>(std::sqrt(most * p));
    const std::uint64_t room = (most + 4 * deviation + p - 1) / p, message = 32 + 8 * room + (room % 2) * 8;
    expect_no_errors(with_order(ranks, 7, [&](spar::threads& control, auto& order) {
      spar::on_device gpu(control);
      auto reduce = spar::with_stream_ordered_feedback<float>(order, n, ok_topk(k, 4, 0));
      const stream work;
      const device_array<float> x(fading_gradient<float>(control.rank(), 0, n));
      const spar::device_span values(x.data(), n, work);
      EXPECT_EQ(spar_test::refusal_of([&] { reduce(values); }),
                "this spar::stream_ordered_feedback has no thresholds and boundaries for calls in a stream: first make "
                "a checked call, with a spar::on_device");
      reduce(gpu, values);
      reduce.wait(work);
      expect_costs(reduce, values, {18 + 2, 2, 2 * (p - 1), 2 * (p - 1) * message});
      EXPECT_EQ(reduce.padding().bytes_sent, 2 * (p - 1) * message);
      EXPECT_EQ(reduce.padding().room, p * room);
      reduce.wait(work);
      expect_launches_alone(reduce, values);
      reduce.load(reduce.save()); // the same thresholds
      reduce(values);
      reduce.wait(work);
    }));
  }
}

/// All large values move to few indices, so that neither slices nor shares have room: what has none stays in the
/// residuals. Sums and residuals of integers together are those of before, at each index.
TEST_F(stream_ordered, ok_topk_loses_nothing_without_room) {
  constexpr std::size_t n = 300;
  constexpr rank_t ranks = 3;
  constexpr int steps = 5;
  using vector = std::vector<std::int32_t>;
  std::vector<std::vector<vector>> x(steps, std::vector<vector>(ranks)), sums = x, residuals = x;
  std::vector<spar::padding_report> reports(ranks);
  const auto gradient_at = [&](rank_t rank, int step) {
    auto values = fading_gradient<std::int32_t>(rank, 0, n);
    if (step > 0)
      for (std::size_t i = 0; i < n; ++i) values[i] = i / 60 == static_cast<std::size_t>(step % 2) ? values[i] * 9 : 0;
    return values;
  };
  expect_no_errors(outcomes_on_devices(ranks, 11, [&](spar::threads& control, outcome&) {
    spar::on_device gpu(control);
    spar::nccl_stream order(control);
    auto reduce = spar::with_stream_ordered_feedback<std::int32_t>(order, n, ok_topk(40, 9, 0.2));
    const stream work;
    const auto rank = static_cast<std::size_t>(control.rank());
    const device_array<std::int32_t> memory{vector(n)};
    const spar::device_span values(memory.data(), n, work);
    for (std::size_t step = 0; step < steps; ++step) {
      x[step][rank] = gradient_at(control.rank(), static_cast<int>(step));
      memory.write(work, x[step][rank]);
      if (step == 0)
        reduce(gpu, values);
      else
        reduce(values);
      reduce.wait(work);
      sums[step][rank] = memory.read(work);
      residuals[step][rank] = cuda_double::values_at(reduce.residual(), n, work);
    }
    reports[rank] = reduce.padding();
    return std::vector<float>();
  }));
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_EQ(sums[step][1], sums[step][0]);
    EXPECT_EQ(sums[step][2], sums[step][0]);
    vector before(n), after = sums[step][0];
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        before[i] += x[step][r][i] + (step > 0 ? residuals[step - 1][r][i] : 0);
        after[i] += residuals[step][r][i];
      }
    }
    EXPECT_EQ(after, before) << step;
  }
  std::uint64_t stayed = 0, dropped = 0;
  for (const auto& report : reports) stayed += report.stayed, dropped += report.dropped;
  EXPECT_GT(stayed, 0);
  EXPECT_GT(dropped, 0);
}

// The memory of calls in a stream is that of the options of the constructor.
template <class Reduce>
constexpr bool changes_options = requires(Reduce& reduce) { reduce.set_algorithm(reduce.algorithm()); };
static_assert(changes_options<spar::device_feedback<float, spar::topka_allreduce>>);
static_assert(!changes_options<spar::stream_ordered_feedback<spar::threads, spar::topka_allreduce>>);

template <class Composition>
constexpr bool runs_in_a_stream =
    requires { typename spar::detail::ordered_calls<Composition, float, std::uint32_t>::type; };
static_assert(runs_in_a_stream<decltype(encoded_dsar(1))>);
// On the host, the number of sums decides whether the codec is used.
static_assert(
    !runs_in_a_stream<decltype(spar::compose(exact_topk{.k = 1}, then<coo, qsgd<8>>{}, spar::split_allgather{}))>);

/// Slices with room for all entries, and so the bits of the host. The blocks of the sum are dense if their sums have
/// room for more bytes as entries.
TEST_F(stream_ordered, split_has_the_bits_of_the_host) {
  for (const rank_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 18}) {
    if (ranks != 3 && !spar_test::runs_all_cases()) continue;
    compare_in_a_stream<float>(ranks, 120, split(30), true, spar::average{});
    compare_in_a_stream<float>(ranks, 400, split(20), true, spar::average{}, 4, fading_gradient<float>);
  }
  compare_in_a_stream<float>(2, 1, split(1), true);
  compare_in_a_stream<float>(2, 50, split(0), false);
#if SPAR_ALL_CASES
  compare_in_a_stream<double, std::uint64_t>(2, 50, split(30), false);
#endif
}

/// Dense blocks, also encoded; what the codec loses is in the residuals.
TEST_F(stream_ordered, dsar_has_the_bits_of_the_host) {
  const auto compare = [](rank_t ranks, std::size_t n, const auto& parts) {
    compare_in_a_stream<float>(ranks, n, parts, ranks != 2, spar::average{}, 4, fading_gradient<float>);
  };
  for (const rank_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 18}) {
    if (ranks != 1 && !spar_test::runs_all_cases()) continue;
    compare(ranks, 403, encoded_dsar(30));
#if SPAR_ALL_CASES
    compare(ranks, 500, encoded_dsar(200, as_bfloat16{}));
    compare(ranks, 500, encoded_dsar(10, as_half{}));
    compare(ranks, 403, encoded_dsar(30, spar::storage::zfp{.rate = 8}));
    compare_in_a_stream<double>(ranks, 16 * static_cast<std::size_t>(ranks), split<spar::second_phase::dense>(7), true);
    compare_in_a_stream<std::int32_t>(ranks, 100, split<spar::second_phase::dense>(20), true);
#endif
  }
  if (!spar_test::runs_all_cases()) return;
#if SPAR_ALL_CASES
  compare_in_a_stream<double>(18, 288, split<spar::second_phase::dense>(100), true); // added rank after rank
#endif
  compare(4, 3, encoded_dsar(3)); // a block is empty
  compare_in_a_stream<float>(2, 0, spar::quantised_sparcml_allreduce<8>{.select = {.density = 0.5}}, true,
                             spar::average{});
}

/// What a call of P ranks puts into the stream. As for TopkA, 8 select, 4 list and merge the slices, and one writes
/// the sum; two make the slices. Blocks of entries are listed and joined by 4. Dense blocks are copied to the vector,
/// unless they are gathered there. QSGD encodes, decodes, has one kernel for what it loses, and counts the call.
TEST_F(stream_ordered, a_call_of_split_neither_waits_nor_allocates) {
  const auto count = [](std::uint64_t ranks, std::size_t n, const auto& parts, std::uint64_t kernels,
                        std::uint64_t block, bool is_dense) {
    expect_no_errors(with_order(static_cast<rank_t>(ranks), 7, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_feedback<float>(order, n, parts, spar::average{});
      const stream work;
      const device_array<float> x(fading_gradient<float>(control.rank(), 0, n));
      const spar::device_span values(x.data(), n, work);
      const std::uint64_t room = reduce.padding().room / ranks, slice = 32 + 8 * room + (room % 2) * 8;
      const std::uint64_t peers = ranks - 1, sent = peers * (slice + block);
      expect_costs(reduce, values, {15 + kernels + 2, 2, 2 * peers, sent});
      EXPECT_EQ(reduce.padding().bytes_sent, sent);
      if (is_dense) {
        EXPECT_EQ(spar_test::refusal_of([&] { (void)reduce.sum(); }),
                  "the sums of this spar::stream_ordered_feedback travel as blocks of " +
                      std::to_string((n + ranks - 1) / ranks) +
                      " values, and have no entries: use the vector of the call, or ssar_split");
      } else {
        EXPECT_EQ(reduce.sum().room, ranks * (block - 32) / 8);
      }
      reduce.wait(work);
      expect_launches_alone(reduce, values);
    }));
  };
  for (std::uint64_t p = 2; p <= 8; ++p) {
    if (p != 3 && !spar_test::runs_all_cases()) continue;
    count(p, 100 * p, split(2), 1 + 4, 32 + 8 * 2 * p, false);  // a slice has room for both
    count(p, 40 * p - 1, encoded_dsar(2), 1 + 3 + p, 48, true); // 40 values, and two buckets with 4 bytes more
    if (!spar_test::runs_all_cases()) continue;
    count(p, 40 * p, split(30), 1, 160, true);
    count(p, 40 * p - 1, split(30), 1 + p, 160, true);
  }
}

#if SPAR_ALL_CASES
/// A sum becomes infinite in bfloat16: its owner says so, and the other rank finds that the first has failed.
TEST_F(stream_ordered, reports_sums_that_a_codec_cannot_encode) {
  const auto ended = with_order(2, 3, [&](spar::threads& control, auto& order) {
    auto reduce = spar::with_stream_ordered_feedback<float>(order, 50, encoded_dsar(2, as_bfloat16{}));
    const stream work;
    std::vector<float> mine(50);
    if (control.rank() == 0) mine[40] = std::numeric_limits<float>::max();
    const device_array<float> x(mine);
    reduce(spar::device_span(x.data(), 50, work));
    reduce.wait(work);
    control.set_deadline(0.2);
    reduce(spar::device_span(x.data(), 50, work));
    reduce.wait(work);
  });
  EXPECT_EQ(ended[1].error,
            "the storage bfloat16 cannot encode some sums of a call in a CUDA stream, which cannot send "
            "them as they are: use another storage");
  EXPECT_NE(ended[0].error, "");
}
#endif

} // namespace
