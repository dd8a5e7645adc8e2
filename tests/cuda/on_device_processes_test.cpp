// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory over MPI and UCX, also if the library takes pointers to device memory, on doubles: see
// mpi_double.cpp and ucx_double.cpp.
#include "library_double.hpp"
#include "on_processes.hpp"
#include "refusals.hpp"
#include "support/failures.hpp"
#include "support/messages.hpp"

#include <spar/on_device.cuh>
#include <spar/storage/coded.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using cuda_double::device_array, cuda_double::stream;

constexpr spar::storage::coded<> coded{.fast = true};
constexpr spar::storage::coded<7> rounded{.fast = true};

/// The options of a rank, with segments of this size over MPI.
auto with(std::size_t segment_bytes, bool device_memory = true) {
#ifdef SPAR_WITH_MPI
  return spar::mpi_options{.segment_bytes = segment_bytes, .device_memory = device_memory};
#else
  static_cast<void>(segment_bytes);
  return spar::ucx_options{.device_memory = device_memory};
#endif
}

/// Over UCX, until the end of the scope: new communicators leave payloads in host memory of this many bytes and more at
/// the sender.
class rendezvous_from {
 public:
  explicit rendezvous_from(const char* bytes) { setenv("UCX_RNDV_THRESH", bytes, 1); }
  rendezvous_from(const rendezvous_from&) = delete;
  ~rendezvous_from() { unsetenv("UCX_RNDV_THRESH"); }
};

/// Compares two calls in device memory with two calls on the host.
template <class Algorithm>
void compare(communicator& net, std::size_t n, const Algorithm& algorithm) {
  SCOPED_TRACE(testing::Message() << n << " values");
  std::vector<float> expected = values_of(net.rank(), n);
  for (int call = 0; call < 2; ++call) spar::allreduce(net, std::span(expected), algorithm);
  const stream work;
  const device_array<float> x(std::vector<float>(n, 1));
  spar::on_device gpu(net);
  EXPECT_FALSE(gpu.lends());
  x.write(work, values_of(net.rank(), n));
  for (int call = 0; call < 2; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm);
  EXPECT_EQ(x.read(work), expected);
}

/// Makes calls with small messages, which are part of an envelope, and with large ones, which travel in segments.
void run(bool takes_device_memory, bool checksums, bool allowed = true) {
  on_host::put = cuda_double::put;
  library_double::takes_device_memory = takes_device_memory;
  communicator net(meeting(), with(6000, allowed));
  net.set_checksums(checksums);
  const bool in_place = takes_device_memory && allowed && !checksums && net.size() > 1;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    cuda_double::reset(seed);
    library_double::sent = library_double::received = 0;
    compare(net, 100, spar::ring{});
    compare(net, 500, spar::recursive_doubling{});
    EXPECT_EQ(library_double::sent + library_double::received, 0);
    compare(net, 4000, spar::ring{});
    // Two calls of 2 (P - 1) messages, each of 16000 / P bytes, over MPI in segments of 6000.
    const int segments = !over_mpi || net.size() == 1 ? 1 : (16000 / net.size() + 5999) / 6000;
    EXPECT_EQ(library_double::sent, in_place ? 2 * 2 * (net.size() - 1) * segments : 0);
    EXPECT_EQ(library_double::received, library_double::sent);
    compare(net, 6001, spar::recursive_doubling{});
    compare(net, 6001, spar::compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 3000}));
    library_double::sent = 0;
    const spar::selector::exact_topk select{.k = 3000};
    compare(net, 5000, spar::compose(select, spar::recursive_doubling{}));
    // Pieces of 3000 indices and 3000 values, which UCX gets from the host; more than two ranks also send dense sums.
    if (over_mpi || net.size() <= 2) {
      EXPECT_EQ(library_double::sent > 0, in_place && over_mpi);
    }
    compare(net, 5000, spar::compose(select, spar::balanced_owners{}));
  }
  on_host::put = nullptr;
}

