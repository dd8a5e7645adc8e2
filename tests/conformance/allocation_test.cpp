// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call no larger than an earlier one allocates nothing: neither from the resource that the transport was given, nor,
// in the simulator, where the order of events repeats, from anywhere.
#include "support/counting_resource.hpp"
#include "support/global_allocations.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;

/// One call after the other; `after(call)` is called on each rank when its call has ended.
template <class Algorithm, class After>
struct stream_calls {
  std::vector<const inputs*> calls;
  const After* after;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      {
        auto pending =
            spar::start_allreduce(net, (*calls[c])[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
        const auto sum = co_await std::move(pending);
        EXPECT_EQ(sum.dimension(), (*calls[c])[0].n);
      }
      (*after)(c);
    }
  }
};

constexpr std::size_t warm = 6;
constexpr std::size_t repeated = 12;

/// The same large input again and again, then smaller ones.
struct call_list {
  inputs large, small, tiny;
  std::vector<const inputs*> calls;
  explicit call_list(spar::rank_t ranks, pattern shape)
      : large(contributions<float, index>(shape, ranks, 6000, 1, exact_value<float>)),
        small(contributions<float, index>(shape, ranks, 700, 1, exact_value<float>)),
        tiny(contributions<float, index>(shape, ranks, 5, 1, exact_value<float>)) {
    for (std::size_t c = 0; c < warm + repeated; ++c)
      calls.push_back(c < warm + repeated / 3 ? &large : c < warm + 2 * repeated / 3 ? &small : &tiny);
  }
};

template <class Algorithm>
class allocations : public testing::Test {};
using algorithms = testing::Types<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::ssar_split,
                                  spar::dsar_split, spar::split_allgather<spar::storage::qsgd<8>>, spar::sparcml>;
TYPED_TEST_SUITE(allocations, algorithms);

TYPED_TEST(allocations, none_after_the_first_call_in_the_simulator) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8}) {
    for (const pattern shape : {pattern::random, pattern::disjoint, pattern::mixed}) {
      for (const bool synchronous : {false, true}) {
        SCOPED_TRACE(testing::Message() << "P = " << ranks << ", " << shape << ", synchronous: " << synchronous);
        const call_list list{ranks, shape};
        counting_resource upstream;
        spar::simulator_options options;
        options.memory = &upstream;
        options.synchronous = synchronous;
        spar::simulator engine{ranks, options};
        std::vector<std::uint64_t> pooled(list.calls.size());
        std::vector<std::uint64_t> global(list.calls.size());
        const auto after = [&](std::size_t c) { // the last rank to end a call says how it stands
          pooled[c] = upstream.allocations();
          global[c] = global_allocations();
        };
        const stream_calls<TypeParam, decltype(after)> program{list.calls, &after};
        engine.run([&](spar::sim& net) { return program(net); });
        // Ranks may be a call ahead of others, so the first few calls are the first one.
        for (std::size_t c = warm; c < list.calls.size(); ++c) {
          EXPECT_EQ(pooled[c], pooled[warm - 1]) << "call " << c;
          EXPECT_EQ(global[c], global[warm - 1]) << "call " << c;
        }
      }
    }
  }
}

TYPED_TEST(allocations, none_after_the_first_call_on_threads) {
  for (const spar::rank_t ranks : {1, 2, 4, 5}) {
    for (const bool synchronous : {false, true}) {
      SCOPED_TRACE(testing::Message() << "P = " << ranks << ", synchronous: " << synchronous);
      const call_list list{ranks, pattern::random};
      counting_resource upstream;
      spar::thread_options options;
      options.memory = &upstream;
      options.synchronous = synchronous;
      spar::thread_group group{ranks, options};
      std::uint64_t after_warm = 0;
      const auto nothing = [](std::size_t) {};
      for (const bool first : {true, false}) {
        auto calls = list.calls;
        if (first) calls.resize(warm);
        const stream_calls<TypeParam, decltype(nothing)> program{calls, &nothing};
        group.run([&](spar::threads& net) { spar::wait(net, program(net)); });
        if (first) after_warm = upstream.allocations();
      }
      EXPECT_EQ(upstream.allocations(), after_warm);
      EXPECT_GT(after_warm, 0U);
    }
  }
}

template <class Algorithm>
struct dense_calls {
  std::vector<std::vector<float>>* x;
  std::vector<std::uint64_t>* pooled;
  std::vector<std::uint64_t>* global;
  const counting_resource* upstream;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    for (std::size_t c = 0; c < pooled->size(); ++c) {
      const std::span<float> mine((*x)[static_cast<std::size_t>(net.rank())]);
      {
        auto pending = spar::start_allreduce(
            net, mine.first(c < 2 * pooled->size() / 3 ? mine.size() : mine.size() / 5), Algorithm{});
        co_await std::move(pending);
      }
      (*pooled)[c] = upstream->allocations();
      (*global)[c] = global_allocations();
    }
  }
};

template <class Algorithm>
void expect_no_dense_allocations() {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8}) {
    counting_resource upstream;
    spar::simulator_options options;
    options.memory = &upstream;
    spar::simulator engine{ranks, options};
    std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(3000, 0.0F));
    std::vector<std::uint64_t> pooled(warm + repeated), global(warm + repeated);
    const dense_calls<Algorithm> program{&x, &pooled, &global, &upstream};
    engine.run([&](spar::sim& net) { return program(net); });
    for (std::size_t c = warm; c < pooled.size(); ++c) {
      EXPECT_EQ(pooled[c], pooled[warm - 1]) << "P = " << ranks << ", call " << c;
      EXPECT_EQ(global[c], global[warm - 1]) << "P = " << ranks << ", call " << c;
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
