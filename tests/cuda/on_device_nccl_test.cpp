// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces on device memory over NCCL against the same on the host: kernels run by fibres, and transfers of a double
// of NCCL, in the streams of a double of the CUDA runtime.
#include "over_nccl.hpp"
#include "support/collectives.hpp"

#include <spar/cuda.hpp>
#include <spar/cuda_feedback.cuh>
#include <spar/on_device.cuh>
#include <spar/storage/coded.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace over_nccl;
using cuda_double::device_array, cuda_double::stream;
using spar::compose, spar::rank_t;

/// Two calls.
template <class Algorithm>
std::vector<float> reduce_on_host(net_type& net, std::size_t n, const Algorithm& algorithm) {
  auto x = values_of(net.rank(), n);
  for (int call = 0; call < 2; ++call) spar::allreduce(net, std::span(x), algorithm);
  return x;
}
template <class Algorithm>
std::vector<float> reduce_on_device(net_type& net, std::size_t n, const Algorithm& algorithm) {
  const stream work;
  const device_array<float> x(std::vector<float>(n, 1));
  spar::on_device gpu(net);
  x.write(work, values_of(net.rank(), n)); // the collective must wait for it
  for (int call = 0; call < 2; ++call) spar::allreduce(gpu, spar::device_span(x.data(), n, work), algorithm);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return x.read(work);
}

template <class Algorithm>
void compare(rank_t ranks, std::size_t n, const Algorithm& algorithm, std::uint64_t seeds) {
  const auto expected =
      outcomes(ranks, 1, {.eager_bytes = SIZE_MAX}, [&](net_type& net) { return reduce_on_host(net, n, algorithm); });
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n << " values, seed " << seed);
    const auto got = outcomes(ranks, seed, {.eager_bytes = seed % 3 * 400}, [&](net_type& net) {
      net.set_checksums(seed % 4 >= 3);
      const bool on_host = seed % 2 == 0 && net.rank() == 0; // such a rank may take part
      return on_host ? reduce_on_host(net, n, algorithm) : reduce_on_device(net, n, algorithm);
    });
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      EXPECT_TRUE(got[r].values == expected[r].values);
    }
  }
}

TEST_F(on_device_nccl, has_the_bits_of_the_host) {
  const std::uint64_t seeds = spar_test::is_full() ? 6 : 3; // each third has another limit for small payloads
  for (const rank_t ranks : {1, 2, 3, 5}) {
    compare(ranks, 700, spar::ring{}, seeds);
    compare(ranks, 300, spar::recursive_doubling{}, seeds);
    compare(ranks, 500, spar::rabenseifner{}, seeds);
    compare(ranks, 700, compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 100}), seeds);
    compare(ranks, 300, compose(spar::storage::qsgd<8>{.bucket = 64}, spar::recursive_doubling{.piece = 128}), seeds);
    compare(ranks, 700, compose(spar::storage::as_bfloat16{}, spar::two_shot{.piece = 60}), seeds);
    compare(ranks, 1, spar::ring{}, 3);
  }
}

TEST_F(on_device_nccl, reduces_entries_with_the_bits_of_the_host) {
  const spar::selector::exact_topk select{.k = 150};
  for (const rank_t ranks : {1, 2, 3}) {
    compare(ranks, 500, compose(select, spar::recursive_doubling{}), 3);
    compare(ranks, 500, compose(select, spar::balanced_owners{}), 2);
  }
  compare(3, 500, compose(select, spar::split_allgather{}), 1);
  compare(3, 500, compose(select, spar::tree_of_topk{}), 1);
}

/// Ranks that have their values on the host send runs, too.
TEST_F(on_device_nccl, reduces_codes_of_entries_with_the_bits_of_the_host) {
  const spar::selector::exact_topk select{.k = 150}, most{.density = 0.9};
  constexpr spar::storage::coded<> plain{.fast = true};
  constexpr spar::storage::coded<7> rounded{.fast = true};
  for (const rank_t ranks : {1, 2, 3}) {
    compare(ranks, 500, compose(select, plain, spar::recursive_doubling{}), 3);
    compare(ranks, 500, compose(most, plain, spar::split_allgather{}), 3);
    compare(ranks, 500, compose(select, rounded, spar::balanced_owners{}), 3);
    compare(ranks, 500, compose(select, rounded, spar::gather_and_merge{}), 3);
  }
}