/// Entries travel as bytes of a code, in one piece.
TEST(on_device_processes, sends_codes_of_entries) {
  on_host::put = cuda_double::put;
  for (const bool takes : {true, false}) {
    library_double::takes_device_memory = takes;
    communicator net(meeting(), with(6000));
    const spar::selector::exact_topk select{.k = 3000};
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      cuda_double::reset(seed);
      library_double::sent = 0;
      compare(net, 20'000, spar::compose(select, coded, spar::recursive_doubling{}));
      EXPECT_EQ(library_double::sent > 0, takes && net.size() > 1);
      compare(net, 20'000, spar::compose(select, coded, spar::balanced_owners{}));
      compare(net, 20'000, spar::compose(select, rounded, spar::split_allgather{}));
    }
  }
  on_host::put = nullptr;
}

/// Each rank decides for its own memory, also for parts of the communicator.
TEST(on_device_processes, lets_ranks_differ) {
  const rendezvous_from all("1000"); // a message from host memory goes to its place on the device
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  library_double::takes_device_memory = true;
  const spar::rank_t rank = rank_of_process();
  communicator world(meeting(), with(1 << 20, rank % 2 == 0));
  communicator net = world.split(0, rank);
  library_double::sent = library_double::received = 0;
  compare(net, 2000 * static_cast<std::size_t>(net.size()), spar::ring{});
  const int messages = rank % 2 == 0 ? 2 * 2 * (net.size() - 1) : 0; // two calls
  EXPECT_EQ(library_double::sent, messages);
  EXPECT_EQ(library_double::received, messages);
  on_host::put = nullptr;
}

/// A decorator that only observes leaves large messages in device memory, one that reads payloads does not.
TEST(on_device_processes, sends_from_device_memory_below_counting_and_tracing) {
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  library_double::takes_device_memory = true;
  communicator net(meeting(), with(1 << 20));
  const std::size_t n = 2000 * static_cast<std::size_t>(net.size());
  const auto messages = static_cast<std::uint64_t>(2 * (net.size() - 1));
  const auto call = [&](auto& decorated) {
    const stream work;
    const device_array<float> x(values_of(net.rank(), n));
    spar::on_device gpu(decorated);
    library_double::sent = library_double::received = 0;
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    return x.read(work);
  };
  spar::counting counted(net);
  spar::tracing traced(counted);
  const auto got = call(traced);
  EXPECT_EQ(counted.sent(), (spar::counted_traffic{.messages = messages, .bytes = messages * 8000}));
  EXPECT_EQ(counted.received(), counted.sent());
  EXPECT_EQ(library_double::sent, static_cast<int>(messages));
  EXPECT_EQ(library_double::received, static_cast<int>(messages));
  spar::faulty reads_payloads(net, {});
  EXPECT_EQ(call(reads_payloads), got);
  EXPECT_EQ(library_double::sent + library_double::received, 0);
  on_host::put = nullptr;
}

TEST(on_device_processes, sends_large_messages_from_device_memory) { run(true, false); }
TEST(on_device_processes, copies_messages_to_the_host_if_the_library_cannot_take_them) { run(false, false); }
TEST(on_device_processes, copies_messages_to_the_host_if_the_program_says_so) { run(true, false, false); }
TEST(on_device_processes, copies_messages_to_the_host_for_their_checksums) { run(true, true); }

/// Calls in flight on a communicator, on another one with the ranks in reverse order, and on a part.
TEST(on_device_processes, has_calls_in_flight_on_several_communicators) {
  on_host::put = cuda_double::put;
  library_double::takes_device_memory = true;
  communicator world(meeting(), with(6000));
  communicator reversed = world.split(0, -world.rank()), part = world.split(world.rank() % 2, world.rank());
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    cuda_double::reset(seed);
    library_double::sent = 0;
    for (communicator* const net : {&world, &reversed, &part}) net->set_deadline(20);
    compare_calls_in_flight<communicator>({&world, &reversed, &part}, false, seed);
    EXPECT_EQ(library_double::sent > 0, world.size() > 1);
  }
  on_host::put = nullptr;
}

// --- failures, as in runtime/failure ---

/// Large messages are sent from device memory and received there. The ranks are the processes, at least three.
struct by_processes {
  template <class Program>
  static void in_group(spar::rank_t ranks, bool synchronous, const Program& program) {
    communicator world(meeting());
    if (world.size() < 3 || synchronous) return; // the library decides when a send ends
    communicator net = world.split(world.rank() < ranks ? 0 : 1, world.rank());
    if (world.rank() < ranks) program(net);
    wait_for_all(); // messages to a failed rank stay in memory until it destroys the communicator
  }
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    device_rank<Net> gpu(net, net);
    body(gpu);
  }
};

struct device_failures_over_processes : testing::Test {
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::reset(1);
    library_double::takes_device_memory = true;
    library_double::sent = 0;
  }
  void TearDown() override {
    on_host::put = nullptr;
    EXPECT_EQ(cuda_double::device_allocations(), 0U);
    EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  }
};

TEST_F(device_failures_over_processes, name_a_silent_rank) { a_silent_rank_is_named<by_processes>(); }
TEST_F(device_failures_over_processes, are_not_of_a_late_rank) {
  the_deadline_is_not_over_for_a_rank_that_is_only_late<by_processes>();
}
TEST_F(device_failures_over_processes, reach_all_ranks) {
  an_abort_reaches_those_who_wait_and_those_who_call_later<by_processes>();
}
TEST_F(device_failures_over_processes, by_a_cancelled_call) { a_cancelled_call_ends_on_all_ranks<by_processes>(); }
TEST_F(device_failures_over_processes, let_values_be_freed) {
  values_may_be_freed_once_their_call_has_failed<by_processes>();
}

