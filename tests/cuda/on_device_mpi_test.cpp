// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory over MPI, also one whose library takes pointers to device memory, and over NCCL and MPI,
// on doubles: see mpi_double.cpp and nccl_mpi_double.cpp.
#include "accidents.hpp"
#include "mpi_double.hpp"
#include "refusals.hpp"
#include "support/failures.hpp"
#include "support/messages.hpp"

#include <spar/mpi.hpp>
#include <spar/on_device.cuh>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;

std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank)) % 1000) / 7;
  return x;
}

/// Compares two calls in device memory with two calls on the host.
template <class Algorithm>
void compare(spar::mpi& net, std::size_t n, const Algorithm& algorithm) {
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
  mpi_double::takes_device_memory = takes_device_memory;
  spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 6000, .device_memory = allowed});
  net.set_checksums(checksums);
  const bool in_place = takes_device_memory && allowed && !checksums && net.size() > 1;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    cuda_double::reset(seed);
    mpi_double::sent = mpi_double::received = 0;
    compare(net, 100, spar::ring{});
    compare(net, 500, spar::recursive_doubling{});
    EXPECT_EQ(mpi_double::sent + mpi_double::received, 0);
    compare(net, 4000, spar::ring{});
    // Two calls of 2 (P - 1) messages, each of 16000 / P bytes in segments of 6000.
    const int segments = net.size() == 1 ? 0 : (16000 / net.size() + 5999) / 6000;
    EXPECT_EQ(mpi_double::sent, in_place ? 2 * 2 * (net.size() - 1) * segments : 0);
    EXPECT_EQ(mpi_double::received, mpi_double::sent);
    compare(net, 6001, spar::recursive_doubling{});
    compare(net, 6001, spar::compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 3000}));
    mpi_double::sent = 0;
    const spar::selector::exact_topk select{.k = 3000};
    compare(net, 5000, spar::compose(select, spar::recursive_doubling{}));
    EXPECT_EQ(mpi_double::sent > 0, in_place); // pieces of 3000 indices and 3000 values
    compare(net, 5000, spar::compose(select, spar::balanced_owners{}));
  }
  on_host::put = nullptr;
}

/// Each rank decides for its own memory, also for parts of the communicator.
TEST(on_device_mpi, lets_ranks_differ) {
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  mpi_double::takes_device_memory = true;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  spar::mpi world(MPI_COMM_WORLD, {.segment_bytes = 1 << 20, .device_memory = rank % 2 == 0});
  spar::mpi net = world.split(0, rank);
  mpi_double::sent = mpi_double::received = 0;
  compare(net, 2000 * static_cast<std::size_t>(net.size()), spar::ring{});
  const int messages = rank % 2 == 0 ? 2 * 2 * (net.size() - 1) : 0; // two calls
  EXPECT_EQ(mpi_double::sent, messages);
  EXPECT_EQ(mpi_double::received, messages);
  on_host::put = nullptr;
}

/// A decorator that only observes leaves large messages in device memory, one that reads payloads does not.
TEST(on_device_mpi, sends_from_device_memory_below_counting_and_tracing) {
  on_host::put = cuda_double::put;
  cuda_double::reset(1);
  mpi_double::takes_device_memory = true;
  spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 1 << 20});
  const std::size_t n = 2000 * static_cast<std::size_t>(net.size());
  const auto messages = static_cast<std::uint64_t>(2 * (net.size() - 1));
  const auto call = [&](auto& decorated) {
    const stream work;
    const device_array<float> x(values_of(net.rank(), n));
    spar::on_device gpu(decorated);
    mpi_double::sent = mpi_double::received = 0;
    spar::allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{});
    return x.read(work);
  };
  spar::counting counted(net);
  spar::tracing traced(counted);
  const auto got = call(traced);
  EXPECT_EQ(counted.sent(), (spar::counted_traffic{.messages = messages, .bytes = messages * 8000}));
  EXPECT_EQ(counted.received(), counted.sent());
  EXPECT_EQ(mpi_double::sent, static_cast<int>(messages));
  EXPECT_EQ(mpi_double::received, static_cast<int>(messages));
  spar::faulty reads_payloads(net, {});
  EXPECT_EQ(call(reads_payloads), got);
  EXPECT_EQ(mpi_double::sent + mpi_double::received, 0);
  on_host::put = nullptr;
}

