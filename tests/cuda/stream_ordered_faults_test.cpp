// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of calls in the order of streams, on doubles of NCCL and of the CUDA runtime: whichever call of CUDA or NCCL
// or allocation fails, whatever happens to a message, a graph or a rank, every rank ends in time, with its results or
// with the reason, and nothing is left.
#include "in_order.hpp"

#include "feedback_suite.hpp"
#include "support/global_allocations.hpp"
#include "support/watchdog.hpp"

#include <spar/collective/basic/barrier.hpp>
#include <spar/cuda.hpp>
#include <spar/on_device.cuh>
#include <spar/stream_ordered.cuh>
#include <spar/stream_ordered_allreduce.cuh>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <sched.h>

namespace {

using cuda_double::device_array, cuda_double::stream;
using feedback_test::exact_topk, feedback_test::gradient;
using in_order::graph, in_order::with_order;
using over_nccl::outcome, over_nccl::outcomes_on_devices;
using spar::rank_t, spar::threads;

class stream_ordered_faults : public over_nccl::on_device_nccl {
 protected:
  spar_test::watchdog guard_{60};
};

constexpr std::size_t n = 60;

const auto topka = spar::topka_allreduce{.select = {.k = 6}};
const auto split = spar::compose(exact_topk{.k = 6}, spar::split_allgather{});
const auto ok_topk = spar::ok_topk_allreduce<>{.select = {.k = 10, .period = 4, .epsilon = 0.9}, .by = {.tau = 4}};
const auto two_shot = spar::compose(spar::storage::qsgd<8>{.bucket = 8, .seed = 3}, spar::two_shot{.piece = 8});

template <class Composition>
auto reduction(spar::nccl_stream<threads>& order, const Composition& parts) {
  if constexpr (Composition::selects_entries)
    return spar::with_stream_ordered_feedback<float>(order, n, parts);
  else
    return spar::with_stream_ordered_allreduce<float>(order, n, parts);
}

/// A checked call of entries, a call in a stream, and the launch of a graph. `plan()` plans a failure, as long as what
/// it returns exists.
template <class Composition, class Plan>
void make_calls(threads& control, const Composition& parts, Plan plan) {
  const stream work;
  const device_array<float> x(gradient<float>(control.rank(), 0, n));
  const spar::device_span values(x.data(), n, work);
  [[maybe_unused]] const auto planned = plan();
  spar::nccl_stream order(control);
  auto reduce = reduction(order, parts);
  if constexpr (requires { reduce(control, values); }) reduce(control, values);
  reduce(values);
  const graph once(work, [&] { reduce(values); });
  once.launch(work);
  reduce.wait(work);
}

/// Whether a rank has ended with its results, with an error that contains `text`, or because of another rank's program,
/// which also makes calls of CUDA and allocates.
bool ends_with(const outcome& o, const std::string& text) {
  return o.error.empty() || o.error.find(text) != std::string::npos ||
         o.error.find("an exception has left the scope of a spar::nccl_stream") != std::string::npos;
}

/// Plans a failure on rank 1 by `plan(number)` for each number until `reached(rank 1, number)` is false, and checks
/// that each rank either ends before, or with an error that contains `text`.
template <class Composition, class Plan, class Reached>
void fail_everywhere(spar_test::watchdog& guard, const Composition& parts, const std::string& text, Plan plan,
                     Reached reached) {
  SCOPED_TRACE(Composition::name);
  const std::uint64_t step = spar_test::runs_all_cases() ? 1 : 5;
  int failures = 0;
  for (std::uint64_t number = 1;; number += step) {
    guard.watch(text + ", number " + std::to_string(number));
    const auto ended = outcomes_on_devices(3, number, [&](threads& control, outcome&) {
      make_calls(control, parts, [&] {
        if (control.rank() == 1) plan(number);
        return 0;
      });
      return std::vector<float>();
    });
    cuda_double::fail_at(1U << 30);
    if (!reached(ended[1], number)) break;
    failures += ended[1].error.empty() ? 0 : 1;
    for (const outcome& o : ended) EXPECT_TRUE(ends_with(o, text)) << number << ": " << o.error;
    EXPECT_TRUE(ended[1].error.empty() || ended[1].error.find(text) != std::string::npos) << ended[1].error;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(failures, 2);
}
template <class Composition>
void fail_each_call(spar_test::watchdog& guard, const Composition& parts) {
  fail_everywhere(
      guard, parts, "failed: cudaErrorUnknown, a planned error", [](std::uint64_t call) { cuda_double::fail_at(call); },
      [](const outcome& o, std::uint64_t call) { return o.cuda_calls >= call; });
  fail_everywhere(
      guard, parts, "failed: a planned error of NCCL", [](std::uint64_t call) { nccl_double::fail_at(call); },
      [](const outcome& o, std::uint64_t call) { return o.did.calls >= call; });
  fail_everywhere(
      guard, parts, "failed: a planned error of a transfer",
      [](std::uint64_t poll) { nccl_double::fail_later_at(poll); },
      [](const outcome& o, std::uint64_t poll) { return o.did.polls >= poll; });
}
TEST_F(stream_ordered_faults, of_calls_of_cuda_and_nccl_in_topka) { fail_each_call(guard_, topka); }
TEST_F(stream_ordered_faults, of_calls_of_cuda_and_nccl_in_split) { fail_each_call(guard_, split); }
TEST_F(stream_ordered_faults, of_calls_of_cuda_and_nccl_in_ok_topk) { fail_each_call(guard_, ok_topk); }
TEST_F(stream_ordered_faults, of_calls_of_cuda_and_nccl_in_two_shot) { fail_each_call(guard_, two_shot); }

/// Whichever call of CUDA fails while rank 1 makes an object, both ranks end at once, with the reason, unless the
/// object can do without the call. `make(control, construct)` passes the construction to `construct`.
template <class Make>
void fail_each_call_of_construction(spar_test::watchdog& guard, const std::string& what, Make make) {
  SCOPED_TRACE(what);
  std::uint64_t failures = 0;
  bool reached = true;
  for (std::uint64_t call = 1; reached && !testing::Test::HasFailure(); ++call) {
    guard.watch(what + ", call " + std::to_string(call));
    const auto ended = outcomes_on_devices(2, call, [&](threads& control, outcome&) {
      control.set_deadline(2);
      make(control, [&](auto constructor) {
        if (control.rank() == 1) cuda_double::fail_at(call);
        const std::uint64_t last = cuda_double::calls() + call;
        const auto made = constructor();
        cuda_double::fail_at(1U << 30);
        if (control.rank() == 1) reached = cuda_double::calls() >= last;
        spar::barrier(control);
      });
      return std::vector<float>();
    });
    const bool failed = !ended[1].error.empty();
    failures += failed ? 1 : 0;
    for (const outcome& o : ended) {
      const bool tells = o.error.find("failed: cudaErrorUnknown, a planned error") != std::string::npos;
      EXPECT_EQ(tells, failed) << call << ": " << o.error;
    }
  }
  EXPECT_GT(failures, 0U);
}
TEST_F(stream_ordered_faults, of_constructors_end_every_rank_at_once) {
  const auto fail_each = [&](const char* what, auto make) { fail_each_call_of_construction(guard_, what, make); };
  fail_each("staged", [](auto& control, auto construct) { construct([&] { return spar::staged(control); }); });
  for (const bool lends : {true, false}) {
    cuda_double::let_peers_reach_each_other(lends);
    fail_each("on_device", [](auto& control, auto construct) { construct([&] { return spar::on_device(control); }); });
  }
  fail_each("nccl", [](auto& control, auto construct) { construct([&] { return spar::nccl(control); }); });
  fail_each("on_device over nccl", [](auto& control, auto construct) {
    spar::nccl net(control);
    construct([&] { return spar::on_device(net); });
  });
  fail_each("nccl_stream",
            [](auto& control, auto construct) { construct([&] { return spar::nccl_stream(control); }); });
  const auto fail_each_reduction = [&](const auto& parts) {
    fail_each(parts.name.data(), [&](auto& control, auto construct) {
      spar::nccl_stream order(control);
      construct([&] { return reduction(order, parts); });
    });
  };
  fail_each_reduction(topka);
  fail_each_reduction(split);
  fail_each_reduction(ok_topk);
  fail_each_reduction(two_shot);
}

/// A failing allocation that says whether it has failed.
class failure {
 public:
  failure(std::uint64_t number, std::atomic<bool>& failed) : allocation_(number), failed_(&failed) {}
  failure(const failure&) = delete;
  ~failure() {
    if (allocation_.failed()) *failed_ = true;
  }

 private:
  spar_test::failing_allocation allocation_;
  std::atomic<bool>* failed_;
};

/// One allocation of host memory fails on rank 1, whichever it is.
template <class Composition>
void fail_each_allocation(spar_test::watchdog& guard, const Composition& parts) {
  SCOPED_TRACE(Composition::name);
  bool failed = true;
  std::uint64_t number = 0;
  while (failed && !testing::Test::HasFailure()) {
    guard.watch("allocation " + std::to_string(++number));
    std::atomic<bool> has_failed = false;
    const auto ended = outcomes_on_devices(2, number, [&](threads& control, outcome&) {
      make_calls(control, parts, [&] { return failure(control.rank() == 1 ? number : 0, has_failed); });
      return std::vector<float>();
    });
    failed = has_failed;
    for (const outcome& o : ended) EXPECT_TRUE(ends_with(o, "std::bad_alloc")) << number << ": " << o.error;
  }
  EXPECT_GT(number, 5U);
}
TEST_F(stream_ordered_faults, of_allocations) {
  fail_each_allocation(guard_, topka);
  fail_each_allocation(guard_, ok_topk);
  fail_each_allocation(guard_, two_shot);
}

/// Rank 1 throws at some place: without its part of a call that rank 0 has made, and with a part that rank 0 never
/// makes, because it throws as well.
TEST_F(stream_ordered_faults, of_a_program_end_every_rank) {
  for (const int place : {0, 1, 2, 3, 4}) {
    guard_.watch("place " + std::to_string(place));
    std::atomic<bool> rank_1_has_called = false;
    const auto ended = with_order(2, 5, [&](threads& control, auto& order) {
      control.set_deadline(20);
      const auto fail_at = [&](int at, bool alone = true) {
        if (at == place && (control.rank() == 1 || !alone)) throw std::runtime_error("no data");
      };
      fail_at(0);
      const stream work;
      const device_array<float> x(gradient<float>(control.rank(), 0, n));
      auto reduce = reduction(order, topka);
      const spar::device_span values(x.data(), n, work);
      fail_at(1);
      reduce(values);
      reduce.wait(work);
      fail_at(2);
      if (place != 4 || control.rank() == 1) reduce(values);
      if (control.rank() == 1) rank_1_has_called = true;
      while (place == 4 && !rank_1_has_called) std::this_thread::yield(); // so that both ranks throw
      fail_at(3);
      fail_at(4, false);
      reduce.wait(work);
    });
    EXPECT_EQ(ended[1].error, "no data");
    if (place < 3) { // later, rank 0 has what it needs, or throws
      EXPECT_NE(ended[0].error.find("an exception has left the scope of a spar::nccl_stream"), std::string::npos)
          << place << ": " << ended[0].error;
    }
  }
}

/// A graph that is destroyed after its nccl_stream, for which NCCL would wait for ever.
TEST_F(stream_ordered_faults, of_graphs_that_live_too_long) {
  outcomes_on_devices(2, 6, [&](threads& control, outcome&) {
    std::unique_ptr<graph> once;
    const stream work;
    const device_array<float> x(gradient<float>(control.rank(), 0, n));
    {
      spar::nccl_stream order(control);
      auto reduce = reduction(order, topka);
      const spar::device_span values(x.data(), n, work);
      once = std::make_unique<graph>(work, [&] { reduce(values); });
      once->launch(work);
      reduce.wait(work);
      control.set_deadline(0.3);
    }
    EXPECT_TRUE(control.dead());
    once.reset();
    while (nccl_double::communicators() > 0) sched_yield();
    return std::vector<float>();
  });
}

/// Ranks that disagree get both options before the first call.
TEST_F(stream_ordered_faults, of_options_name_both) {
  const auto errors_contain = [&](const std::string& text, auto make) {
    for (const outcome& o : with_order(2, 1, [&](threads& control, auto& order) { make(control.rank(), order); }))
      EXPECT_NE(o.error.find(text), std::string::npos) << o.error;
  };
  errors_contain("60", [](rank_t rank, auto& order) {
    (void)spar::with_stream_ordered_feedback<float>(order, n + static_cast<std::uint64_t>(rank), topka);
  });
  errors_contain("average", [](rank_t rank, auto& order) {
    if (rank == 0)
      (void)spar::with_stream_ordered_feedback<float>(order, n, topka, spar::average{});
    else
      (void)spar::with_stream_ordered_feedback<float>(order, n, topka);
  });
  errors_contain("store", [](rank_t rank, auto& order) {
    if (rank == 0)
      (void)reduction(order, two_shot);
    else
      (void)reduction(order, spar::compose(spar::storage::as_bfloat16{}, spar::two_shot{.piece = 8}));
  });
  errors_contain("double", [](rank_t rank, auto& order) {
    if (rank == 0)
      (void)spar::with_stream_ordered_feedback<double>(order, n, topka);
    else
      (void)spar::with_stream_ordered_feedback<float>(order, n, topka);
  });
}

/// A bit of each byte of each message is damaged: the rank reports it, or computes with other values or fewer entries,
/// and accesses nothing else.
template <class Composition>
void damage_each_byte(spar_test::watchdog& guard, const Composition& parts) {
  SCOPED_TRACE(Composition::name);
  int reported = 0;
  for (std::uint64_t transfer = 1; transfer <= 4; ++transfer) {
    for (std::size_t byte = 0; byte < 200; byte += spar_test::runs_all_cases() ? 1 : 5) {
      guard.watch("transfer " + std::to_string(transfer) + ", byte " + std::to_string(byte));
      const auto ended = with_order(3, byte, [&](threads& control, auto& order) {
        const stream work;
        const device_array<float> x(gradient<float>(control.rank(), 0, n));
        const spar::device_span values(x.data(), n, work);
        auto reduce = reduction(order, parts);
        if constexpr (std::is_same_v<Composition, std::remove_const_t<decltype(ok_topk)>>) reduce(control, values);
        if (control.rank() == 1) nccl_double::damage(transfer, byte);
        reduce(values);
        reduce.wait(work);
      });
      reported += ended[1].error.empty() ? 0 : 1;
      for (const outcome& o : ended) {
        EXPECT_TRUE(o.error.empty() || o.error.find("a message of a call in a CUDA stream") != std::string::npos)
            << transfer << ", " << byte << ": " << o.error;
      }
    }
  }
  EXPECT_GE(reported, Composition::selects_entries ? 5 : 0);
}
TEST_F(stream_ordered_faults, of_messages) {
  damage_each_byte(guard_, topka);
  damage_each_byte(guard_, split);
  damage_each_byte(guard_, ok_topk);
  damage_each_byte(guard_, two_shot);
}

} // namespace