/// Messages of every form, in whole or in segments, copied on their way or not.
TEST_F(device_failures_over_processes, change_no_message) {
  for (const bool takes : {true, false}) {
    const rendezvous_from all(takes ? "1000" : "128k");
    library_double::takes_device_memory = takes;
    library_double::sent = library_double::received = 0;
    communicator net(meeting(), with(takes ? 6000U : 1U << 20));
    net.set_deadline(20);
    if (net.size() == 1) return;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      cuda_double::reset(seed);
      exchange_messages<by_processes>(net, seed);
    }
    EXPECT_EQ(library_double::sent > 0, takes);
    EXPECT_EQ(library_double::received > 0, takes);
  }
}

TEST_F(device_failures_over_processes, end_on_all_ranks_if_cuda_fails) {
  const int failures = fail_everywhere(by_cuda, &cuda_double::fail_at, &cuda_double::calls,
                                       [](communicator& net, auto x, auto done) { make_calls(net, x, done); });
  EXPECT_GE(failures, 10);
  EXPECT_EQ(library_double::sent > 0, number_of_processes() > 1);
}

// --- accidents of messages ---

/// Messages in device memory, which the library damages or loses.
template <class Algorithm, class Means>
void expect_right_end_over_processes(const Algorithm& by, accident what, Means means,
                                     std::size_t segment_bytes = 6000) {
  library_double::takes_device_memory = true;
  const auto run = [&](accident happens, std::uint64_t message) {
    cuda_double::reset(message);
    two_ends ends;
    {
      communicator net(meeting(), with(segment_bytes));
      net.set_deadline(happens == accident::lost ? 0.3 : 20);
      const auto happen = [&] {
        if (happens == accident::lost)
          library_double::lose(static_cast<int>(message));
        else if (happens != accident::none)
          library_double::damage(static_cast<int>(message), damaged_byte(happens));
      };
      library_double::received = 0;
      ends = make_two_calls(net, 12'000, by, happen, [] { return library_double::received; });
      wait_for_all(); // as in by_processes
    }
    return ends;
  };
  expect_right_end(what, false, run, means);
}

const auto entries = spar::compose(spar::selector::exact_topk{.k = 1200}, spar::recursive_doubling{});

TEST(device_accidents_over_processes, of_indices_are_found_on_the_device) {
  if (number_of_processes() < 2 || !over_mpi) return; // over UCX, entries travel through the host
  expect_right_end_over_processes(entries, accident::entry, [](std::uint64_t message) {
    return message % 2 == 1 ? accident::entry : accident::value;
  });
}
/// Each code is one segment.
TEST(device_accidents_over_processes, of_codes_are_found_on_the_device) {
  if (number_of_processes() < 2) return;
  expect_right_end_over_processes(
      spar::compose(spar::selector::exact_topk{.k = 3000}, coded, spar::recursive_doubling{}), accident::code,
      [](std::uint64_t) { return accident::code; }, 1 << 20);
}
TEST(device_accidents_over_processes, of_values_go_unnoticed_without_checksums) {
  if (number_of_processes() < 2) return;
  expect_right_end_over_processes(spar::ring{}, accident::value, [](std::uint64_t) { return accident::value; });
}
TEST(device_accidents_over_processes, that_lose_a_message_end_in_a_timeout) {
  if (number_of_processes() < 2) return;
  expect_right_end_over_processes(spar::ring{}, accident::lost, [](std::uint64_t) { return accident::lost; });
  if (over_mpi) expect_right_end_over_processes(entries, accident::lost, [](std::uint64_t) { return accident::lost; });
}

// --- a rank that stops ---

/// Makes a call, which rank 1 leaves alone after `polls` polls: until the call has ended on all other ranks if
/// `for_ever`, otherwise for a moment. Then makes a call on the host.
template <class Algorithm>
two_ends stop_in_a_call(const Algorithm& by, std::uint64_t polls, bool for_ever) {
  constexpr std::size_t n = 12'000;
  cuda_double::reset(polls);
  two_ends its;
  communicator net(meeting(), with(6000));
  std::vector<float> expected = values_of(net.rank(), n);
  spar::allreduce(net, std::span(expected), by);
  net.set_deadline(for_ever ? 0.3 : 20);
  bool has_met = !for_ever;
  const auto meet = [&] {
    if (!std::exchange(has_met, true)) wait_for_all();
  };
  {
    const stream work;
    const device_array<float> x(values_of(net.rank(), n));
    spar::on_device gpu(net);
    try {
      auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), n, work), by);
      if (net.rank() == 1) {
        while (polls > 0 && !call.done()) --polls;
        meet();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      call.wait();
      its.first.how = ending::right;
      its.values = x.read(work);
      EXPECT_TRUE(its.values == expected);
    } catch (...) {
      note_error(its.first);
    }
    meet();
  }
  try {
    float one = 1;
    spar::allreduce(net, std::span(&one, 1), spar::ring{});
    its.second.how = ending::right;
  } catch (...) {
    note_error(its.second);
  }
  wait_for_all(); // as in by_processes
  return its;
}

