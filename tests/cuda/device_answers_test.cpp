// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank whose call needs an answer from the device, such as a number of entries, goes on with its other calls until
// the device has answered.
#include "on_ranks.hpp"
#include "runtime_double.hpp"

#include "on_host.hpp"

#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/on_device.cuh>
#include <spar/system/published.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sched.h>

namespace {

using cuda_double::device_array;
using spar::compose, spar::selector::exact_topk, spar::storage::as_bfloat16;

class device_answers : public testing::Test {
 protected:
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::reset(1);
    cuda_double::let_peers_reach_each_other(true);
  }
  void TearDown() override { on_host::put = nullptr; }
};

/// Holds back all later work in a stream until it is opened. Opens by itself after 20 seconds, so that a rank that
/// blocks fails the test, and does not hang.
class gate {
  using clock = std::chrono::steady_clock;
  struct state {
    std::atomic<bool> open = false, late = false;
    clock::time_point latest = clock::now() + std::chrono::seconds(20);

    bool is_open() {
      if (!open && clock::now() > latest) open = late = true;
      return open;
    }
  };

 public:
  explicit gate(cudaStream_t stream) {
    cuda_double::put_when(stream, [held = state_] { return held->is_open(); }, [] {});
  }
  void open() { state_->open = true; }
  [[nodiscard]] bool was_late() const { return state_->late; }

 private:
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 101);
  return x;
}

constexpr std::size_t n = 300;

/// The device of rank 0 answers `given` only after another call, `other(net, gpu, y)`, where `gpu` is a second object
/// and `y` has three values in device memory.
template <class Algorithm, class Other>
void other_call_goes_on(const Algorithm& given, Other other) {
  SCOPED_TRACE(Algorithm::name);
  constexpr spar::rank_t ranks = 2;
  const auto expected = on_ranks(ranks, [&](spar::threads& net) {
    auto x = values_of(net.rank(), n);
    spar::allreduce(net, std::span(x), given);
    return x;
  });
  const auto got = on_ranks(ranks, [&](spar::threads& net) {
    spar::on_device gpu(net), second(net);
    const device_array<float> x(values_of(net.rank(), n)), y({1, 2, 3});
    std::optional<gate> held;
    if (net.rank() == 0) held.emplace(gpu.transport().work().stream());
    auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), n), given);
    other(net, second, y);
    if (held) {
      EXPECT_FALSE(call.done());
      EXPECT_FALSE(held->was_late()) << "the rank has blocked";
      held->open();
    }
    call.wait();
    return x.read(nullptr);
  });
  EXPECT_EQ(got, expected);
}

template <class Algorithm>
void other_calls_go_on(const Algorithm& given) {
  other_call_goes_on(given, [](auto& net, auto&, auto&) {
    float one = 1;
    spar::allreduce(net, std::span(&one, 1), spar::ring{});
    EXPECT_EQ(one, 2);
  });
  other_call_goes_on(given, [](auto&, auto& gpu, auto& y) {
    spar::allreduce(gpu, spar::device_span(y.data(), 3), spar::ring{});
    EXPECT_EQ(y.read(nullptr), (std::vector<float>{2, 4, 6}));
  });
}

TEST_F(device_answers, other_calls_go_on_until_a_number_of_entries_is_known) {
  other_calls_go_on(spar::ok_topk_allreduce<>{.select = {.k = 20}});
  const spar::tree_plans plans(spar::tree::flat(2));
  other_calls_go_on(compose(exact_topk{.k = 20}, spar::on_tree(plans), spar::chains{}));
#if SPAR_ALL_CASES
  other_calls_go_on(compose(exact_topk{.k = 20}, spar::recursive_doubling{}));
  other_calls_go_on(compose(exact_topk{.k = 20}, spar::split_allgather{}));
#endif
}

TEST_F(device_answers, other_calls_go_on_until_a_codec_knows_whether_it_can_encode) {
  other_calls_go_on(compose(as_bfloat16{}, spar::ring{.piece = 64}));
#if SPAR_ALL_CASES
  other_calls_go_on(compose(as_bfloat16{}, spar::recursive_doubling{.piece = 64}));
#endif
  spar::tree_node root;
  for (const spar::rank_t rank : {0, 1}) root.children.emplace_back().rank = rank;
  const spar::tree hosts(root);
  const spar::tree_plans plans(hosts);
  other_calls_go_on(spar::flexreduce(plans, as_bfloat16{}));
}

/// Rank 1 begins the call on the host only after the call on the device, for which rank 0 never waits before.
TEST_F(device_answers, are_polled_while_the_program_waits_for_a_call_on_the_host) {
  on_ranks(2, [&](spar::threads& net) {
    net.set_deadline(10);
    spar::on_device gpu(net);
    const device_array<float> x(values_of(net.rank(), n));
    auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), n),
                                      compose(exact_topk{.k = 20}, spar::recursive_doubling{}));
    if (net.rank() == 1) call.wait();
    float one = 1;
    spar::allreduce(net, std::span(&one, 1), spar::ring{});
    EXPECT_EQ(one, 2);
    call.wait();
    return 0;
  });
}

const auto top_k = compose(exact_topk{.k = 20}, spar::recursive_doubling{});