TEST(on_device_mpi, sends_large_messages_from_device_memory) { run(true, false); }
TEST(on_device_mpi, copies_messages_to_the_host_if_mpi_cannot_take_them) { run(false, false); }
TEST(on_device_mpi, copies_messages_to_the_host_if_the_program_says_so) { run(true, false, false); }
TEST(on_device_mpi, copies_messages_to_the_host_for_their_checksums) { run(true, true); }

/// Calls in flight on a communicator, on another one with the ranks in reverse order, and on a part.
TEST(on_device_mpi, has_calls_in_flight_on_several_communicators) {
  on_host::put = cuda_double::put;
  mpi_double::takes_device_memory = true;
  spar::mpi world(MPI_COMM_WORLD, {.segment_bytes = 6000});
  spar::mpi reversed = world.split(0, -world.rank()), part = world.split(world.rank() % 2, world.rank());
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    cuda_double::reset(seed);
    mpi_double::sent = 0;
    for (spar::mpi* const net : {&world, &reversed, &part}) net->set_deadline(20);
    spar_test::compare_calls_in_flight<spar::mpi>({&world, &reversed, &part}, false, seed);
    EXPECT_EQ(mpi_double::sent > 0, world.size() > 1);
  }
  on_host::put = nullptr;
}

// --- failures, as in runtime/failure ---

/// Large messages are sent from device memory and received there. The ranks are the processes, at least three.
struct by_mpi {
  template <class Program>
  static void in_group(spar::rank_t ranks, bool synchronous, const Program& program) {
    spar::mpi world(MPI_COMM_WORLD);
    if (world.size() < 3 || synchronous) return; // MPI decides when a send ends
    spar::mpi net = world.split(world.rank() < ranks ? 0 : 1, world.rank());
    if (world.rank() < ranks) program(net);
    MPI_Barrier(MPI_COMM_WORLD); // messages to a failed rank stay in memory until it destroys the communicator
  }
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    spar_test::device_rank<Net> gpu(net, net);
    body(gpu);
  }
};

struct device_failures_over_mpi : testing::Test {
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::reset(1);
    mpi_double::takes_device_memory = true;
    mpi_double::sent = 0;
  }
  void TearDown() override {
    on_host::put = nullptr;
    EXPECT_EQ(cuda_double::device_allocations(), 0U);
    EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  }
};

TEST_F(device_failures_over_mpi, name_a_silent_rank) { spar_test::a_silent_rank_is_named<by_mpi>(); }
TEST_F(device_failures_over_mpi, are_not_of_a_late_rank) {
  spar_test::the_deadline_is_not_over_for_a_rank_that_is_only_late<by_mpi>();
}
TEST_F(device_failures_over_mpi, reach_all_ranks) {
  spar_test::an_abort_reaches_those_who_wait_and_those_who_call_later<by_mpi>();
}
TEST_F(device_failures_over_mpi, by_a_cancelled_call) { spar_test::a_cancelled_call_ends_on_all_ranks<by_mpi>(); }
TEST_F(device_failures_over_mpi, let_values_be_freed) {
  spar_test::values_may_be_freed_once_their_call_has_failed<by_mpi>();
}

/// Messages of every form, in whole or in segments.
TEST_F(device_failures_over_mpi, change_no_message) {
  for (const bool takes : {true, false}) {
    mpi_double::takes_device_memory = takes;
    mpi_double::sent = mpi_double::received = 0;
    spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = takes ? 6000U : 1U << 20});
    net.set_deadline(20);
    if (net.size() == 1) return;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      cuda_double::reset(seed);
      spar_test::exchange_messages<by_mpi>(net, seed);
    }
    EXPECT_EQ(mpi_double::sent > 0, takes);
    EXPECT_EQ(mpi_double::received > 0, takes);
  }
}

