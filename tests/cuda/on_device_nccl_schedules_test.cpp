// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory and calls on host memory in flight at the same time, over NCCL, in random schedules: each rank
// is late at other times, polls and ends its calls in another order, and the streams of the double advance at random.
#include "over_nccl.hpp"

#include <spar/cuda.hpp>
#include <spar/on_device.cuh>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <sched.h>

namespace {

using namespace over_nccl;
using cuda_double::device_array, cuda_double::stream;
using spar::compose, spar::rank_t;
using random_source = std::mt19937_64;

std::size_t up_to(random_source& random, std::size_t most) { return static_cast<std::size_t>(random() % (most + 1)); }

enum class kind {
  ring,
  doubling,
  rabenseifner,
  short_ring,
  short_doubling,
  qsgd_doubling,
  top_k,
  ok_top_k,
  staged,
  sparse
};

/// A call, equal on all ranks.
struct call {
  kind what{};
  std::size_t n = 0;
  std::uint64_t hosts = 0; // bit r: whether rank r has its values in host memory
};

/// The calls of a schedule. Every second one has payloads as large as the limit for small ones, or one value more or
/// less. A quarter of the calls are on host memory, a quarter on the host memory of some ranks.
std::vector<call> calls_of(random_source& random, rank_t ranks, std::size_t eager_bytes) {
  std::vector<call> calls(3 + up_to(random, 3));
  for (call& c : calls) {
    c.what = static_cast<kind>(up_to(random, static_cast<std::size_t>(kind::sparse)));
    const bool divides = c.what == kind::ring || c.what == kind::short_ring;
    const bool is_short = c.what == kind::short_ring || c.what == kind::short_doubling;
    const std::size_t payload = eager_bytes / (is_short ? 2 : 4) + up_to(random, 2); // values, and one too many
    c.n = random() % 2 == 0 ? up_to(random, 400)
                            : (payload > 0 ? payload - 1 : 0) * (divides ? static_cast<std::size_t>(ranks) : 1);
    const std::uint64_t where = random() % 4;
    c.hosts = c.what == kind::sparse || where == 0 ? UINT64_MAX : where == 1 ? random() : 0;
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
    return start(compose(spar::storage::bfloat16{}, spar::ring{.piece = 150}));
  case kind::short_doubling:
    return start(compose(spar::storage::half{}, spar::recursive_doubling{}));
  case kind::qsgd_doubling:
    return start(compose(spar::storage::qsgd<8>{.bucket = 64}, spar::recursive_doubling{.piece = 128}));
  case kind::top_k:
    return start(compose(spar::selector::exact_topk{.density = 0.3}, spar::split_allgather{}));
  case kind::ok_top_k:
    return start(compose(spar::selector::threshold_reuse{.density = 0.2}, spar::balanced_owners{}));
  default:
    return start(spar::ring{});
  }
}

/// A call of one rank.
class own_call {
 public:
  /// Allocates the memory of the call, which must not happen while NCCL works.
  own_call(const call& c, rank_t rank, bool on_host)
      : call_(c), on_host_(on_host || (c.hosts >> rank & 1) != 0), x_(values_of(rank, c.n)) {
    if (!on_host_) on_device_.emplace(std::vector<float>(c.n, 1));
  }
  void start(net_type& net, spar::on_device<net_type>& gpu, spar::staged<net_type>& staged, bool late) {
    if (call_.what == kind::sparse) {
      handle_.emplace<stream_handle>(spar::start_allreduce(net, spar::dense_view(x_), spar::split_allgather{}));
    } else if (on_host_) {
      handle_.emplace<host_handle>(
          start_by(call_.what, [&](auto by) { return spar::start_allreduce(net, std::span(x_), by); }));
    } else {
      if (late && call_.what != kind::staged)
        cuda_double::stall(work_); // until a stream or a rank waits for the values
      on_device_->write(work_, x_);
      const spar::device_span x(on_device_->data(), call_.n, work_);
      if (call_.what == kind::staged)
        spar::allreduce(staged, x, spar::ring{});
      else
        handle_.emplace<device_handle>(
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
    if (auto* call = std::get_if<stream_handle>(&handle_)) call->wait().to_dense(std::span(x_));
    if (auto* call = std::get_if<host_handle>(&handle_); call != nullptr && !drops) call->wait();
    if (auto* call = std::get_if<device_handle>(&handle_); call != nullptr && !drops) call->wait();
    handle_.emplace<std::monostate>();
    if (on_device_) x_ = on_device_->read(work_);
  }
  [[nodiscard]] const std::vector<float>& values() const { return x_; }

 private:
  using host_handle = spar::pending<net_type, void>;
  using stream_handle = spar::pending<net_type, spar::sparse_stream<float>>;
  using device_handle = spar::pending_on_device<spar::on_device<net_type>::port_type>;

  call call_;
  bool on_host_;
  std::vector<float> x_;
  stream work_;
  std::optional<device_array<float>> on_device_;
  std::variant<std::monostate, host_handle, stream_handle, device_handle> handle_; // the first to be destroyed
};

/// A random time: none, some turns of other threads, or up to 200 microseconds.
void be_late(random_source& random) {
  const std::uint64_t how = random() % 8;
  if (how == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  if (how < 4) {
    for (std::size_t turns = up_to(random, 20); turns > 0; --turns) sched_yield();
  }
}

/// Runs the calls of a schedule, of which all may be in flight. If `on_host`, on host memory alone.
std::vector<float> run_schedule(net_type& net, spar::on_device<net_type>& gpu, spar::staged<net_type>& staged,
                                const std::vector<call>& calls, random_source& random, bool on_host) {
  std::list<own_call> all;
  for (const call& c : calls) all.emplace_back(c, net.rank(), on_host);
  std::vector<own_call*> in_flight;
  for (own_call& own : all) {
    be_late(random);
    own.start(net, gpu, staged, random() % 4 == 0);
    in_flight.push_back(&own);
    for (std::size_t polls = up_to(random, 4); polls > 0; --polls)
      (void)in_flight[up_to(random, in_flight.size() - 1)]->done();
  }
  std::shuffle(in_flight.begin(), in_flight.end(), random);
  for (own_call* own : in_flight) {
    be_late(random);
    if (random() % 4 == 0) {
      while (!own->done()) sched_yield();
    }
    own->end(random() % 4 == 0);
  }
  std::vector<float> values;
  for (const own_call& own : all) values.insert(values.end(), own.values().begin(), own.values().end());
  return values;
}

/// Ten schedules on each communicator: 2000, in the quick set 60.
TEST_F(on_device_nccl, mixes_host_and_device_in_every_schedule) {
  constexpr std::uint64_t on_one_communicator = 10;
  const std::uint64_t communicators = spar_test::is_shortened ? 4 : spar_test::is_full() ? 200 : 6;
  std::uint64_t device_bytes = 0;
  for (std::uint64_t seed = 1; seed <= communicators && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<rank_t>(2 + seed % 4);
    constexpr std::size_t limits[] = {0, 400, 4096};
    const std::size_t eager_bytes = limits[seed % 3];
    std::vector<std::vector<call>> schedules;
    random_source common(seed);
    for (std::uint64_t i = 0; i < on_one_communicator; ++i) schedules.push_back(calls_of(common, ranks, eager_bytes));
    const auto run = [&](std::size_t eager, bool on_host) {
      return outcomes(ranks, seed, {.eager_bytes = eager}, [&](net_type& net) {
        net.set_checksums(seed % 8 == 7);
        random_source random(seed * 100 + static_cast<std::uint64_t>(net.rank()));
        spar::on_device gpu(net);
        spar::staged staged(net);
        std::vector<float> all;
        for (const auto& calls : schedules) {
          const auto values = run_schedule(net, gpu, staged, calls, random, on_host);
          all.insert(all.end(), values.begin(), values.end());
        }
        return all;
      });
    };
    const auto expected = run(SIZE_MAX, true), got = run(eager_bytes, false);
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(expected[r].error, "");
      EXPECT_EQ(got[r].error, "") << "rank " << r;
      EXPECT_TRUE(got[r].values == expected[r].values) << "rank " << r;
      device_bytes += got[r].did.bytes_sent;
    }
  }
  EXPECT_GT(device_bytes, 0U);
}

} // namespace