TEST_F(on_device_nccl, reduces_entries_on_trees_with_the_bits_of_the_host) {
  const spar::selector::exact_topk select{.k = 150};
  constexpr spar::storage::coded<7> rounded{.fast = true};
  for (const rank_t ranks : {1, 2, 5}) {
    const spar::tree_plans plans(spar_test::two_hosts(ranks));
    const spar::on_tree over(plans);
    compare(ranks, 500, compose(select, over, spar::chains{}), 3);
    compare(ranks, 500, compose(select, over, spar::balanced_owners{}), 3);
    compare(ranks, 500, compose(select, rounded, over, spar::balanced_owners{}), 3);
    compare(ranks, 500, compose(select, rounded, over, spar::quantile_owners{}), 3);
    compare(ranks, 500, spar::tree_dense(plans), 3);
  }
}

/// The ring sends 2 (P - 1) messages of n / P values from each rank in a call. NCCL gets those that are large from
/// device memory: no page-locked memory is allocated for them. (Four bytes of it belong to each `on_device`.)
TEST_F(on_device_nccl, keeps_large_payloads_in_device_memory) {
  for (const rank_t ranks : {2, 3, 5}) {
    for (const bool large : {false, true}) {
      const std::size_t n = static_cast<std::size_t>(ranks) * (large ? 1028 : 1024); // 4112 or 4096 bytes in a message
      const auto ended = outcomes(ranks, 1, {}, [&](net_type& net) { return reduce_on_device(net, n, spar::ring{}); });
      for (const outcome& o : ended) {
        EXPECT_EQ(o.error, "");
        const std::uint64_t messages = large ? 4 * static_cast<std::uint64_t>(ranks - 1) : 0;
        EXPECT_EQ(o.did.sends, messages);
        EXPECT_EQ(o.did.bytes_sent, messages * 4112);
        if (large) {
          EXPECT_LE(o.pinned_bytes, 4 * static_cast<std::size_t>(ranks));
        } else {
          EXPECT_GE(o.pinned_bytes, 4096U);
        }
      }
    }
  }
}

/// What `counting` counts is what NCCL gets from device memory. (Four bytes of page-locked memory belong to each
/// `on_device`.) A `faulty`, which reads payloads, makes them travel through the host.
TEST_F(on_device_nccl, carries_payloads_below_counting_and_tracing) {
  constexpr std::size_t n = 600;
  const auto expected =
      outcomes(3, 1, {.eager_bytes = SIZE_MAX}, [](net_type& net) { return reduce_on_host(net, n, spar::ring{}); });
  for (const bool reads_payloads : {false, true}) {
    const auto got = outcomes(3, 1, {.eager_bytes = 0}, [&](net_type& net) {
      const stream work;
      const device_array<float> x(values_of(net.rank(), n));
      const spar::device_span values(x.data(), n, work);
      spar::tracing traced(net);
      spar::counting counted(traced);
      if (reads_payloads) {
        spar::faulty bad(counted, {});
        spar::on_device gpu(bad);
        for (int call = 0; call < 2; ++call) spar::allreduce(gpu, values, spar::ring{});
      } else {
        spar::on_device gpu(counted);
        for (int call = 0; call < 2; ++call) spar::allreduce(gpu, values, spar::ring{});
      }
      EXPECT_EQ(counted.sent(), (spar::counted_traffic{.messages = 8, .bytes = 8 * 800}));
      EXPECT_EQ(counted.received(), counted.sent());
      EXPECT_EQ(cuda_double::pinned_bytes() > 3 * sizeof(std::uint32_t), reads_payloads);
      return x.read(work);
    });
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      EXPECT_EQ(got[r].did.sends, 8U);
      EXPECT_EQ(got[r].did.bytes_sent, 8U * 800);
      EXPECT_TRUE(got[r].values == expected[r].values);
    }
  }
}

