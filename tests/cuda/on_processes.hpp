// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Failures and accidents of calls on device memory whose ranks are processes.
#pragma once

#include "accidents.hpp"
#include "support/processes.hpp"

#include <spar/on_device.cuh>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

inline std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank)) % 1000) / 7;
  return x;
}

/// The numbers `own` of all ranks, without spar.
using own_numbers = std::array<std::uint64_t, 3>;
inline std::vector<own_numbers> of_all_ranks(const own_numbers& own) {
  std::vector<own_numbers> all(static_cast<std::size_t>(number_of_processes()), own);
  for (spar::rank_t r = 0; r < number_of_processes(); ++r) take_from(r, std::span(all[static_cast<std::size_t>(r)]));
  return all;
}
/// The ends of all ranks, those of other ranks without texts and values.
inline std::vector<two_ends> of_all_ranks(const two_ends& own) {
  std::vector<two_ends> ends;
  for (const own_numbers& its : of_all_ranks(own_numbers{static_cast<std::uint64_t>(own.first.how),
                                                         static_cast<std::uint64_t>(own.second.how), own.received})) {
    two_ends& end = ends.emplace_back();
    end.first.how = static_cast<ending>(its[0]);
    end.second.how = static_cast<ending>(its[1]);
    end.received = its[2];
  }
  ends[static_cast<std::size_t>(rank_of_process())] = own;
  return ends;
}

/// The library below spar, if it is not to fail.
struct sound_library {
  static void reset(std::uint64_t) {}
  static void end_run() { // messages to a failed rank stay in memory until it destroys the communicator
    if (over_mpi) wait_for_all();
  }
};

/// Runs `program(net, x, no_more_failures)` with a failure that `plan(number)` plans on one rank, another one each
/// time, for each number and later only for some, until `count()`, which counts the places of failures on this rank,
/// says that none is left. Checks that all ranks end in an error with the `text`, unless CUDA failed where spar waits
/// instead, and returns how often they did.
template <class Library = sound_library, class Program>
int fail_everywhere(const std::string& text, void (*plan)(std::uint64_t), std::uint64_t (*count)(), Program program) {
  communicator world(meeting());
  int failures = 0;
  bool any_reached = true; // whether a rank has reached the place
  for (std::uint64_t at = 1; any_reached; at += 1 + at / 10) {
    SCOPED_TRACE(testing::Message() << "number " << at);
    cuda_double::reset(at);
    Library::reset(at);
    std::string error = "no error";
    bool reached = false;
    {
      communicator net = world.split(0, world.rank());
      net.set_deadline(20);
      const bool fails = world.rank() == static_cast<spar::rank_t>(at) % world.size();
      const cuda_double::device_array<float> x(values_of(net.rank(), 9000)); // halves of a third have more than 4 KiB
      const std::uint64_t before = count();
      if (fails) plan(at);
      const auto look = [&] { reached = reached || (fails && count() - before >= at); };
      try {
        program(net, spar::device_span(x.data(), 9000), [&] {
          look();
          cuda_double::fail_at(1U << 30);
          Library::reset(at);
        });
      } catch (const std::exception& e) {
        error = e.what();
        look();
      }
      cuda_double::fail_at(1U << 30);
      Library::end_run();
    }
    bool any_failed = false;
    any_reached = false;
    for (const own_numbers& its : of_all_ranks(own_numbers{reached ? 1U : 0U, error != "no error" ? 1U : 0U})) {
      any_reached = any_reached || its[0] != 0;
      any_failed = any_failed || its[1] != 0;
    }
    EXPECT_EQ(error != "no error", any_failed) << error;
    EXPECT_EQ(error.find(text) != std::string::npos, any_failed) << error;
    EXPECT_TRUE(any_reached || !any_failed) << error;
    failures += any_failed ? 1 : 0;
  }
  return failures;
}
/// Three calls; `no_more_failures()` is called before a last one on the host, which finds a late failure.
template <class Net, class Done>
void make_calls(Net& net, spar::device_span<float> x, Done no_more_failures) {
  spar::on_device gpu(net);
  spar::allreduce(gpu, x, spar::compose(spar::storage::as_half{}, spar::ring{}));
  const spar::selector::exact_topk select{.k = 1500};
  spar::allreduce(gpu, x, spar::compose(select, spar::recursive_doubling{}));
  spar::allreduce(gpu, x, spar::compose(select, spar::storage::coded<7>{.fast = true}, spar::recursive_doubling{}));
  no_more_failures();
  float all_have_ended = 1;
  spar::allreduce(net, std::span(&all_have_ended, 1), spar::recursive_doubling{});
}
inline constexpr char by_cuda[] = "failed: cudaErrorUnknown, a planned error";

/// Runs `make_two_calls(...)` by `run(what, message)`, on all ranks, for each message that rank 1 receives in the first
/// call, and checks the ends. `means(message)` is what the accident means for this message.
template <class Run, class Means>
void expect_right_end(accident what, bool checksums, Run run, Means means) {
  const auto on_all_ranks = [&](accident happens, std::uint64_t message) {
    return of_all_ranks(run(happens, message));
  };
  on_host::put = cuda_double::put;
  const auto clean = on_all_ranks(accident::none, 1);
  judge_accident(accident::none, checksums, clean, clean);
  EXPECT_GE(clean[1].received, 1U);
  for (std::uint64_t message = 1; message <= clean[1].received; ++message) {
    SCOPED_TRACE(testing::Message() << "accident " << static_cast<int>(what) << ", message " << message);
    const auto ends = on_all_ranks(what, message);
    judge_accident(means(message), checksums, ends, clean);
  }
  on_host::put = nullptr;
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
}

} // namespace spar_test
