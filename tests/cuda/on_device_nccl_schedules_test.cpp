// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory and calls on host memory in flight at the same time, in random schedules, for each way in
// which messages travel: each rank is late at other times, polls and ends its calls in another order, and the streams
// of the double advance at random. In some schedules, CUDA or NCCL fails on one rank.
#include "places.hpp"
#include "random_schedules.hpp"

#include <spar/cuda.hpp>
#include <spar/on_device.cuh>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sched.h>

namespace {

using namespace over_nccl;
using cuda_double::device_array, cuda_double::stream;
using spar::compose, spar::rank_t;

enum class kind {
  ring,
  doubling,
  rabenseifner,
  short_ring,
  short_doubling,
  qsgd_doubling,
  top_k,
  coded_top_k,
  ok_top_k,
  rounded_ok_top_k,
  staged,
  sparse
};

/// A call, equal on all ranks.
struct call {
  kind what{};
  std::size_t n = 0;
  std::uint64_t hosts = 0; // bit r: whether rank r has its values in host memory
};

/// How messages in device memory travel.
enum class way { by_nccl, lent, through_the_host };

/// The calls of a schedule. Every second one has payloads as large as the limit for small ones, or one value more or
/// less. A quarter of the calls are on host memory, a quarter on the host memory of some ranks, except over threads,
/// where all ranks of an `on_device` must have their values on devices.
std::vector<call> calls_of(random_source& random, rank_t ranks, std::size_t eager_bytes, way messages) {
  std::vector<call> calls(3 + up_to(random, 3));
  for (call& c : calls) {
    c.what = static_cast<kind>(up_to(random, static_cast<std::size_t>(kind::sparse)));
    const bool divides = c.what == kind::ring || c.what == kind::short_ring;
    const bool is_short = c.what == kind::short_ring || c.what == kind::short_doubling;
    const std::size_t payload = eager_bytes / (is_short ? 2 : 4) + up_to(random, 2); // values, and one too many
    c.n = random() % 2 == 0 ? up_to(random, 400)
                            : (payload > 0 ? payload - 1 : 0) * (divides ? static_cast<std::size_t>(ranks) : 1);
    const std::uint64_t where = random() % 4;
    const bool may_differ = messages == way::by_nccl || c.what == kind::staged;
    c.hosts = c.what == kind::sparse || where == 0 ? UINT64_MAX : where == 1 && may_differ ? random() : 0;
  }
  return calls;
}

/// Returns `start(algorithm)` for the algorithm of a call on dense values, from which some take the largest.
template <class Start>
auto start_by(kind what, Start start) {
  switch (what) {
  case kind::doubling:
    return start(spar::recursive_doubling{});
  case kind::rabenseifner:
    return start(spar::rabenseifner{});
  case kind::short_ring:
    return start(compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 150}));
  case kind::short_doubling:
    return start(compose(spar::storage::as_half{}, spar::recursive_doubling{}));
  case kind::qsgd_doubling:
    return start(compose(spar::storage::qsgd<8>{.bucket = 64}, spar::recursive_doubling{.piece = 128}));
  case kind::top_k:
    return start(compose(spar::selector::exact_topk{.density = 0.3}, spar::split_allgather{}));
  case kind::coded_top_k:
    return start(compose(spar::selector::exact_topk{.density = 0.3}, spar::storage::coded<>{.fast = true},
                         spar::recursive_doubling{}));
  case kind::rounded_ok_top_k:
    return start(compose(spar::selector::threshold_reuse{.density = 0.2}, spar::storage::coded<7>{.fast = true},
                         spar::balanced_owners{}));
  case kind::ok_top_k:
    return start(compose(spar::selector::threshold_reuse{.density = 0.2}, spar::balanced_owners{}));
  default:
    return start(spar::ring{});
  }
}

