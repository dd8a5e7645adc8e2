// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over NCCL, on doubles of NCCL and of the CUDA runtime.
#include "nccl_double.hpp"
#include "on_ranks.hpp"
#include "refusals.hpp"
#include "runtime_double.hpp"
#include "support/extent.hpp"

#include <spar/nccl.hpp>
#include <spar/strided.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>

namespace {

using spar::rank_t;
using net_type = spar::nccl<spar::threads>;

constexpr double deadline = 20; // seconds; a deadlock becomes a failure

/// Small integers, so that sums are exact in any order; a tenth of them, or all, are not zero.
std::vector<float> values_of(rank_t rank, std::size_t n, std::uint64_t seed, bool dense) {
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(rank));
  std::vector<float> x(n);
  for (float& v : x) {
    const std::uint64_t bits = random();
    if (dense || bits % 10 == 0) v = static_cast<float>(bits >> 32 & 63) - 31;
  }
  return x;
}
/// The sum over all ranks, computed without spar.
std::vector<float> sum_of(rank_t ranks, std::size_t n, std::uint64_t seed, bool dense) {
  std::vector<float> sum(n);
  for (rank_t r = 0; r < ranks; ++r) {
    const auto x = values_of(r, n, seed, dense);
    std::transform(sum.begin(), sum.end(), x.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

void reset(std::uint64_t seed) {
  cuda_double::reset(seed);
  nccl_double::reset(seed);
}

/// Runs `program(net)` over NCCL on each rank, and checks that nothing of NCCL and CUDA is left. Returns what the
/// threads of the ranks have done.
template <class Program>
std::vector<nccl_double::counts> run(rank_t ranks, std::uint64_t seed, const spar::nccl_options& options,
                                     Program program) {
  reset(seed);
  auto counts = on_ranks(ranks, [&](spar::threads& control) {
    control.set_deadline(deadline);
    {
      net_type net(control, options);
      program(net);
    }
    return nccl_double::of_this_thread();
  });
  std::uint64_t sends = 0, receives = 0;
  for (const auto& c : counts) {
    EXPECT_EQ(c.joins, 1U);
    EXPECT_EQ(c.destroys, 1U);
    EXPECT_EQ(c.aborts, 0U);
    EXPECT_EQ(c.releases, 0U);
    EXPECT_EQ(c.open_groups, 0);
    sends += c.sends;
    receives += c.receives;
  }
  EXPECT_EQ(sends, receives);
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  return counts;
}

/// Several collectives in flight, ended in a random order.
void many_in_flight(net_type& net, std::uint64_t seed) {
  const rank_t ranks = net.size();
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(net.rank()));
  const auto size = [&](std::uint64_t call) { return static_cast<std::size_t>((seed * 7 + call * 13) % 50 * 80 + 1); };
  std::vector<std::vector<float>> x;
  for (std::uint64_t call = 0; call < 5; ++call) x.push_back(values_of(net.rank(), size(call), seed + call, call < 3));

  std::vector<spar::pending<net_type, void>> dense;
  dense.push_back(spar::start_allreduce(net, std::span(x[0]), spar::recursive_doubling{}));
  dense.push_back(spar::start_allreduce(net, std::span(x[1]), spar::ring{}));
  auto split = spar::start_allreduce(net, spar::dense_view(x[3]), spar::split_allgather{});
  dense.push_back(spar::start_allreduce(net, std::span(x[2]), spar::rabenseifner{}));
  auto doubled = spar::start_allreduce(net, spar::dense_view(x[4]), spar::recursive_doubling{});
  dense.push_back(spar::start_barrier(net));

  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t call : order) {
    if (call < 3)
      dense[call].wait();
    else
      (call == 3 ? split : doubled).wait().to_dense(std::span(x[call]), spar::sum{});
  }
  dense[3].wait();
  for (std::uint64_t call = 0; call < 5; ++call)
    EXPECT_EQ(x[call], sum_of(ranks, size(call), seed + call, call < 3)) << "call " << call << ", seed " << seed;
}

TEST(nccl, reduces_in_every_schedule) {
  constexpr std::uint64_t on_one_communicator = 10;
  const std::uint64_t seeds = spar_test::runs_all_cases() ? 200 : 80;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    const spar::nccl_options options{.eager_bytes = seed % 3 == 0 ? 4096U : 0U};
    run(static_cast<rank_t>(2 + seed % 4), seed, options, [&](net_type& net) {
      net.set_checksums(seed % 4 < 2);
      for (std::uint64_t i = 0; i < on_one_communicator; ++i) many_in_flight(net, seed * on_one_communicator + i);
      EXPECT_EQ(nccl_double::of_this_thread().hazards, 0U);
    });
  }
}