/// Runs `program(net, x, no_more_failures)` with a failure that `plan(number)` plans on one rank, another one each
/// time, for each number and later only for some, until `count()`, which counts the places of failures on this rank,
/// says that none is left. Checks that all ranks end in an error with the `text`, unless CUDA failed where spar waits
/// instead, and returns how often they did.
template <class Program>
int fail_everywhere(const std::string& text, void (*plan)(std::uint64_t), std::uint64_t (*count)(), Program program) {
  spar::mpi world(MPI_COMM_WORLD);
  int failures = 0, any[] = {1, 0}; // whether a rank has reached the place, and whether one has failed
  for (std::uint64_t at = 1; any[0] != 0; at += 1 + at / 10) {
    SCOPED_TRACE(testing::Message() << "number " << at);
    cuda_double::reset(at);
    nccl_double::reset(at);
    std::string error = "no error";
    bool reached = false;
    {
      spar::mpi net = world.split(0, world.rank());
      net.set_deadline(20);
      const bool fails = world.rank() == static_cast<spar::rank_t>(at) % world.size();
      const device_array<float> x(values_of(net.rank(), 4000));
      const std::uint64_t before = count();
      if (fails) plan(at);
      const auto look = [&] { reached = reached || (fails && count() - before >= at); };
      try {
        program(net, spar::device_span(x.data(), 4000), [&] {
          look();
          cuda_double::fail_at(1U << 30);
          nccl_double::reset(at);
        });
      } catch (const std::exception& e) {
        error = e.what();
        look();
      }
      cuda_double::fail_at(1U << 30);
      nccl_double::receive_what_is_left(); // also a barrier, as in by_mpi
    }
    const int own[] = {reached ? 1 : 0, error != "no error" ? 1 : 0};
    MPI_Allreduce(own, any, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    EXPECT_EQ(own[1], any[1]) << error;
    EXPECT_EQ(error.find(text) != std::string::npos, any[1] != 0) << error;
    EXPECT_LE(any[1], any[0]) << error;
    failures += any[1];
  }
  return failures;
}
/// Two calls; `no_more_failures()` is called before a last one on the host, which finds a late failure.
template <class Net, class Done>
void make_calls(Net& net, spar::device_span<float> x, Done no_more_failures) {
  spar::on_device gpu(net);
  spar::allreduce(gpu, x, spar::compose(spar::storage::as_half{}, spar::ring{}));
  spar::allreduce(gpu, x, spar::compose(spar::selector::exact_topk{.k = 1500}, spar::recursive_doubling{}));
  no_more_failures();
  float all_have_ended = 1;
  spar::allreduce(net, std::span(&all_have_ended, 1), spar::recursive_doubling{});
}

constexpr char by_cuda[] = "failed: cudaErrorUnknown, a planned error";

TEST_F(device_failures_over_mpi, end_on_all_ranks_if_cuda_fails) {
  const int failures = fail_everywhere(by_cuda, &cuda_double::fail_at, &cuda_double::calls,
                                       [](spar::mpi& net, auto x, auto done) { make_calls(net, x, done); });
  EXPECT_GE(failures, 10);
  EXPECT_EQ(mpi_double::sent > 0, spar::mpi(MPI_COMM_WORLD).size() > 1);
}

// --- accidents of messages ---

/// The ends of all ranks, those of other ranks without texts and values.
std::vector<spar_test::two_ends> of_all_ranks(const spar_test::two_ends& own) {
  std::uint64_t mine[] = {static_cast<std::uint64_t>(own.first.how), static_cast<std::uint64_t>(own.second.how),
                          own.received};
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<std::uint64_t> numbers(3 * static_cast<std::size_t>(size));
  MPI_Allgather(mine, 3, MPI_UINT64_T, numbers.data(), 3, MPI_UINT64_T, MPI_COMM_WORLD);
  std::vector<spar_test::two_ends> ends(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < ends.size(); ++r) {
    ends[r].first.how = static_cast<spar_test::ending>(numbers[3 * r]);
    ends[r].second.how = static_cast<spar_test::ending>(numbers[3 * r + 1]);
    ends[r].received = numbers[3 * r + 2];
  }
  ends[static_cast<std::size_t>(rank)] = own;
  return ends;
}

/// Runs `make_two_calls(...)` by `run(what, message)`, on all ranks, for each message that rank 1 receives in the first
/// call, and checks the ends. `means(message)` is what the accident means for this message.
template <class Run, class Means>
void expect_right_end(spar_test::accident what, bool checksums, Run run, Means means) {
  const auto all_ranks = [&](spar_test::accident happens, std::uint64_t message) {
    return of_all_ranks(run(happens, message));
  };
  on_host::put = cuda_double::put;
  const auto clean = all_ranks(spar_test::accident::none, 1);
  spar_test::judge_accident(spar_test::accident::none, checksums, clean, clean);
  EXPECT_GE(clean[1].received, 1U);
  for (std::uint64_t message = 1; message <= clean[1].received; ++message) {
    SCOPED_TRACE(testing::Message() << "accident " << static_cast<int>(what) << ", message " << message);
    const auto ends = all_ranks(what, message);
    spar_test::judge_accident(means(message), checksums, ends, clean);
  }
  on_host::put = nullptr;
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
}

using spar_test::accident;

/// Messages in device memory, which the MPI library damages or loses.
template <class Algorithm, class Means>
void expect_right_end_over_mpi(const Algorithm& by, accident what, Means means) {
  mpi_double::takes_device_memory = true;
  const auto run = [&](accident happens, std::uint64_t message) {
    cuda_double::reset(message);
    spar_test::two_ends ends;
    {
      spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 6000});
      net.set_deadline(happens == accident::lost ? 0.3 : 20);
      const auto happen = [&] {
        if (happens == accident::lost)
          mpi_double::lose(static_cast<int>(message));
        else if (happens != accident::none)
          mpi_double::damage(static_cast<int>(message), spar_test::damaged_byte);
      };
      mpi_double::received = 0;
      ends = spar_test::make_two_calls(net, 12'000, by, happen, [] { return mpi_double::received; });
      MPI_Barrier(MPI_COMM_WORLD); // as in by_mpi
    }
    return ends;
  };
  expect_right_end(what, false, run, means);
}

