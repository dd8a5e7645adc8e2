// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call no larger than an earlier one allocates nothing: neither from the resource that the transport was given, nor,
// in the simulator, where the order of events repeats, from anywhere.
#include "support/counting_resource.hpp"
#include "support/global_allocations.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <span>
#include <type_traits>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;

/// Of each rank's entries every `stride`-th, as far as they lie below n: in every respect no larger.
inputs smaller(const inputs& all, std::uint64_t n, std::size_t stride) {
  inputs some = all;
  for (auto& mine : some) {
    mine.n = n;
    if (mine.dense) {
      mine.values.resize(n);
      continue;
    }
    std::size_t kept = 0;
    for (std::size_t e = 0; e < mine.indices.size(); e += stride) {
      if (mine.indices[e] >= n) break;
      mine.indices[kept] = mine.indices[e];
      mine.values[kept++] = mine.values[e];
    }
    mine.indices.resize(kept);
    mine.values.resize(kept);
  }
  return some;
}

/// One call.
template <class Algorithm>
struct stream_call {
  const inputs* mine;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto pending = spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
    const auto sum = co_await std::move(pending);
    EXPECT_EQ(sum.dimension(), (*mine)[0].n);
  }
};

template <class Algorithm>
struct dense_call {
  std::vector<std::vector<float>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto pending =
        spar::start_allreduce(net, std::span<float>((*x)[static_cast<std::size_t>(net.rank())]), Algorithm{});
    co_await std::move(pending);
  }
};

/// Allocations by one run of `program` on a simulator: from the transport's memory and altogether. Each call is a run
/// of its own: a rank that is a call ahead of others holds more messages at once.
struct taken {
  std::uint64_t pooled;
  std::uint64_t global;
  friend bool operator==(const taken&, const taken&) = default;
};
std::ostream& operator<<(std::ostream& out, const taken& t) {
  return out << t.pooled << " pooled, " << t.global << " global";
}

template <class Program>
taken run_once(spar::simulator& engine, const counting_resource& upstream, const Program& program) {
  const taken before{upstream.allocations(), global_allocations()};
  engine.run([&](spar::sim& net) { return program(net); });
  return {upstream.allocations() - before.pooled, global_allocations() - before.global};
}

/// What the run itself takes: the list of the ranks' programs, and their frames in the pools' spare blocks.
struct nothing {
  spar::task<void> operator()(spar::sim&) const& { co_return; }
};

template <class Algorithm>
class allocations : public testing::Test {};
using algorithms = testing::Types<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::ssar_split,
                                  spar::dsar_split, spar::split_allgather<spar::storage::qsgd<8>>, spar::sparcml>;
TYPED_TEST_SUITE(allocations, algorithms);

/// The pool has met every order of taking and giving back after so many calls.
constexpr int warm = 20;

TYPED_TEST(allocations, none_by_repeated_calls_in_the_simulator) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8, 13}) {
    for (const pattern shape :
         {pattern::random, pattern::identical, pattern::disjoint, pattern::mixed, pattern::dense}) {
      for (const bool synchronous : {false, true}) {
        if (!synchronous && ranks > 4) continue; // a late receiver may make a sender hold one message more at any time
        SCOPED_TRACE(testing::Message() << "P = " << ranks << ", " << shape << ", synchronous: " << synchronous);
        counting_resource upstream;
        spar::simulator_options options;
        options.memory = &upstream;
        options.synchronous = synchronous;
        spar::simulator engine{ranks, options};
        const auto mine = contributions<float, index>(shape, ranks, 6000, 1, exact_value<float>);
        const stream_call<TypeParam> program{&mine};
        EXPECT_GT(run_once(engine, upstream, program).pooled, 0U);
        for (int call = 1; call < warm; ++call) run_once(engine, upstream, program);
        const taken idle = run_once(engine, upstream, nothing{});
        for (int call = 0; call < 20; ++call) EXPECT_EQ(run_once(engine, upstream, program), idle) << "call " << call;
      }
    }
  }
}