/// Steps of Ok-Topk, whose residuals show every lost or repeated entry.
std::vector<float> train(net_type& net, std::uint64_t seed) {
  spar::ok_topk<float> reduce(spar::ok_topk_allreduce<>{.select = {.k = 200}});
  std::vector<float> all;
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto x = values_of(net.rank(), 4000, seed + step, true);
    reduce(net, std::span(x));
    all.insert(all.end(), x.begin(), x.end());
  }
  return all;
}

TEST(nccl, has_the_bits_of_the_control_transport_with_error_feedback) {
  for (std::uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) {
    const auto ranks = static_cast<rank_t>(2 + seed % 4);
    const auto expected = on_ranks(ranks, [&](spar::threads& control) {
      net_type net(control, {.eager_bytes = SIZE_MAX});
      auto all = train(net, seed);
      EXPECT_EQ(nccl_double::of_this_thread().sends, 0U);
      return all;
    });
    run(ranks, seed, {.eager_bytes = seed % 2 * 512}, [&](net_type& net) {
      EXPECT_EQ(train(net, seed), expected[static_cast<std::size_t>(net.rank())]) << "seed " << seed;
    });
  }
}

TEST(nccl, runs_partial_collectives) {
  for (std::uint64_t seed = 1; seed <= 20 && !testing::Test::HasFailure(); ++seed) {
    const auto ranks = static_cast<rank_t>(2 + seed % 4);
    constexpr int calls = 6;
    constexpr std::size_t n = 2000;
    run(ranks, seed, {.eager_bytes = 0}, [&](net_type& net) {
      auto reduce = spar::partial_allreduce<float>(net, n, spar::majority{}, spar::ring{});
      std::vector<float> total(n), x(n);
      for (int call = 0; call <= calls; ++call) {
        std::fill(x.begin(), x.end(), call < calls ? 1.0F : 0.0F);
        if (call < calls)
          reduce(std::span(x));
        else
          reduce.drain(std::span(x));
        std::transform(total.begin(), total.end(), x.begin(), total.begin(), std::plus<>());
      }
      // A rank sees each round once, but perhaps several rounds in one call; the last round contains the rest.
      EXPECT_LE(*std::max_element(total.begin(), total.end()), static_cast<float>(calls * ranks)) << "seed " << seed;
      EXPECT_EQ(std::count(total.begin(), total.end(), total[0]), static_cast<std::ptrdiff_t>(n)) << "seed " << seed;
    });
  }
}

TEST(nccl, communicators_do_not_mix) {
  for (std::uint64_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    reset(seed);
    const rank_t ranks = 3;
    const auto destroyed = on_ranks(ranks, [&](spar::threads& control) {
      control.set_deadline(deadline);
      {
        net_type first(control, {.eager_bytes = 0}), second(control, {.eager_bytes = 0});
        auto x = values_of(control.rank(), 1000, seed, true), y = values_of(control.rank(), 1500, seed + 1, true);
        auto one = spar::start_allreduce(first, std::span(x), spar::ring{});
        auto other = spar::start_allreduce(second, std::span(y), spar::recursive_doubling{});
        if (seed % 2 == 0) other.wait();
        while (!one.done() || !other.done()) sched_yield();
        EXPECT_EQ(x, sum_of(ranks, 1000, seed, true));
        EXPECT_EQ(y, sum_of(ranks, 1500, seed + 1, true));
      }
      return nccl_double::of_this_thread().destroys;
    });
    EXPECT_EQ(destroyed, (std::vector<std::uint64_t>{2, 2, 2}));
  }
}