TEST_F(on_device_nccl, uses_buffers_again) {
  for (const std::size_t eager : {0U, 10'000U}) {
    outcomes(3, 1, {.eager_bytes = eager}, [](net_type& net) {
      const device_array<float> x(values_of(net.rank(), 3000));
      spar::on_device gpu(net);
      for (int call = 0; call < 30; ++call) spar::allreduce(gpu, spar::device_span(x.data(), 3000), spar::ring{});
      EXPECT_LE(cuda_double::device_allocations(), 3 * 6U);
      EXPECT_LE(cuda_double::pinned_bytes(), 3 * 4 * 4004U);
      return x.read(nullptr);
    });
  }
}

/// While NCCL works for calls on host memory and on device memory, CUDA might wait for them before memory is allocated
/// or freed.
TEST_F(on_device_nccl, allocates_only_while_nccl_is_idle) {
  const auto run = [](net_type& net, auto program) {
    const stream work;
    const device_array<float> x(values_of(net.rank(), 300)), y(values_of(net.rank(), 500));
    auto on_host = values_of(net.rank(), 2000);
    auto beside = spar::start_allreduce(net, std::span(on_host), spar::ring{});
    program(net, spar::device_span(x.data(), 300, work), spar::device_span(y.data(), 500, work));
    beside.wait();
    auto all = x.read(work);
    const auto more = y.read(work);
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), on_host.begin(), on_host.end());
    return all;
  };
  const auto on_device = [](net_type& net, spar::device_span<float> x, spar::device_span<float> y) {
    spar::on_device gpu(net);
    auto first = spar::start_allreduce(gpu, x, spar::recursive_doubling{});
    spar::allreduce(gpu, y, compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 50}));
    first.wait();
  };
  const auto on_threads = [](net_type& net, spar::device_span<float> x, spar::device_span<float> y) {
    auto a = cuda_double::values_at(x.data, 300, x.stream), b = cuda_double::values_at(y.data, 500, y.stream);
    auto first = spar::start_allreduce(net, std::span(a), spar::recursive_doubling{});
    spar::allreduce(net, std::span(b), compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 50}));
    first.wait();
    cuda_double::put(x.stream, [=] { std::copy(a.begin(), a.end(), x.data), std::copy(b.begin(), b.end(), y.data); });
  };
  const auto expected = outcomes(3, 1, {.eager_bytes = SIZE_MAX}, [&](net_type& net) { return run(net, on_threads); });
  constexpr std::uint64_t seeds = spar_test::is_shortened ? 3 : 15;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    const auto got =
        outcomes(3, seed, {.eager_bytes = seed % 3 * 600}, [&](net_type& net) { return run(net, on_device); });
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      EXPECT_TRUE(got[r].values == expected[r].values) << "seed " << seed;
    }
  }
}

TEST_F(on_device_nccl, allocates_only_while_nccl_is_idle_above_a_decorator) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto ended = outcomes(3, seed, {.eager_bytes = 0}, [](net_type& net) {
      const device_array<float> x(values_of(net.rank(), 300));
      auto on_host = values_of(net.rank(), 2000);
      auto beside = spar::start_allreduce(net, std::span(on_host), spar::ring{});
      {
        spar::faulty reads_payloads(net, {});
        spar::on_device gpu(reads_payloads);
        spar::allreduce(gpu, spar::device_span(x.data(), 300), compose(spar::storage::as_bfloat16{}, spar::ring{}));
      }
      beside.wait();
      return x.read(nullptr);
    });
    for (const outcome& o : ended) EXPECT_EQ(o.error, "");
  }
}

/// Error feedback moves rounding errors to the device, or entries on it, while messages are in flight; a call on the
/// host is beside it.
TEST_F(on_device_nccl, error_feedback_and_staged_allocate_only_while_nccl_is_idle) {
  const auto rounds = compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 60});
  const auto sparse = compose(spar::selector::threshold_reuse{.k = 60}, spar::balanced_owners{});
  const auto run = [&](net_type& net, bool device) {
    const stream work;
    auto values = values_of(net.rank(), 700), on_host = values_of(net.rank() + 5, 3000);
    const device_array<float> x(values), y(values), z(values);
    std::optional<spar::on_device<net_type>> entries;
    if (device) entries.emplace(net); // before the calls
    auto beside = spar::start_allreduce(net, std::span(on_host), spar::ring{});
    if (device) {
      spar::staged gpu(net);
      auto reduce = spar::with_device_feedback<float>(rounds);
      reduce(net, spar::device_span(x.data(), 700, work));
      spar::allreduce(gpu, spar::device_span(y.data(), 700, work), spar::ring{});
      auto reduce_entries = spar::with_device_feedback<float>(sparse);
      for (int call = 0; call < 3; ++call) reduce_entries(*entries, spar::device_span(z.data(), 700, work));
    } else {
      auto reduce = spar::with_error_feedback<float>(rounds);
      auto reduce_entries = spar::with_error_feedback<float>(sparse);
      auto other = values, third = values;
      reduce(net, std::span(values));
      spar::allreduce(net, std::span(other), spar::ring{});
      for (int call = 0; call < 3; ++call) reduce_entries(net, std::span(third));
      values.insert(values.end(), other.begin(), other.end());
      values.insert(values.end(), third.begin(), third.end());
    }
    beside.wait();
    if (!device) return values;
    auto all = x.read(work);
    for (const auto* more : {&y, &z}) {
      const auto values_there = more->read(work);
      all.insert(all.end(), values_there.begin(), values_there.end());
    }
    return all;
  };
  const auto expected = outcomes(3, 1, {.eager_bytes = SIZE_MAX}, [&](net_type& net) { return run(net, false); });
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto got = outcomes(3, seed, {.eager_bytes = 0}, [&](net_type& net) { return run(net, true); });
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      EXPECT_TRUE(got[r].values == expected[r].values) << "seed " << seed;
    }
  }
}