/// A call of one rank.
template <class Net>
class own_call {
 public:
  /// Allocates the memory of the call, which must not happen while NCCL works.
  own_call(const call& c, rank_t rank, bool on_host)
      : call_(c), on_host_(on_host || (c.hosts >> rank & 1) != 0), x_(values_of(rank, c.n)) {
    if (!on_host_) on_device_.emplace(std::vector<float>(c.n, 1));
  }
  void start(Net& net, spar::on_device<Net>& gpu, spar::staged<Net>& staged, bool late) {
    if (call_.what == kind::sparse) {
      handle_.template emplace<stream_handle>(
          spar::start_allreduce(net, spar::dense_view(x_), spar::split_allgather{}));
    } else if (on_host_) {
      handle_.template emplace<host_handle>(
          start_by(call_.what, [&](auto by) { return spar::start_allreduce(net, std::span(x_), by); }));
    } else {
      if (late && call_.what != kind::staged)
        cuda_double::stall(work_); // until a stream or a rank waits for the values
      on_device_->write(work_, x_);
      const spar::device_span x(on_device_->data(), call_.n, work_);
      if (call_.what == kind::staged)
        spar::allreduce(staged, x, spar::ring{});
      else
        handle_.template emplace<device_handle>(
            start_by(call_.what, [&](auto by) { return spar::start_allreduce(gpu, x, by); }));
    }
  }
  bool done() {
    if (auto* call = std::get_if<host_handle>(&handle_)) return call->done();
    if (auto* call = std::get_if<device_handle>(&handle_)) return call->done();
    if (auto* call = std::get_if<stream_handle>(&handle_)) return call->done();
    return true;
  }
  /// Waits for the call, or destroys the handle, which waits.
  void end(bool drops) {
    if (auto* call = std::get_if<stream_handle>(&handle_)) call->wait().to_dense(std::span(x_), spar::sum{});
    if (auto* call = std::get_if<host_handle>(&handle_); call != nullptr && !drops) call->wait();
    if (auto* call = std::get_if<device_handle>(&handle_); call != nullptr && !drops) call->wait();
    handle_.template emplace<std::monostate>();
    if (on_device_) x_ = on_device_->read(work_);
  }
  [[nodiscard]] const std::vector<float>& values() const { return x_; }

 private:
  using host_handle = spar::pending<Net, void>;
  using stream_handle = spar::pending<Net, spar::sparse_stream<float>>;
  using device_handle = spar::pending_on_device<typename spar::on_device<Net>::port_type>;

  call call_;
  bool on_host_;
  std::vector<float> x_;
  stream work_;
  std::optional<device_array<float>> on_device_;
  std::variant<std::monostate, host_handle, stream_handle, device_handle> handle_; // the first to be destroyed
};

/// Runs the calls of a schedule, of which all may be in flight. If `on_host`, on host memory alone.
template <class Net>
std::vector<float> run_schedule(Net& net, spar::on_device<Net>& gpu, spar::staged<Net>& staged,
                                const std::vector<call>& calls, random_source& random, bool on_host) {
  std::list<own_call<Net>> all;
  for (const call& c : calls) all.emplace_back(c, net.rank(), on_host);
  std::vector<own_call<Net>*> in_flight;
  for (own_call<Net>& own : all) {
    be_late(random);
    own.start(net, gpu, staged, random() % 4 == 0);
    in_flight.push_back(&own);
    for (std::size_t polls = up_to(random, 4); polls > 0; --polls)
      (void)in_flight[up_to(random, in_flight.size() - 1)]->done();
  }
  std::shuffle(in_flight.begin(), in_flight.end(), random);
  for (own_call<Net>* own : in_flight) {
    be_late(random);
    if (random() % 4 == 0) {
      while (!own->done()) sched_yield();
    }
    own->end(random() % 4 == 0);
  }
  std::vector<float> values;
  for (const own_call<Net>& own : all) values.insert(values.end(), own.values().begin(), own.values().end());
  return values;
}

/// Runs `program(net)` on each rank.
template <class Program>
std::vector<outcome> run_program(way messages, rank_t ranks, std::uint64_t seed, std::size_t eager_bytes,
                                 const Program& program) {
  cuda_double::let_peers_reach_each_other(messages == way::lent);
  if (messages == way::by_nccl) return outcomes(ranks, seed, {.eager_bytes = eager_bytes}, program);
  return outcomes_on_devices(ranks, seed, [&](spar::threads& net, outcome&) { return program(net); });
}

