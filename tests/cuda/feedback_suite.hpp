// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device against error feedback on the host: kernels run by fibres, in the streams of a double of
// the CUDA runtime.
#pragma once

#include "on_ranks.hpp"
#include "runtime_double.hpp"

#include "on_host.hpp"
#include "support/extent.hpp"

#include <spar/cuda_feedback.cuh>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace feedback_test {

using cuda_double::device_array, cuda_double::stream;
using spar::selector::exact_topk, spar::selector::threshold_reuse;

class feedback : public testing::Test {
 protected:
  void SetUp() override { on_host::put = cuda_double::put; }
  void TearDown() override { on_host::put = nullptr; }
};

/// A gradient: few large values, ties and zeros of both signs, and a NaN in step 2.
template <class T>
std::vector<T> gradient(spar::rank_t rank, int step, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 100 + step));
  std::student_t_distribution<float> heavy(2);
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = i % 7 == 0 ? T(-0.0F) : i % 5 == 0 ? T(1.5F) : T(heavy(random));
  if (n > 3) x[2] = std::numeric_limits<T>::max(); // the sums of integers wrap
  if (step == 2 && n > 3 && std::numeric_limits<T>::has_quiet_NaN) x[3] = std::numeric_limits<T>::quiet_NaN();
  return x;
}

template <class T>
std::vector<std::uint64_t> bits(std::span<const T> values) {
  std::vector<std::uint64_t> all;
  for (const T v : values) {
    if constexpr (sizeof(T) == 4)
      all.push_back(std::bit_cast<std::uint32_t>(v));
    else
      all.push_back(std::bit_cast<std::uint64_t>(v));
  }
  return all;
}

/// The bits of the sums of all steps, then those of the residual, then the numbers of the state.
using result = std::vector<std::vector<std::uint64_t>>;

template <class State>
std::vector<std::uint64_t> words(State state) {
  spar::detail::state_writer all;
  state.shared_state(all), state.own_state(all);
  return all.words;
}

inline constexpr int steps = 6; // calls of a composition with one residual

/// What a rank gets on the host.
template <class T, class Index, class Net, class Composition, class Op>
result on_the_host(Net& net, std::size_t n, const Composition& parts, Op op) {
  auto reduce = spar::with_error_feedback<T, Index>(parts);
  result all;
  for (int step = 0; step < steps; ++step) {
    auto x = gradient<T>(net.rank(), step, n);
    reduce(net, std::span(x), op);
    all.push_back(bits(std::span<const T>(x)));
  }
  all.push_back(bits(reduce.residual()));
  all.push_back(words(reduce.current_state()));
  return all;
}
/// What all ranks get on the host. `prepare(net)` runs before the calls.
template <class T, class Index, class Composition, class Op, class Prepare>
std::vector<result> on_the_host(spar::rank_t ranks, std::size_t n, const Composition& parts, Op op, Prepare prepare) {
  return on_ranks(ranks, [&](spar::threads& net) {
    prepare(net);
    return on_the_host<T, Index>(net, n, parts, op);
  });
}
/// What a rank gets with values in device memory; `by` is a communicator or an `on_device`.
template <class T, class Index, class By, class Composition, class Op>
result on_a_device(By& by, spar::rank_t rank, std::size_t n, const Composition& parts, Op op) {
  auto reduce = spar::with_device_feedback<T, Index>(parts);
  EXPECT_EQ(reduce.residual(), nullptr);
  const stream works[2];
  const device_array<T> x(std::vector<T>(n, -1));
  result all;
  for (int step = 0; step < steps; ++step) {
    const stream& work = works[step / 3];      // changes the stream once
    x.write(work, gradient<T>(rank, step, n)); // the call must wait for it
    reduce(by, spar::device_span(x.data(), n, work), op);
    all.push_back(bits(std::span<const T>(x.read(work)))); // not before the last copy
  }
  all.push_back(bits(std::span<const T>(cuda_double::values_at(reduce.residual(), n, works[1]))));
  all.push_back(words(reduce.current_state()));
  return all;
}

/// Six calls of a composition with a residual on the host and on the device: equal bits of sums, residuals and states.
template <class T, class Index = std::uint32_t, class Composition, class Op = spar::sum>
void compare(spar::rank_t ranks, std::size_t n, const Composition& parts, Op op = {}) {
  SCOPED_TRACE(testing::Message() << Composition::name << ", " << ranks << " ranks, " << n << " values");
  const auto got =
      on_ranks(ranks, [&](spar::threads& net) { return on_a_device<T, Index>(net, net.rank(), n, parts, op); });
  EXPECT_TRUE(got == (on_the_host<T, Index>(ranks, n, parts, op, [](spar::threads&) {})));
}