/// A rank stops at more and more places of a call, up to its end.
template <class Algorithm>
void expect_right_end_if_a_rank_stops(const Algorithm& by) {
  const auto no_accident = of_all_ranks(stop_in_a_call(by, 0, false));
  int failures = 0;
  for (std::uint64_t polls = 0, failed = 1; failed != 0; polls = 3 * polls + 1) {
    SCOPED_TRACE(testing::Message() << polls << " polls");
    ASSERT_LT(polls, 1U << 20);
    const auto late = of_all_ranks(stop_in_a_call(by, polls, false));
    judge_accident(accident::none, false, late, late);
    const auto ends = of_all_ranks(stop_in_a_call(by, polls, true));
    failed = 0;
    for (const auto& its : ends) failed += its.first.how == ending::right ? 0 : 1;
    judge_accident(failed != 0 ? accident::lost : accident::none, false, ends, no_accident);
    failures += failed != 0 ? 1 : 0;
  }
  EXPECT_GE(failures, 2);
}
TEST_F(device_failures_over_processes, follow_from_a_rank_that_stops) {
  // Over UCX, the abort of another rank arrives behind the last messages of that rank, with which the call may succeed.
  if (number_of_processes() < 2 || !over_mpi) return;
  expect_right_end_if_a_rank_stops(spar::ring{});
  expect_right_end_if_a_rank_stops(entries);
  EXPECT_GT(library_double::sent, 0);
}

/// With checksums, payloads travel through the host.
TEST(device_accidents_over_processes, of_values_are_found_with_checksums) {
  if (number_of_processes() < 2) return;
  const auto run = [](accident happens, std::uint64_t message) {
    cuda_double::reset(message);
    two_ends ends;
    {
      communicator net(meeting(), with(6000));
      std::vector<spar::fault> plan;
      if (happens != accident::none && net.rank() == 1)
        plan = {{.what = spar::fault::kind::corrupt_payload, .message = message - 1, .bit = 31}};
      spar::faulty<communicator> bad(net, plan);
      bad.set_deadline(20);
      bad.set_checksums(true);
      ends = make_two_calls(bad, 12'000, spar::ring{}, [] {}, [&] { return bad.received(); });
      wait_for_all();
    }
    return ends;
  };
  expect_right_end(accident::value, true, run, [](std::uint64_t) { return accident::value; });
}

// --- staged, and NCCL ---

TEST(staged_over_processes, has_the_bits_and_the_messages_of_the_host) {
  communicator world(meeting());
  const auto compare_staged = [&](std::size_t n, const auto& algorithm) {
    SCOPED_TRACE(testing::Message() << n << " values");
    std::vector<float> expected = values_of(world.rank(), n);
    spar::counting on_host(world);
    spar::allreduce(on_host, std::span(expected), algorithm);
    const stream work;
    const device_array<float> x(values_of(world.rank(), n));
    spar::counting counted(world);
    spar::staged gpu(counted);
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm);
    EXPECT_EQ(x.read(work), expected);
    EXPECT_EQ(counted.sent(), on_host.sent());
    EXPECT_EQ(counted.received(), on_host.received());
  };
  library_double::sent = library_double::received = 0;
  for (const std::size_t n : {0U, 1U, 5000U}) {
    compare_staged(n, spar::ring{});
    compare_staged(n, spar::compose(spar::selector::exact_topk{.density = 0.1}, spar::recursive_doubling{}));
  }
  EXPECT_EQ(library_double::sent + library_double::received, 0); // no pointer to device memory reaches the library
}

TEST(staged_over_processes, lets_calls_on_the_host_refuse_device_memory) {
  communicator world(meeting());
  const spar::staged gpu(world);
  auto reduce = spar::with_error_feedback<float>(entries);
  auto solo = spar::partial_allreduce<float>(world, 3000, spar::solo{}, spar::ring{});
  refuses_device_memory(world, reduce, solo);
}

} // namespace
} // namespace spar_test