/// Runs schedules on each rank of a communicator of its own. If `on_host`, on host memory alone.
std::vector<outcome> run_schedules(way messages, rank_t ranks, std::uint64_t seed, std::size_t eager_bytes,
                                   const std::vector<std::vector<call>>& schedules, bool on_host) {
  const auto program = [&](auto& net) {
    net.set_checksums(seed % 8 == 7);
    random_source random(seed * 100 + static_cast<std::uint64_t>(net.rank()));
    spar::on_device gpu(net);
    EXPECT_EQ(gpu.lends(), messages == way::lent);
    spar::staged staged(net);
    std::vector<float> all;
    for (const auto& calls : schedules) {
      const auto values = run_schedule(net, gpu, staged, calls, random, on_host);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  return run_program(messages, ranks, seed, eager_bytes, program);
}

class schedules_by : public on_device_nccl, public testing::WithParamInterface<way> {};
INSTANTIATE_TEST_SUITE_P(each_way, schedules_by, testing::Values(way::by_nccl, way::lent, way::through_the_host));

/// How many schedules to run: SPAR_SCHEDULES, in the full set 1000 without sanitizers, and twice as many over NCCL;
/// otherwise 60, with sanitizers 40.
std::uint64_t schedules_of(way messages) {
  if (std::getenv("SPAR_SCHEDULES") == nullptr && !spar_test::is_full()) return spar_test::is_shortened ? 40 : 60;
  const std::uint64_t many = std::getenv("SPAR_SCHEDULES") != nullptr ? spar_test::schedules() : 1000;
  return messages == way::by_nccl ? 2 * many : many;
}
rank_t ranks_of(std::uint64_t seed) { return static_cast<rank_t>(2 + seed % 4); }
std::size_t eager_bytes_of(std::uint64_t seed) {
  constexpr std::size_t limits[] = {0, 400, 4096};
  return limits[seed % 3];
}

/// Ten schedules on each communicator.
TEST_P(schedules_by, mix_host_and_device_in_every_schedule) {
  constexpr std::uint64_t on_one_communicator = 10;
  const bool by_nccl = GetParam() == way::by_nccl;
  const std::uint64_t communicators = schedules_of(GetParam()) / on_one_communicator;
  std::uint64_t nccl_bytes = 0;
  for (std::uint64_t seed = 1; seed <= communicators && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const rank_t ranks = ranks_of(seed);
    const std::size_t eager_bytes = eager_bytes_of(seed);
    std::vector<std::vector<call>> schedules;
    random_source common(seed);
    for (std::uint64_t i = 0; i < on_one_communicator; ++i)
      schedules.push_back(calls_of(common, ranks, eager_bytes, GetParam()));
    const auto expected = run_schedules(GetParam(), ranks, seed, SIZE_MAX, schedules, true);
    const auto got = run_schedules(GetParam(), ranks, seed, eager_bytes, schedules, false);
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(expected[r].error, "");
      EXPECT_EQ(got[r].error, "") << "rank " << r;
      EXPECT_TRUE(got[r].values == expected[r].values) << "rank " << r;
      nccl_bytes += got[r].did.bytes_sent;
    }
  }
  EXPECT_EQ(nccl_bytes > 0, by_nccl);
}

/// Calls in flight on a communicator, on another one with the ranks in reverse order, and on one of two ranks.
TEST_F(on_device_nccl, lent_memory_is_read_on_several_communicators) {
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 20 : 5); ++seed) {
    cuda_double::reset(seed);
    cuda_double::let_peers_reach_each_other(true);
    spar::thread_group all(3), reversed(3), two(2);
    all.run([&](spar::threads& net) {
      cuda_double::set_device(net.rank());
      std::vector<spar::threads*> nets{&net, &reversed.rank(2 - net.rank())};
      if (net.rank() < 2) nets.push_back(&two.rank(net.rank()));
      for (spar::threads* const each : nets) each->set_deadline(deadline);
      spar_test::compare_calls_in_flight(nets, true, seed);
    });
  }
}

// --- failures ---

/// Makes CUDA or NCCL fail once on this rank, some time after now.
void plan_failure(random_source& random, way messages) {
  const std::uint64_t at = 1 + random() % 100;
  const std::uint64_t what = messages == way::by_nccl ? random() % 3 : 0;
  if (what == 0) cuda_double::fail_at(at);
  if (what == 1) nccl_double::fail_at(at);
  if (what == 2) nccl_double::fail_later_at(at);
}
void plan_no_failure() {
  constexpr std::uint64_t never = 1U << 30;
  cuda_double::fail_at(never);
  nccl_double::fail_at(never);
  nccl_double::fail_later_at(never);
}

/// How the calls of a schedule ended on a rank.
struct ends {
  std::vector<std::string> errors; // of each call, empty if there was none, and last of a call on the host
  std::vector<std::vector<float>> values;
  std::size_t in_flight = 0; // calls when the first error appeared
};