/// Freeing memory waits for the transfers of all ranks on the device, and meanwhile none can start its part of one.
TEST(nccl, frees_memory_while_no_rank_has_transfers_in_flight) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    reset(seed);
    const auto releases = on_ranks(3, [&](spar::threads& control) {
      control.set_deadline(deadline);
      {
        net_type second(control, {.eager_bytes = 0});
        const auto reduce = [&](net_type& net) {
          auto x = values_of(control.rank(), 1000, seed, true);
          spar::allreduce(net, std::span(x), spar::ring{});
          EXPECT_EQ(x, sum_of(3, 1000, seed, true));
        };
        {
          net_type first(control, {.eager_bytes = 0});
          reduce(first);
        }
        reduce(second);
      }
      return nccl_double::of_this_thread().releases;
    });
    EXPECT_EQ(releases, (std::vector<std::uint64_t>{0, 0, 0})) << "seed " << seed;
  }
}

/// Waits as `mpi` does: `progress(true)` returns only once a coroutine can resume, not after each control message.
class patient_port : public spar::decorated_port<spar::threads_port> {
 public:
  using decorated_port::decorated_port;
  auto send(const spar::message_pieces& out, spar::rank_t peer, spar::tag_t tag) {
    return inner().send(out, peer, tag);
  }
  auto receive(spar::message_buffer& in, spar::rank_t peer, spar::tag_t tag) { return inner().receive(in, peer, tag); }
  void progress(bool block) {
    do {
      const spar::scheduler::pause no_resumption(scheduler());
      inner().progress(false);
    } while (block && !has_ready() && !node().dead());
    scheduler().run();
  }

 private:
  bool has_ready() {
    sched_yield();
    return !scheduler().idle();
  }
};
class patient : public spar::communicator_rank<patient_port> {
 public:
  explicit patient(spar::threads& net) : communicator_rank(net.port()) {}
};

// A decorator that reads payloads keeps them out of device memory, but not the device from its work on them.
using over_threads = spar::nccl_port<spar::threads_port>;
static_assert(spar::device_transport<over_threads> && spar::device_bound_transport<over_threads>);
static_assert(!spar::shared_transport<over_threads>);
static_assert(spar::device_bound_transport<spar::counting_port<spar::faulty_port<over_threads>>>);
static_assert(!spar::device_transport<spar::counting_port<spar::faulty_port<over_threads>>>);

TEST(nccl, needs_no_messages_of_the_control_transport_to_go_on) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    reset(seed);
    on_ranks(3, [&](spar::threads& control) {
      control.set_deadline(deadline);
      patient waits(control);
      spar::nccl net(waits, {.eager_bytes = 0});
      auto x = values_of(net.rank(), 1000, seed, true);
      spar::allreduce(net, std::span(x), spar::ring{});
      EXPECT_EQ(x, sum_of(3, 1000, seed, true));
      return 0;
    });
  }
}

/// The ring sends 2 (P - 1) messages of n / P values from each rank.
TEST(nccl, sends_only_large_payloads_by_nccl) {
  for (const rank_t ranks : {2, 3, 4, 5}) {
    for (const bool large : {false, true}) {
      const std::size_t n = static_cast<std::size_t>(ranks) * (large ? 1028 : 1024); // 4112 or 4096 bytes in a message
      const auto counts = run(ranks, 1, {}, [&](net_type& net) {
        auto x = values_of(net.rank(), n, 1, true);
        spar::allreduce(net, std::span(x), spar::ring{});
        EXPECT_EQ(x, sum_of(ranks, n, 1, true));
      });
      for (const auto& c : counts) {
        const std::uint64_t messages = large ? 2 * static_cast<std::uint64_t>(ranks - 1) : 0;
        EXPECT_EQ(c.sends, messages);
        EXPECT_EQ(c.receives, messages);
        EXPECT_EQ(c.bytes_sent, messages * 4112);
        EXPECT_LE(c.groups, 2 * messages);
        EXPECT_GE(c.groups, messages); // each step needs the previous one
      }
    }
  }
}

/// A ring step holds one buffer to send from and one to receive into; a rank may be one step ahead of a peer.
TEST(nccl, uses_pinned_buffers_again) {
  run(3, 1, {.eager_bytes = 0}, [&](net_type& net) {
    for (int call = 0; call < 30; ++call) {
      auto x = values_of(net.rank(), 3000, 1, true);
      spar::allreduce(net, std::span(x), spar::ring{});
    }
    EXPECT_LE(cuda_double::pinned_bytes(), 3 * 4 * 4000U);
  });
}