/// Starts a call whose answer the device of rank 0 holds back, and then calls `then(net, call, held)` there. After rank
/// 0 has started the call, calls `otherwise(net, call)` on rank 1, which then frees nothing before rank 0 has opened
/// the gate, because the double waits for all streams then.
template <class Algorithm, class Then, class Else>
void while_an_answer_is_awaited(const Algorithm& given, Then then, Else otherwise) {
  SCOPED_TRACE(Algorithm::name);
  std::atomic<bool> started = false, ended = false;
  on_ranks(2, [&](spar::threads& net) {
    spar::on_device gpu(net);
    const device_array<float> x(values_of(net.rank(), n));
    std::optional<gate> held;
    if (net.rank() == 0) held.emplace(gpu.transport().work().stream());
    auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), n), given);
    if (held) {
      started = true;
      then(net, call, *held);
      ended = true;
    } else {
      while (!started) sched_yield();
      otherwise(net, call);
      while (!ended) sched_yield();
    }
    return 0;
  });
}

/// The rank whose device fails gets the error itself, although its other coroutines learn of the failure before.
template <class Algorithm>
void error_of_cuda_ends_the_call(const Algorithm& given) {
  while_an_answer_is_awaited(
      given,
      [](spar::threads&, auto& call, gate& held) {
        EXPECT_FALSE(call.done());
        cuda_double::fail_at(2); // after `wait` has asked for the current device
        held.open();
        try {
          call.wait();
          ADD_FAILURE() << "no error";
        } catch (const spar::cuda_error& e) {
          EXPECT_EQ(std::string(e.what()), "cudaEventQuery failed: cudaErrorUnknown, a planned error");
        }
      },
      [](spar::threads&, auto& call) {
        try {
          call.wait();
          ADD_FAILURE() << "no error";
        } catch (const spar::peer_failed& e) {
          EXPECT_NE(std::string(e.what()).find("cudaEventQuery failed: cudaErrorUnknown, a planned error"),
                    std::string::npos)
              << e.what();
        }
      });
}

TEST_F(device_answers, an_error_of_cuda_ends_the_call_on_all_ranks) {
  error_of_cuda_ends_the_call(top_k);
  error_of_cuda_ends_the_call(compose(as_bfloat16{}, spar::ring{.piece = 64}));
  spar::tree_node root;
  for (const spar::rank_t rank : {0, 1}) root.children.emplace_back().rank = rank;
  const spar::tree hosts(root);
  const spar::tree_plans plans(hosts);
  error_of_cuda_ends_the_call(spar::flexreduce(plans, as_bfloat16{}));
}

/// `abort` returns when this rank uses no buffers of other ranks any more, also if its device is late.
TEST_F(device_answers, abort_waits_for_the_device) {
  std::atomic<bool> ended = false;
  while_an_answer_is_awaited(
      top_k,
      [&](spar::threads& net, auto& call, gate& held) {
        EXPECT_FALSE(call.done());
        held.open();
        spar::abort(net, "planned");
        EXPECT_FALSE(net.port().scheduler().polls());
        const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!ended && std::chrono::steady_clock::now() < latest) sched_yield();
        EXPECT_TRUE(ended) << "rank 1 waits for buffers that rank 0 has not given back";
        EXPECT_THROW(call.wait(), spar::peer_failed);
      },
      [&](spar::threads&, auto& call) {
        EXPECT_THROW(call.wait(), spar::peer_failed);
        ended = true;
      });
}

TEST_F(device_answers, the_failure_of_another_rank_ends_the_call) {
  while_an_answer_is_awaited(
      top_k,
      [](spar::threads& net, auto& call, gate& held) {
        while (!net.dead()) net.progress(true);
        EXPECT_FALSE(call.done());
        held.open();
        EXPECT_THROW(call.wait(), spar::peer_failed);
      },
      [](spar::threads& net, auto& call) {
        spar::abort(net, "planned");
        EXPECT_THROW(call.wait(), spar::peer_failed);
      });
}

TEST_F(device_answers, an_expired_deadline_of_another_rank_ends_the_call) {
  while_an_answer_is_awaited(
      top_k,
      [](spar::threads& net, auto& call, gate& held) {
        while (!net.dead()) net.progress(true);
        held.open();
        EXPECT_THROW(call.wait(), spar::peer_failed);
      },
      [](spar::threads& net, auto& call) {
        net.set_deadline(0.01);
        EXPECT_THROW(call.wait(), spar::timeout);
      });
}

/// The coroutine's page-locked memory must not be used again while the device may still write to it.
TEST_F(device_answers, a_destroyed_coroutine_waits_for_its_work) {
  on_ranks(1, [](spar::threads& net) {
    spar::on_device gpu(net);
    auto& port = gpu.transport();
    const device_array<std::uint32_t> indices({3, 5, 9});
    const std::vector<std::uint64_t> bounds{4, 10};
    std::vector<std::uint64_t> below(2);
    const std::span<const std::uint32_t> there(indices.data(), 3);
    bool begun = false;
    cuda_double::stall(port.work().stream());
    cuda_double::put(port.work().stream(), [&] { begun = true; });
    {
      const auto counting = port.work().count_below(there, std::span(bounds), std::span(below));
      EXPECT_FALSE(counting.done());
      EXPECT_FALSE(begun);
      EXPECT_TRUE(net.port().scheduler().polls());
    }
    EXPECT_TRUE(begun);
    EXPECT_FALSE(net.port().scheduler().polls());
    const auto counting = port.work().count_below(there, std::span(bounds), std::span(below));
    cuda_double::finish(port.work().stream());
    net.progress(true);
    EXPECT_TRUE(counting.done());
    EXPECT_EQ(below, (std::vector<std::uint64_t>{1, 3}));
    return 0;
  });
}

} // namespace