/// The first two calls of an object allocate its residual, while many messages of other calls are in flight.
TEST_F(on_device_nccl, residuals_are_allocated_only_while_nccl_is_idle) {
  const auto parts = compose(spar::selector::exact_topk{.k = 60}, spar::recursive_doubling{});
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto ended = outcomes(3, seed, {.eager_bytes = 0}, [&](net_type& net) {
      const device_array<float> x(values_of(net.rank(), 200));
      spar::on_device gpu(net);
      std::vector<std::vector<float>> on_host(6, values_of(net.rank(), 900));
      std::vector<decltype(spar::start_allreduce(net, std::span(on_host[0]), spar::ring{}))> beside;
      for (auto& values : on_host) beside.push_back(spar::start_allreduce(net, std::span(values), spar::ring{}));
      for (std::uint64_t turn = 0; turn < 5 * seed; ++turn) net.progress(false);
      for (int object = 0; object < 3; ++object) {
        auto reduce = spar::with_device_feedback<float>(parts);
        for (int call = 0; call < 2; ++call) reduce(gpu, spar::device_span(x.data(), 200));
      }
      for (auto& call : beside) call.wait();
      return on_host[5];
    });
    for (const auto& o : ended) EXPECT_EQ(o.error, "") << "seed " << seed;
  }
}

/// Rank 0 sends two messages of two pieces, to which the receiver gives places. The receiver's copies begin late.
TEST_F(on_device_nccl, moves_several_pieces) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto ended = outcomes(2, seed, {.eager_bytes = seed % 2 * 1000}, [&](net_type& net) {
      const stream work;
      const device_array<float> a(std::vector<float>(2 * 33, 0)), b(std::vector<float>(2 * 20, 0));
      if (net.rank() == 0) {
        a.write(work, values_of(1, 2 * 33));
        b.write(work, values_of(2, 2 * 20));
      } else {
        cuda_double::stall(work);
      }
      for (const std::size_t message : {0U, 1U}) {
        const std::span<float> first(a.data() + message * 33, 33), second(b.data() + message * 20, 20);
        const auto complete = [&](const auto& operation) {
          while (!operation.await_ready()) net.progress(true);
          operation.await_resume();
        };
        if (net.rank() == 0) {
          spar::message_pieces out{{}, {std::as_bytes(first), std::as_bytes(second)}};
          out.head.lengths = {first.size_bytes(), second.size_bytes(), 0};
          out.stream = work;
          complete(net.port().send(out, 1, 0));
        } else {
          spar::message_buffer in(net.memory());
          in.set_stream(work);
          in.place(0, first);
          in.place(1, second);
          complete(net.port().receive(in, 0, 0));
        }
      }
      auto all = a.read(work);
      const auto more = b.read(work);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    });
    for (const outcome& o : ended) EXPECT_EQ(o.error, "");
    EXPECT_TRUE(ended[0].values == ended[1].values) << "seed " << seed;
  }
}

TEST_F(on_device_nccl, does_not_wait_for_ever_before_it_allocates) {
  const auto ended = outcomes(3, 1, {.eager_bytes = 0}, [](net_type& net) {
    const device_array<float> x(values_of(net.rank(), 300));
    auto on_host = values_of(net.rank(), 2000);
    cuda_double::stop(true); // transfers do not end
    auto beside = spar::start_allreduce(net, std::span(on_host), spar::ring{});
    while (nccl_double::of_this_thread().groups == 0) net.progress(false);
    net.set_deadline(0.5);
    spar::on_device gpu(net);
    spar::allreduce(gpu, spar::device_span(x.data(), 300), spar::ring{});
    return on_host;
  });
  cuda_double::stop(false);
  for (const outcome& o : ended) { // the deadline of the call in flight began earlier, and may expire first
    const auto waited_for = [&](const char* what) {
      return o.error.find(std::string("has waited for 0.5 s for ") + what) != std::string::npos;
    };
    EXPECT_TRUE(waited_for("NCCL to end its transfers") || waited_for("a message")) << o.error;
  }
}