TEST(nccl, refuses_values_in_device_memory_and_other_devices) {
  constexpr std::size_t n = 3000;
  run(3, 5, {}, [](net_type& net) {
    const cuda_double::device_array<float> on_device(std::vector<float>(n, 1));
    const std::span<float> there(on_device.data(), n);
    std::vector<float> x(n, 1);
    const std::string expected = std::string("the 3000 values of span 1") + spar_test::on_device_0;
    spar::counting counted(net);
    auto reduce =
        spar::with_error_feedback<float>(spar::compose(spar::selector::exact_topk{.k = 10}, spar::ssar_split{}));
    auto solo = spar::partial_allreduce<float>(net, n, spar::solo{}, spar::ring{});
    const auto rank = net.rank();
    spar_test::refuses_device_memory(net, reduce, solo);
    std::vector<std::function<void()>> calls{[&] { (void)spar::start_allreduce(net, there); },
                                             [&] { spar::allreduce(counted, there, spar::ring{}); },
                                             [&] { spar::broadcast(net, there, 0); },
                                             [&] { spar::reduce(net, there, 0); },
                                             [&] { (void)reduce.start(net, there); },
                                             [&] { spar::allreduce(net, spar::strided(there.data(), {n}, {1})); },
                                             [&] { reduce(net, spar::strided(there.data(), {n / 2, 2}, {1, n / 2})); }};
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(spar_test::refusal_of(calls[i]), expected) << i;
    cuda_double::set_device(rank + 3);
    EXPECT_EQ(spar_test::refusal_of([&] { spar::allreduce(net, std::span(x), spar::ring{}); }),
              "the current device is " + std::to_string(rank + 3) +
                  ", but this spar::nccl was made for device 0; expected cudaSetDevice(0) before the call");
    cuda_double::set_device(0);
    EXPECT_FALSE(net.dead());
    spar::allreduce(net, std::span(x), spar::ring{});
    EXPECT_EQ(x, std::vector<float>(n, 3));
    EXPECT_EQ(counted.sent().messages, 0U);
  });
}

TEST(nccl, the_handle_of_a_call_is_destroyed_while_another_device_is_current) {
  run(2, 1, {.eager_bytes = 0}, [](net_type& net) {
    constexpr std::size_t n = 5000;
    spar::counting counted(net);
    const auto destroy = [&](auto& on) {
      auto x = values_of(net.rank(), n, 1, true);
      {
        const auto call = spar::start_allreduce(on, std::span(x), spar::ring{});
        cuda_double::set_device(3);
      }
      int now = 0;
      EXPECT_EQ(cudaGetDevice(&now), cudaSuccess);
      EXPECT_EQ(now, 3);
      cuda_double::set_device(0);
      EXPECT_FALSE(net.dead());
      EXPECT_EQ(x, sum_of(2, n, 1, true));
    };
    destroy(net);
    destroy(counted);
  });
}

/// An algorithm whose options are always invalid.
struct never : spar::algorithm_defaults {
  static constexpr std::string_view name = "never";
  template <spar::element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const {
    spar::raise<spar::invalid_argument>({"these options are invalid"});
  }
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<float>, Op) const& {
    co_return;
  }
};