/// Makes the calls that an `on_device` makes, because random rounding depends on the number of a call.
inline const auto same_number_of_calls = [](spar::threads& net) { const spar::on_device gpu(net); };

/// Calls of a composition with a residual on the host, and on a device on which the entries stay: equal bits of sums,
/// residuals and states, whether ranks read each other's memory or messages travel through the host.
template <class T, class Index = std::uint32_t, class Composition, class Op = spar::sum>
void compare_entries(spar::rank_t ranks, std::size_t n, const Composition& parts, Op op = {}) {
  SCOPED_TRACE(testing::Message() << Composition::name << ", " << ranks << " ranks, " << n << " values");
  const auto expected = on_the_host<T, Index>(ranks, n, parts, op, same_number_of_calls);
  static bool lends = false; // changes from call to call
  lends = !lends;
  for (int times = spar_test::runs_all_cases() ? 2 : 1; times > 0; --times, lends = !lends) {
    cuda_double::let_peers_reach_each_other(lends);
    const auto got = on_ranks(ranks, [&](spar::threads& net) {
      if (!lends) cuda_double::set_device(net.rank());
      spar::on_device gpu(net);
      EXPECT_EQ(gpu.lends(), lends || ranks == 1);
      return on_a_device<T, Index>(gpu, net.rank(), n, parts, op);
    });
    EXPECT_TRUE(got == expected) << (lends ? "lent" : "through the host");
  }
  cuda_double::let_peers_reach_each_other(true);
}

/// Where a step reduces the entries: on the host, or on the device.
struct on_the_communicator {
  spar::threads& operator()(spar::threads& net) const { return net; }
};
struct on_the_device {
  auto operator()(spar::threads& net) const { return spar::on_device(net); }
};

/// Makes each call of the CUDA runtime in the second step of `parts` fail once, on rank 1: every rank ends in an error
/// with the name of CUDA's error, in the step or in the next call, and the residual and the state of a failed step
/// stay. A failure without an error, because a wait took the place of an event, changes no sum. Returns the number of
/// failures with an error.
template <class Composition, class Where = on_the_communicator>
std::uint64_t fail_each_cuda_call(spar::rank_t ranks, std::size_t n, const Composition& parts, Where where = {}) {
  std::uint64_t failures = 0;
  std::vector<std::vector<std::uint64_t>> expected(static_cast<std::size_t>(ranks)); // the sums, without a failure
  const std::uint64_t step = spar_test::runs_all_cases() ? 1 : 5; // a prime, so that all kinds of calls fail
  for (std::uint64_t call = 0;; call += step) {
    cuda_double::reset(call);
    std::atomic<bool> reached = false;
    const auto errors = on_ranks(ranks, [&](spar::threads& net) -> std::string {
      net.set_deadline(20);
      const stream work;
      const device_array<float> x(gradient<float>(net.rank(), 0, n));
      auto reduce = spar::with_device_feedback<float>(parts);
      auto&& by = where(net);
      reduce(by, spar::device_span(x.data(), n, work));
      const auto before = reduce.save();
      const std::uint64_t calls = cuda_double::calls();
      if (net.rank() == 1 && call > 0) cuda_double::fail_at(call);
      std::string error;
      const auto ends = [&](auto make_call) {
        try {
          make_call();
        } catch (const spar::cuda_error& e) {
          error = e.what();
        } catch (const spar::peer_failed& e) {
          error = std::string("peer: ") + e.what();
        }
      };
      ends([&] { reduce(by, spar::device_span(x.data(), n, work)); });
      if (net.rank() == 1 && cuda_double::calls() - calls >= call) reached = true;
      cuda_double::fail_at(1U << 30);
      if (!error.empty()) {
        EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "call " << call;
        EXPECT_EQ(reduce.save(), before) << "call " << call;
      } else {
        const auto sums = bits(std::span<const float>(x.read(work)));
        auto& own = expected[static_cast<std::size_t>(net.rank())];
        if (call == 0) own = sums;
        EXPECT_TRUE(sums == own) << "call " << call;
        float all_have_ended = 1;
        ends([&] { spar::allreduce(net, std::span(&all_have_ended, 1), spar::ring{}); });
      }
      return error;
    });
    if (!reached) return failures;
    const bool silent = std::all_of(errors.begin(), errors.end(), [](const auto& error) { return error.empty(); });
    if (call == 0 || silent) continue;
    ++failures;
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("failed: cudaErrorUnknown, a planned error"), std::string::npos)
          << "call " << call << ": " << error;
    }
  }
}

} // namespace feedback_test