/// Two communicators of NCCL per rank, used in turn: the calls on one end before calls on the other begin. In each
/// turn, calls on host memory and on device memory are in flight together.
TEST_F(on_device_nccl, lets_two_communicators_be_used_in_turn) {
  constexpr std::size_t n = 500;
  constexpr int turns = 6;
  const auto run = [&](std::uint64_t seed, std::size_t eager, bool on_host) {
    return outcomes_on_devices(3, seed, [&](spar::threads& control, outcome&) {
      const stream work;
      const device_array<float> x(values_of(control.rank(), n));
      std::vector<float> beside = values_of(control.rank() + 3, 2 * n), own = values_of(control.rank(), n);
      net_type first(control, {.eager_bytes = eager}), second(control, {.eager_bytes = eager});
      spar::on_device on_first(first), on_second(second);
      for (int turn = 0; turn < turns; ++turn) {
        net_type& net = turn % 2 == 0 ? first : second;
        spar::on_device<net_type>& gpu = turn % 2 == 0 ? on_first : on_second;
        auto other = spar::start_allreduce(net, std::span(beside), spar::recursive_doubling{}, spar::average{});
        if (on_host) {
          spar::allreduce(net, std::span(own), spar::ring{}, spar::average{});
        } else {
          auto call = spar::start_allreduce(gpu, spar::device_span(x.data(), n, work), spar::ring{}, spar::average{});
          if (control.rank() == 1) other.wait();
          call.wait();
        }
        other.wait();
      }
      if (!on_host) own = x.read(work);
      own.insert(own.end(), beside.begin(), beside.end());
      return own;
    });
  };
  const auto expected = run(1, SIZE_MAX, true);
  for (std::uint64_t seed = 1; seed <= (spar_test::is_shortened ? 3 : 20) && !HasFailure(); ++seed) {
    const auto got = run(seed, seed % 3 * 600, false);
    for (std::size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      EXPECT_EQ(got[r].did.destroys, 2U);
      EXPECT_TRUE(got[r].values == expected[r].values) << "seed " << seed;
    }
  }
}

/// Plans one failure after another on rank 1 by `plan(number)`, later only some, as long as `count()` reaches the
/// number in two calls. Checks that all ranks end in an error that contains `text`, unless CUDA failed where spar waits
/// instead. Returns how often they did.
template <class Plan, class Count>
int fail_everywhere(const std::string& text, std::size_t eager, Plan plan, Count count) {
  int everywhere = 0;
  bool reached = true; // on rank 1, in the last run
  for (std::uint64_t number = 1;; number += 1 + number / 50) {
    SCOPED_TRACE(testing::Message() << "failure " << number << ", eager_bytes " << eager);
    const auto ended = outcomes(3, number, {.eager_bytes = eager}, [&](net_type& net) {
      std::optional<device_array<float>> x(values_of(net.rank(), 300));
      const std::uint64_t before = count();
      if (net.rank() == 1) plan(number);
      spar::on_device gpu(net);
      try {
        spar::allreduce(gpu, spar::device_span(x->data(), 300), compose(spar::storage::as_bfloat16{}, spar::ring{}));
        spar::allreduce(gpu, spar::device_span(x->data(), 300), spar::recursive_doubling{});
      } catch (...) {
        x.reset(); // a program may free the values at once
        throw;
      }
      if (net.rank() == 1) {
        reached = count() - before >= number;
        plan(UINT64_MAX / 2); // no failure
      }
      float all_have_ended = 1;
      spar::allreduce(net, std::span(&all_have_ended, 1), spar::recursive_doubling{});
      return x->read(nullptr);
    });
    const bool fails = !ended[1].error.empty();
    for (const outcome& o : ended) {
      EXPECT_EQ(!o.error.empty(), fails) << o.error;
      EXPECT_TRUE(!fails || o.error.find(text) != std::string::npos) << o.error;
      EXPECT_TRUE(fails || o.values == ended[0].values);
    }
    if (fails) ++everywhere;
    if (!reached) return everywhere;
  }
}

TEST_F(on_device_nccl, ends_on_all_ranks_if_cuda_fails) {
  for (const std::size_t eager : {0U, 10'000U})
    EXPECT_GE(
        fail_everywhere(" failed: cudaErrorUnknown, a planned error", eager, cuda_double::fail_at, cuda_double::calls),
        40);
}

TEST_F(on_device_nccl, ends_on_all_ranks_if_nccl_fails) {
  const auto calls = [] { return nccl_double::of_this_thread().calls; };
  const auto polls = [] { return nccl_double::of_this_thread().polls; };
  EXPECT_GE(fail_everywhere(" failed: a planned error of NCCL", 0, nccl_double::fail_at, calls), 40);
  EXPECT_GE(fail_everywhere(" failed: a planned error of a transfer", 0, nccl_double::fail_later_at, polls), 20);
}

} // namespace