TEST(nccl, every_front_door_refuses_the_same_arguments_with_the_same_sentence) {
  constexpr std::size_t n = 3000;
  run(2, 6, {}, [](net_type& net) {
    using values = std::span<float>;
    const cuda_double::device_array<float> on_device(std::vector<float>(n, 1));
    const values there(on_device.data(), n);
    std::vector<float> x(n, 1), other(n, 1);
    const std::size_t sizes[] = {n, n};
    const auto view = [](values v) { return spar::dense_view(std::span<const float>(v)); };
    spar::ok_topk<float> reduce(spar::ok_topk_allreduce<>{.select = {.k = 40}});
    auto solo = spar::partial_allreduce<float>(net, n, spar::solo{}, spar::ring{}, spar::average{});
    spar::fused_allreduce<net_type, float> fused(net, sizes, {.bucket_bytes = 1});
    const spar::named a{"a"};

    const std::function<void(values)> calls[] = {[&](values v) { spar::allreduce(net, v); },
                                                 [&](values v) { spar::allreduce(net, a, v); },
                                                 [&](values v) { spar::allreduce(net, v, other); },
                                                 [&](values v) { (void)spar::start_allreduce(net, v); },
                                                 [&](values v) { (void)spar::start_allreduce(net, a, v); },
                                                 [&](values v) { spar::reduce_scatter(net, v); },
                                                 [&](values v) { (void)spar::start_reduce_scatter(net, v); },
                                                 [&](values v) { spar::allgather(net, v); },
                                                 [&](values v) { (void)spar::start_allgather(net, a, v); },
                                                 [&](values v) { spar::reduce(net, v, 0); },
                                                 [&](values v) { (void)spar::start_reduce(net, v, 0); },
                                                 [&](values v) { spar::broadcast(net, v, 0); },
                                                 [&](values v) { (void)spar::start_broadcast(net, a, v, 0); },
                                                 [&](values v) { reduce(net, v); },
                                                 [&](values v) { (void)reduce.start(net, v); },
                                                 [&](values v) { (void)reduce.start(net, a, v); },
                                                 [&](values v) { (void)reduce.reduce(net, v); },
                                                 [&](values v) { (void)reduce.start_reduce(net, v); },
                                                 [&](values v) { spar::sgd_step(net, v, v, 0.5F, reduce); },
                                                 [&](values v) { spar::sgd_step(net, v, v, 0.5F, spar::ring{}); },
                                                 [&](values v) { spar::sgd_step(v, v, 0.5F, solo); },
                                                 [&](values v) { solo(v); },
                                                 [&](values v) { (void)solo.start(v); },
                                                 [&](values v) { solo.drain(v); },
                                                 [&](values v) { fused.ready(0, v); }};
    const std::function<void()> without_span[] = {[&] { (void)spar::allreduce(net, view(x)); },
                                                  [&] { (void)spar::start_allreduce(net, view(x)); },
                                                  [&] { spar::barrier(net); },
                                                  [&] { spar::barrier(net, a); },
                                                  [&] { (void)spar::start_barrier(net); },
                                                  [&] { spar::leave(net); },
                                                  [&] { (void)spar::partial_allreduce<float>(net, n); }};
    const std::function<void()> with_an_algorithm[] = {
        [&] { spar::allreduce(net, x, never{}); },
        [&] { spar::allreduce(net, other, x, never{}); },
        [&] { (void)spar::start_allreduce(net, a, x, never{}); },
        [&] { spar::sgd_step(net, x, x, 0.5F, never{}); },
        [&] { (void)spar::partial_allreduce<float>(net, n, spar::solo{}, never{}); },
        [&] { spar::fused_allreduce<net_type, float, never>(net, sizes, {.bucket_bytes = 1}).ready(0, x); }};

    const auto sent = net.statistics().messages_sent;
    const std::string in_device_memory = std::string("the 3000 values of span 1") + spar_test::on_device_0;
    for (const auto& call : calls)
      EXPECT_EQ(spar_test::refusal_of([&] { call(there); }), in_device_memory) << &call - calls;
    for (const auto& call : with_an_algorithm)
      EXPECT_EQ(spar_test::refusal_of(call), "these options are invalid") << &call - with_an_algorithm;
    cuda_double::set_device(3);
    const std::string of_another_device =
        "the current device is 3, but this spar::nccl was made for device 0; expected cudaSetDevice(0) before the call";
    for (const auto& call : calls)
      EXPECT_EQ(spar_test::refusal_of([&] { call(x); }), of_another_device) << &call - calls;
    for (const auto& call : without_span)
      EXPECT_EQ(spar_test::refusal_of(call), of_another_device) << &call - without_span;
    cuda_double::set_device(0);
    EXPECT_EQ(x, std::vector<float>(n, 1)); // no refused step has scaled the gradient
    EXPECT_FALSE(net.dead());
    EXPECT_EQ(net.statistics().messages_sent, sent);
    solo.drain(x);
    spar::barrier(net); // this rank frees `on_device` when no rank has transfers in flight
  });
}

TEST(nccl, works_on_one_rank) {
  run(1, 1, {.eager_bytes = 0}, [](net_type& net) {
    auto x = values_of(0, 100, 1, true);
    spar::allreduce(net, std::span(x), spar::ring{});
    EXPECT_EQ(x, sum_of(1, 100, 1, true));
  });
}

} // namespace