int ranks_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

const auto entries = spar::compose(spar::selector::exact_topk{.k = 1200}, spar::recursive_doubling{});

TEST(device_accidents_over_mpi, of_indices_are_found_on_the_device) {
  if (ranks_of_world() < 2) return;
  expect_right_end_over_mpi(entries, accident::entry,
                            [](std::uint64_t message) { return message % 2 == 1 ? accident::entry : accident::value; });
}
TEST(device_accidents_over_mpi, of_values_go_unnoticed_without_checksums) {
  if (ranks_of_world() < 2) return;
  expect_right_end_over_mpi(spar::ring{}, accident::value, [](std::uint64_t) { return accident::value; });
}
TEST(device_accidents_over_mpi, that_lose_a_message_end_in_a_timeout) {
  if (ranks_of_world() < 2) return;
  expect_right_end_over_mpi(spar::ring{}, accident::lost, [](std::uint64_t) { return accident::lost; });
  expect_right_end_over_mpi(entries, accident::lost, [](std::uint64_t) { return accident::lost; });
}

// --- a rank that stops ---

/// Makes a call, which rank 1 leaves alone after `polls` polls: until the call has ended on all other ranks if
/// `for_ever`, otherwise for a moment. Then makes a call on the host.
template <class Algorithm>
spar_test::two_ends stop_in_a_call(const Algorithm& by, std::uint64_t polls, bool for_ever) {
  constexpr std::size_t n = 12'000;
  cuda_double::reset(polls);
  spar_test::two_ends its;
  spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 6000});
  std::vector<float> expected = values_of(net.rank(), n);
  spar::allreduce(net, std::span(expected), by);
  net.set_deadline(for_ever ? 0.3 : 20);
  bool has_met = !for_ever;
  const auto meet = [&] {
    if (!std::exchange(has_met, true)) MPI_Barrier(MPI_COMM_WORLD);
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
      its.first.how = spar_test::ending::right;
      its.values = x.read(work);
      EXPECT_TRUE(its.values == expected);
    } catch (...) {
      spar_test::note_error(its.first);
    }
    meet();
  }
  try {
    float one = 1;
    spar::allreduce(net, std::span(&one, 1), spar::ring{});
    its.second.how = spar_test::ending::right;
  } catch (...) {
    spar_test::note_error(its.second);
  }
  MPI_Barrier(MPI_COMM_WORLD); // as in by_mpi
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
    spar_test::judge_accident(accident::none, false, late, late);
    const auto ends = of_all_ranks(stop_in_a_call(by, polls, true));
    failed = 0;
    for (const auto& its : ends) failed += its.first.how == spar_test::ending::right ? 0 : 1;
    spar_test::judge_accident(failed != 0 ? accident::lost : accident::none, false, ends, no_accident);
    failures += failed != 0 ? 1 : 0;
  }
  EXPECT_GE(failures, 2);
}
TEST_F(device_failures_over_mpi, follow_from_a_rank_that_stops) {
  if (ranks_of_world() < 2) return;
  expect_right_end_if_a_rank_stops(spar::ring{});
  expect_right_end_if_a_rank_stops(entries);
  EXPECT_GT(mpi_double::sent, 0);
}

