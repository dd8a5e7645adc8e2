// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// After some rounds that are no smaller, a partial allreduce allocates nothing, neither from the transport's memory
// resource nor from anywhere else, also if a rank is late, so that its values are held back and results wait for it.
#include "support/compositions.hpp"
#include "support/counting_resource.hpp"
#include "support/global_allocations.hpp"
#include "support/ranks.hpp"

#include <spar/storage/coded.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

constexpr std::size_t n = 3000;

/// The arguments that a rank's calls borrow: dense values, or a stream. The stream has a tenth of the values, other
/// ones on each rank, or those of all ranks, so that a round is as large whoever takes part in it.
struct arguments {
  std::vector<float> x = std::vector<float>(n);
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  arguments(spar::rank_t first, spar::rank_t count) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto rank = static_cast<spar::rank_t>(i % 10);
      if (rank < first || rank >= first + count) continue;
      indices.push_back(static_cast<std::uint32_t>(i));
      values.push_back(1.0F);
    }
  }
  template <class Reduce>
  auto start(Reduce& reduce) {
    if constexpr (requires { reduce.start(std::span(x)); })
      return reduce.start(std::span(x));
    else
      return reduce.start(spar::sparse_view(n, indices, values));
  }
};

/// Makes calls in blocks. Rank 0 makes all calls of a block at once, `late` seconds after the others, so that all of
/// its calls but the last hold their values back and results wait for rank 0. Compares the allocations before and after
/// the last blocks. In the first blocks, streams have the values of all ranks: a rank that is late keeps several
/// results at once, which must not be larger than those that it kept before.
template <class Of, class Algorithm, class Participation>
struct blocks_of_calls {
  static constexpr int blocks = 16;
  static constexpr int block = 8;
  const counting_resource* upstream;
  Participation who;
  double late;
  taken* before;
  taken* after;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto reduce = spar::partial_allreduce<Of>(net, n, who, Algorithm{});
    arguments mine(net.rank(), 1);
    arguments whole(0, net.size());
    for (int b = 0; b < blocks; ++b) {
      if (net.rank() == 0 && b == blocks / 2) *before = {upstream->allocations(), global_allocations()};
      if (net.rank() == 0 && b == blocks - 1) *after = {upstream->allocations(), global_allocations()};
      if (net.rank() == 0) co_await net.sleep(late);
      for (int c = 0; c < block; ++c) {
        auto call = (b < blocks / 4 ? whole : mine).start(reduce);
        co_await std::move(call);
      }
      co_await net.sleep(1.0 * (b + 1) - net.now()); // all ranks begin the next block together
    }
  }
};

template <class Of, class Algorithm = spar::sparcml, class Participation>
void expect_none_in_the_simulator(const Participation& who) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7}) {
    for (const double late : {0.0, 0.5}) {
      for (const bool synchronous : {false, true}) {
        SCOPED_TRACE(testing::Message() << "P = " << ranks << ", late by " << late
                                        << (synchronous ? ", synchronous" : ""));
        counting_resource upstream;
        spar::simulator_options options{.synchronous = synchronous};
        options.memory = &upstream;
        taken before{};
        taken after{1, 1};
        run_sim(ranks, blocks_of_calls<Of, Algorithm, Participation>{&upstream, who, late, &before, &after}, options);
        EXPECT_EQ(after, before);
      }
    }
  }
}

TEST(partial_allocations, none_after_some_rounds_of_dense_values) {
  expect_none_in_the_simulator<float>(spar::solo{});
  expect_none_in_the_simulator<float>(spar::quorum{1});
}

TEST(partial_allocations, none_after_some_rounds_of_streams) {
  expect_none_in_the_simulator<spar::sparse_stream<float>>(spar::solo{});
  expect_none_in_the_simulator<spar::sparse_stream<float>>(spar::quorum{1});
}

#if SPAR_ALL_CASES
TEST(partial_allocations, none_after_some_rounds_of_streams_in_a_code) {
  using spar::storage::coded;
  expect_none_in_the_simulator<spar::sparse_stream<float>, stored<coded<>, spar::ssar_split>>(spar::solo{});
  expect_none_in_the_simulator<spar::sparse_stream<float>, stored<coded<7>, spar::recursive_doubling>>(spar::quorum{1});
}
#endif

/// A barrier among the threads that does not allocate.
class meeting {
 public:
  explicit meeting(int ranks) : ranks_(ranks) {}
  void wait() {
    const int now = ++arrived_;
    const int all = (now + ranks_ - 1) / ranks_ * ranks_;
    while (arrived_ < all) std::this_thread::yield();
  }

 private:
  int ranks_;
  std::atomic<int> arrived_ = 0;
};

/// Runs with progress threads, whose timing decides who takes part in a round and how many calls a rank makes between
/// the ends of two rounds. The pool counts the requests between two such ends and grows with the largest count so far.
/// So the warm-up first puts each rank through the most that a block can require: while another rank stalls in a round
/// to which all contribute, the rank has made twice a block's calls since the last round, and makes one more. It does
/// so with streams that have the values of all ranks, as a rank that is late keeps the results of several rounds at
/// once. Then, in each block, one rank makes its calls after the others have made theirs.
template <class Of, class Participation>
void expect_none_with_threads(const Participation& who) {
  constexpr int ranks = 3;
  constexpr int blocks = 30;
  constexpr int block = 8;
  counting_resource upstream;
  spar::thread_group group{ranks, {.memory = &upstream}};
  meeting meet(ranks);
  taken before{};
  taken after{};
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    auto reduce = spar::partial_allreduce<Of>(net, n, who);
    arguments mine(net.rank(), 1);
    arguments whole(0, ranks);
    arguments* use = &whole;
    const auto calls = [&](int count) {
      for (int c = 0; c < count; ++c) {
        auto call = use->start(reduce);
        call.wait();
      }
    };
    enum { leads, stalls, is_late };
    for (int first = 0; first < 2 * ranks; ++first) {
      if (first == ranks) use = &mine;
      const int role = (net.rank() + 2 * ranks - first) % ranks;
      for (const int next : {leads, stalls, is_late}) {
        if (role == next) calls(2 * block);
        meet.wait();
      }
      if (role == stalls) {
        const spar::detail::rank_lock taken_from_the_progress_thread(net.port().shared());
        meet.wait();
        meet.wait();
      } else {
        meet.wait();
        while (role == is_late && !reduce.progress()) std::this_thread::yield();
        auto call = use->start(reduce);
        meet.wait();
        call.wait();
      }
      if (role == stalls) calls(1);
      meet.wait();
    }
    if (net.rank() == 0) before = {upstream.allocations(), global_allocations()};
    meet.wait();
    for (int b = 0; b < blocks; ++b) {
      const bool late = net.rank() == b % ranks;
      if (!late) calls(block);
      meet.wait();
      if (late) calls(block);
      meet.wait();
    }
    if (net.rank() == 0) after = {upstream.allocations(), global_allocations()};
    meet.wait();
  });
  EXPECT_EQ(after, before);
}

TEST(partial_allocations, none_after_some_rounds_among_threads) {
  expect_none_with_threads<float>(spar::solo{});
  expect_none_with_threads<spar::sparse_stream<float>>(spar::solo{});
}

} // namespace
} // namespace spar_test