/// Smaller in every respect: fewer entries, a smaller dimension, or both. Streams stay sparse, as another
/// representation has other blocks, and sparcml is left out, as it may choose another algorithm. The pool gives the
/// smallest block that fits, so the first time that sizes stand in another proportion to each other it may be a block
/// or two short.
TYPED_TEST(allocations, none_by_smaller_calls_in_the_simulator) {
  if constexpr (!std::is_same_v<TypeParam, spar::sparcml>) {
    for (const spar::rank_t ranks : {1, 2, 3, 4, 7}) {
      for (const pattern shape : {pattern::identical, pattern::some_empty}) {
        SCOPED_TRACE(testing::Message() << "P = " << ranks << ", " << shape);
        counting_resource upstream;
        spar::simulator_options options;
        options.memory = &upstream;
        options.synchronous = true;
        spar::simulator engine{ranks, options};
        auto large = contributions<float, index>(shape, ranks, 3000, 1, exact_value<float>);
        for (auto& mine : large) { // a density of a hundredth, evenly spread
          mine.n = 30'000;
          for (auto& i : mine.indices) i *= 10;
        }
        for (int call = 0; call < warm; ++call) run_once(engine, upstream, stream_call<TypeParam>{&large});
        const taken idle = run_once(engine, upstream, nothing{});
        const std::uint64_t before = upstream.allocations();
        for (const bool first : {true, false}) {
          for (const std::uint64_t n : {30'000U, 25'000U, 10'000U, 30'000U}) {
            for (const std::size_t stride : {1U, 2U, 3U, 10U, 1000U}) {
              const auto mine = smaller(large, n, stride);
              const taken now = run_once(engine, upstream, stream_call<TypeParam>{&mine});
              if (!first) {
                EXPECT_EQ(now, idle) << n << ", stride " << stride;
              }
            }
          }
          EXPECT_LE(upstream.allocations() - before, 2U);
        }
      }
    }
  }
}

TYPED_TEST(allocations, none_by_repeated_calls_on_threads) {
  for (const spar::rank_t ranks : {1, 2, 4, 5}) {
    for (const bool synchronous : {false, true}) {
      SCOPED_TRACE(testing::Message() << "P = " << ranks << ", synchronous: " << synchronous);
      counting_resource upstream;
      spar::thread_options options;
      options.memory = &upstream;
      options.synchronous = synchronous;
      spar::thread_group group{ranks, options};
      const auto mine = contributions<float, index>(pattern::random, ranks, 6000, 1, exact_value<float>);
      const stream_call<TypeParam> program{&mine};
      std::uint64_t after_warm = 0;
      for (int call = 0; call < warm + 10; ++call) {
        group.run([&](spar::threads& net) { spar::wait(net, program(net)); });
        if (call < warm) after_warm = upstream.allocations();
      }
      EXPECT_GT(after_warm, 0U);
      EXPECT_EQ(upstream.allocations(), after_warm);
    }
  }
}

template <class Algorithm>
void expect_no_dense_allocations() {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8, 13}) {
    counting_resource upstream;
    spar::simulator_options options;
    options.memory = &upstream;
    spar::simulator engine{ranks, options};
    std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(3000, 0.0F));
    for (int call = 0; call < warm; ++call) run_once(engine, upstream, dense_call<Algorithm>{&x});
    const taken idle = run_once(engine, upstream, nothing{});
    for (const std::size_t n : {3000U, 2000U, 600U, 600U, 3000U}) {
      if (std::is_same_v<Algorithm, spar::dense> && n < 3000) continue; // may choose another algorithm
      for (auto& mine : x) mine.resize(n);
      EXPECT_EQ(run_once(engine, upstream, dense_call<Algorithm>{&x}), idle) << "P = " << ranks << ", n = " << n;
    }
  }
}

TEST(dense_allocations, none_after_the_first_call) {
  expect_no_dense_allocations<spar::recursive_doubling>();
  expect_no_dense_allocations<spar::ring>();
  expect_no_dense_allocations<spar::rabenseifner>();
  expect_no_dense_allocations<spar::dense>();
}

/// Everything that spar takes comes back when transports and results are gone.
TEST(allocations_of_a_transport, are_given_back) {
  counting_resource upstream;
  {
    std::vector<spar::stream<float, index>> kept(4);
    {
      spar::thread_options options;
      options.memory = &upstream;
      const auto mine = contributions<float, index>(pattern::random, 4, 3000, 1, exact_value<float>);
      spar::thread_group group{4, options};
      group.run([&](spar::threads& net) {
        const auto rank = static_cast<std::size_t>(net.rank());
        kept[rank] = spar::allreduce(net, mine[rank].view(), spar::ssar_split{});
      });
    }
    EXPECT_GT(kept[3].count(), 0U) << "a result outlives its transport";
    EXPECT_GT(upstream.outstanding(), 0);
  }
  EXPECT_EQ(upstream.outstanding(), 0);
  EXPECT_EQ(upstream.outstanding_bytes(), 0);
}

TEST(allocations_of_a_simulator, are_given_back_after_an_error_too) {
  counting_resource upstream;
  {
    struct fails {
      spar::task<void> operator()(spar::sim& net) const& {
        std::vector<float> x(2000);
        if (net.rank() == 2) co_return;
        auto pending = spar::start_allreduce(net, std::span<float>(x), spar::ring{});
        co_await std::move(pending);
      }
    };
    spar::simulator_options options;
    options.memory = &upstream;
    EXPECT_THROW(run_sim(5, fails{}, options), spar::deadlock);
  }
  EXPECT_EQ(upstream.outstanding(), 0);
}

} // namespace
} // namespace spar_test