/// With checksums, payloads travel through the host.
TEST(device_accidents_over_mpi, of_values_are_found_with_checksums) {
  if (ranks_of_world() < 2) return;
  const auto run = [](accident happens, std::uint64_t message) {
    cuda_double::reset(message);
    spar_test::two_ends ends;
    {
      spar::mpi net(MPI_COMM_WORLD, {.segment_bytes = 6000});
      std::vector<spar::fault> plan;
      if (happens != accident::none && net.rank() == 1)
        plan = {{.what = spar::fault::kind::corrupt_payload, .message = message - 1, .bit = 31}};
      spar::faulty<spar::mpi> bad(net, plan);
      bad.set_deadline(20);
      bad.set_checksums(true);
      ends = spar_test::make_two_calls(bad, 12'000, spar::ring{}, [] {}, [&] { return bad.received(); });
      MPI_Barrier(MPI_COMM_WORLD);
    }
    return ends;
  };
  expect_right_end(accident::value, true, run, [](std::uint64_t) { return accident::value; });
}

// --- staged, and NCCL ---

TEST(staged_over_mpi, has_the_bits_and_the_messages_of_the_host) {
  spar::mpi world(MPI_COMM_WORLD);
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
  mpi_double::sent = mpi_double::received = 0;
  for (const std::size_t n : {0U, 1U, 5000U}) {
    compare_staged(n, spar::ring{});
    compare_staged(n, spar::compose(spar::selector::exact_topk{.density = 0.1}, spar::recursive_doubling{}));
  }
  EXPECT_EQ(mpi_double::sent + mpi_double::received, 0); // no pointer to device memory reaches MPI
}

TEST(staged_over_mpi, lets_calls_on_the_host_refuse_device_memory) {
  spar::mpi world(MPI_COMM_WORLD);
  const spar::staged gpu(world);
  auto reduce = spar::with_error_feedback<float>(entries);
  auto solo = spar::partial_allreduce<float>(world, 3000, spar::solo{}, spar::ring{});
  spar_test::refuses_device_memory(world, reduce, solo);
}

/// Calls on host memory and on device memory, of which all are in flight, and which ranks end in different orders.
TEST(nccl_over_mpi, has_the_bits_of_mpi) {
  on_host::put = cuda_double::put;
  spar::mpi control(MPI_COMM_WORLD);
  constexpr std::size_t n = 3000;
  const auto by = spar::compose(spar::selector::exact_topk{.k = 400}, spar::split_allgather{});
  std::vector<float> dense = values_of(control.rank(), n), sparse = dense;
  spar::allreduce(control, std::span(dense), spar::ring{});
  spar::allreduce(control, std::span(sparse), by);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    cuda_double::reset(seed);
    spar::nccl net(control, {.eager_bytes = seed % 3 * 1000});
    spar::on_device gpu(net);
    using device_handle = spar::pending_on_device<decltype(gpu)::port_type>;
    std::vector<float> z = values_of(net.rank(), n);
    const stream work;
    const device_array<float> x(z), y(z);
    {
      auto first = spar::start_allreduce(net, std::span(z), spar::ring{});
      std::list<device_handle> others;
      others.push_back(spar::start_allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{}));
      others.push_back(spar::start_allreduce(gpu, spar::device_span(y.data(), n, work), by));
      if (net.rank() % 2 == 0) first.wait();
      if (net.rank() % 3 == 0) others.reverse();
      for (device_handle& call : others) call.wait();
      first.wait();
    }
    EXPECT_EQ(z, dense);
    EXPECT_EQ(x.read(work), dense);
    EXPECT_EQ(y.read(work), sparse);
  }
  on_host::put = nullptr;
}