/// Like `run_schedule`, with a failure if `fails`.
template <class Net>
ends run_failing(Net& net, way messages, const std::vector<call>& calls, random_source& random, bool fails) {
  spar::on_device gpu(net);
  spar::staged staged(net);
  std::list<own_call<Net>> all;
  for (const call& c : calls) all.emplace_back(c, net.rank(), false);
  std::vector<own_call<Net>*> started;
  std::vector<std::size_t> order;
  ends its{.errors = std::vector<std::string>(calls.size() + 1), .values = {}};
  bool failed = false;
  std::size_t ended = 0;
  const auto note = [&](std::size_t number, auto action) {
    try {
      action();
    } catch (const spar::error& e) {
      if (!std::exchange(failed, true)) its.in_flight = started.size() - ended;
      its.errors[number] = e.what();
    }
  };
  spar_test::wait_for_all(net.size());
  if (fails) plan_failure(random, messages);
  for (own_call<Net>& own : all) {
    be_late(random);
    order.push_back(started.size());
    started.push_back(&own);
    note(order.back(), [&] { own.start(net, gpu, staged, random() % 4 == 0); });
    for (std::size_t polls = up_to(random, 4); polls > 0; --polls) {
      const std::size_t number = up_to(random, started.size() - 1);
      note(number, [&] { (void)started[number]->done(); });
    }
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t number : order) {
    be_late(random);
    note(number, [&] { started[number]->end(false); });
    ++ended;
  }
  plan_no_failure();
  float all_have_ended = 1; // finds a failure after the last call of this rank
  note(calls.size(), [&] { spar::allreduce(net, std::span(&all_have_ended, 1), spar::recursive_doubling{}); });
  for (const own_call<Net>& own : all) its.values.push_back(own.values());
  return its;
}

/// A quarter as many schedules, each on a communicator of its own.
TEST_P(schedules_by, end_on_all_ranks_if_cuda_or_nccl_fails) {
  std::uint64_t failures = 0, with_several_in_flight = 0;
  const std::uint64_t schedules = schedules_of(GetParam()) / 4;
  for (std::uint64_t seed = 1; seed <= schedules && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const rank_t ranks = ranks_of(seed);
    random_source common(seed);
    const auto calls = calls_of(common, ranks, eager_bytes_of(seed), GetParam());
    const auto failing = static_cast<rank_t>(common() % static_cast<std::uint64_t>(ranks));
    const auto expected = run_schedules(GetParam(), ranks, seed, SIZE_MAX, {calls}, true);
    std::vector<ends> got(static_cast<std::size_t>(ranks));
    const auto program = [&](auto& net) {
      random_source random(seed * 100 + static_cast<std::uint64_t>(net.rank()));
      got[static_cast<std::size_t>(net.rank())] = run_failing(net, GetParam(), calls, random, net.rank() == failing);
      return std::vector<float>();
    };
    const auto ranks_did = run_program(GetParam(), ranks, seed, eager_bytes_of(seed), program);
    const auto has_failed = [](const ends& its) { return its.errors.back() != ""; };
    const bool failed = has_failed(got[static_cast<std::size_t>(failing)]);
    for (std::size_t r = 0; r < got.size(); ++r) {
      SCOPED_TRACE(testing::Message() << "rank " << r);
      EXPECT_EQ(has_failed(got[r]), failed);
      EXPECT_EQ(ranks_did[r].error, "");
      EXPECT_EQ(ranks_did[r].did.open_groups, 0);
      EXPECT_EQ(ranks_did[r].did.aborts, failed ? ranks_did[r].did.joins : 0U);
      std::vector<float>::const_iterator next = expected[r].values.begin();
      for (std::size_t c = 0; c < calls.size(); ++c) {
        const std::string& error = got[r].errors[c];
        const std::vector<float>& values = got[r].values[c];
        if (error.empty()) {
          EXPECT_TRUE(std::equal(values.begin(), values.end(), next)) << "call " << c;
        } else {
          EXPECT_NE(error.find(" failed: "), std::string::npos) << error;
          EXPECT_NE(error.find("a planned error"), std::string::npos) << error;
        }
        next += static_cast<std::ptrdiff_t>(values.size());
      }
    }
    failures += failed ? 1 : 0;
    with_several_in_flight += got[static_cast<std::size_t>(failing)].in_flight > 1 ? 1 : 0;
  }
  EXPECT_GE(failures, schedules / 2);
  EXPECT_GE(with_several_in_flight, schedules / 4);
}

} // namespace