TEST_F(device_failures_over_mpi, end_on_all_ranks_if_nccl_fails) {
  const auto calls = [](spar::mpi& control, auto x, auto done) {
    spar::nccl net(control, {.eager_bytes = 1000});
    make_calls(net, x, done);
  };
  using nccl_double::of_this_thread;
  const int least = ranks_of_world() > 1 ? 15 : 2;
  EXPECT_GE(
      fail_everywhere(
          " failed: a planned error of NCCL", &nccl_double::fail_at, +[] { return of_this_thread().calls; }, calls),
      least);
  EXPECT_GE(fail_everywhere(
                " failed: a planned error of a transfer", &nccl_double::fail_later_at,
                +[] { return of_this_thread().polls; }, calls),
            least);
  EXPECT_GE(fail_everywhere(by_cuda, &cuda_double::fail_at, &cuda_double::calls, calls), least);
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(of_this_thread().aborts + of_this_thread().destroys, of_this_thread().joins);
}

/// Transfers that NCCL damages or loses.
template <class Algorithm>
void expect_right_end_over_nccl(const Algorithm& by, accident what, bool checksums) {
  const auto run = [&](accident happens, std::uint64_t transfer) {
    cuda_double::reset(transfer);
    nccl_double::reset(transfer);
    spar_test::two_ends ends;
    spar::mpi control(MPI_COMM_WORLD);
    {
      spar::nccl net(control, {.eager_bytes = 0});
      net.set_deadline(happens == accident::lost ? 0.3 : 20);
      net.set_checksums(checksums);
      const auto happen = [&] {
        if (happens == accident::lost)
          nccl_double::lose(transfer);
        else if (happens != accident::none)
          nccl_double::damage(transfer, spar_test::damaged_byte);
      };
      ends = spar_test::make_two_calls(net, 12'000, by, happen, [] { return nccl_double::of_this_thread().receives; });
    }
    nccl_double::receive_what_is_left(); // also a barrier, as in by_mpi
    return ends;
  };
  expect_right_end(what, checksums, run, [&](std::uint64_t) { return what; });
  EXPECT_EQ(nccl_double::communicators(), 0U);
}

TEST(device_accidents_over_nccl_and_mpi, end_as_among_threads) {
  if (ranks_of_world() < 2) return;
  expect_right_end_over_nccl(entries, accident::entry, false);
  expect_right_end_over_nccl(spar::ring{}, accident::value, false);
  expect_right_end_over_nccl(spar::ring{}, accident::value, true);
  expect_right_end_over_nccl(spar::ring{}, accident::lost, false);
  expect_right_end_over_nccl(entries, accident::lost, true);
}

} // namespace
