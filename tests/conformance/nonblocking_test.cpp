// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Non-blocking calls: many in flight, completed in another order than started, polled, moved, dropped.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory_resource>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using input = contribution<float, index>;
constexpr std::size_t calls = 12;

/// The inputs and results of many calls on each rank.
struct many_calls {
  std::vector<std::vector<input>> inputs; // [call][rank]
  std::vector<std::vector<spar::sparse_stream<float, index>>> results;
  std::vector<std::vector<std::vector<float>>> dense;

  explicit many_calls(spar::rank_t ranks) {
    const auto p = static_cast<std::size_t>(ranks);
    for (std::size_t c = 0; c < calls; ++c) {
      const std::uint64_t n = c % 3 == 0 ? 5000 : 100 + c;
      inputs.push_back(contributions<float, index>(c % 2 == 0 ? pattern::random : pattern::identical, ranks, n, c,
                                                   exact_value<float>));
      results.emplace_back(p);
      dense.emplace_back(p, std::vector<float>(200 + 300 * c, static_cast<float>(c)));
    }
  }

  void check() const {
    for (std::size_t c = 0; c < calls; ++c) {
      SCOPED_TRACE(c);
      ASSERT_NO_FATAL_FAILURE(expect_result(results[c], expected_of(inputs[c], spar::sum{}), spar::sum{}, exactly));
      for (const auto& x : dense[c]) {
        ASSERT_EQ(x, std::vector<float>(x.size(), static_cast<float>(c * dense[c].size())));
      }
    }
  }
};

template <class Net>
using pending_sum = spar::pending<Net, spar::sparse_stream<float, index>>;

/// Starts the sparse call `c`; the algorithm depends on c.
template <class Net>
pending_sum<Net> start_sparse(Net& net, const input& mine, std::size_t c) {
  switch (c % 5) {
  case 0:
    return spar::start_allreduce(net, mine.view(), spar::recursive_doubling{});
  case 1:
    return spar::start_allreduce(net, mine.view(), spar::ssar_split{});
  case 2:
    return spar::start_allreduce(net, mine.view(), spar::dsar_split{});
  case 3:
    return spar::start_allreduce(net, mine.view(), spar::ring{});
  default:
    return spar::start_allreduce(net, mine.view(), spar::sparcml{});
  }
}

/// Starts all calls, then awaits them in an order that differs from rank to rank.
struct interleaved {
  many_calls* data;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    std::vector<pending_sum<Net>> sparse;
    std::vector<spar::pending<Net, void>> dense;
    for (std::size_t c = 0; c < calls; ++c) {
      sparse.push_back(start_sparse(net, data->inputs[c][rank], c));
      const std::span<float> x(data->dense[c][rank]);
      if (c % 2 == 0)
        dense.push_back(spar::start_allreduce(net, x, spar::ring{}));
      else
        dense.push_back(spar::start_allreduce(net, x, spar::rabenseifner{}));
    }
    std::vector<std::size_t> order(calls);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 random(rank);
    if (rank == 1)
      std::reverse(order.begin(), order.end());
    else if (rank > 1)
      std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t c : order) {
      co_await std::move(dense[calls - 1 - c]);
      auto sum = co_await std::move(sparse[c]);
      data->results[c][rank] = std::move(sum);
    }
  }
};

TEST(nonblocking, many_in_flight_finished_in_another_order) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      many_calls data{ranks};
      run(where, ranks, interleaved{&data});
      ASSERT_NO_FATAL_FAILURE(data.check());
    }
  }
}

TEST(nonblocking, many_in_flight_in_every_order_of_arrival) {
  const std::uint64_t seeds = runs_all_cases() ? 50 : 20;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    many_calls data{5};
    run_sim<spar::any_transport>(5, interleaved{&data}, random_order(seed, seed % 2 == 0));
    ASSERT_NO_FATAL_FAILURE(data.check());
  }
}

TEST(nonblocking, polled_and_waited_for_in_another_order) {
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {1, 2, 3, 8}) {
      many_calls data{ranks};
      spar::thread_group group{ranks, {.synchronous = synchronous}};
      group.run([&](spar::threads& net) {
        const auto rank = static_cast<std::size_t>(net.rank());
        std::vector<pending_sum<spar::threads>> sparse;
        for (std::size_t c = 0; c < calls; ++c) sparse.push_back(start_sparse(net, data.inputs[c][rank], c));
        for (std::size_t c = calls; c-- > 0;) spar::allreduce(net, std::span<float>(data.dense[c][rank]));
        for (std::size_t c = calls; c-- > 0;) {
          if (c % 2 == 0) {
            while (!sparse[c].done()) {
            }
          }
          data.results[c][rank] = sparse[c].wait();
        }
      });
      ASSERT_NO_FATAL_FAILURE(data.check());
    }
  }
}

TEST(nonblocking, a_dropped_handle_waits) {
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {1, 2, 5, 8}) {
      std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(10'000, 1.0F));
      spar::thread_group group{ranks, {.synchronous = synchronous}};
      group.run([&](spar::threads& net) {
        auto& mine = x[static_cast<std::size_t>(net.rank())];
        {
          const auto dropped = spar::start_allreduce(net, std::span<float>(mine), spar::ring{});
        }
        EXPECT_EQ(mine, std::vector<float>(10'000, static_cast<float>(ranks)));
        spar::allreduce(net, std::span<float>(mine), spar::ring{});
        EXPECT_EQ(mine, std::vector<float>(10'000, static_cast<float>(ranks * ranks)));
      });
    }
  }
}

struct moved_handle {
  std::vector<std::vector<float>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<float> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto first = spar::start_allreduce(net, mine, spar::recursive_doubling{});
    auto second = std::move(first);
    std::vector<spar::pending<Net, void>> kept;
    kept.push_back(std::move(second));
    kept.reserve(100);
    auto back = std::move(kept.back());
    kept.pop_back();
    co_await std::move(back);
    EXPECT_GE(back.statistics().seconds, 0.0);
  }
};

TEST(nonblocking, handles_can_be_moved) {
  for (const mode where : all_modes) {
    std::vector<std::vector<float>> x(4, std::vector<float>(3000, 2.0F));
    run(where, 4, moved_handle{&x});
    for (const auto& mine : x) ASSERT_EQ(mine, std::vector<float>(3000, 8.0F));
  }
}

/// Expects `invalid_argument` with these words.
template <class F>
void expect_invalid(F&& f, const char* words) {
  try {
    f();
    ADD_FAILURE() << "no error: " << words;
  } catch (const spar::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST(nonblocking, a_result_is_given_once) {
  std::vector<input> inputs = contributions<float, index>(pattern::random, 2, 100, 1, exact_value<float>);
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const auto mine = inputs[static_cast<std::size_t>(net.rank())].view();
    const auto once = [](auto call) {
      (void)call.wait();
      EXPECT_TRUE(call.done());
      expect_invalid([&] { (void)call.wait(); }, "was already taken");
      (void)call.statistics();
    };
    once(spar::start_allreduce(net, mine));
    once(spar::start_reduce(net, mine, 0));
    once(spar::start_allgather(net, mine));
    spar::topka<float> reduce{{.select = {.k = 2}}};
    std::vector<float> x(100, 1.0F);
    once(reduce.start_reduce(net, std::span<const float>(x)));
    auto partial = spar::partial_allreduce<float>(net, x.size(), spar::everyone{});
    once(partial.start(std::span(x)));
    (void)partial.drain(std::span(x));
    auto dense = spar::start_allreduce(net, x);
    dense.wait();
    dense.wait(); // a call without a result does nothing
  });
}

TEST(nonblocking, a_moved_from_handle_ends_in_a_sentence) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    std::vector<float> x(100, 1.0F);
    auto old = spar::start_allreduce(net, x);
    auto call = std::move(old);
    for (const bool ended : {false, true}) {
      constexpr const char* words = "this handle has no call";
      expect_invalid([&] { old.wait(); }, words);
      expect_invalid([&] { (void)old.done(); }, words);
      expect_invalid([&] { old.cancel(); }, words);
      expect_invalid([&] { (void)old.statistics(); }, words);
      expect_invalid([&] { (void)old.await_ready(); }, words);
      if (!ended) call.wait();
    }
    auto last = std::move(call);
    EXPECT_TRUE(last.done());
    EXPECT_EQ(x[99], 2.0F);
    const auto of_nothing = std::move(old); // may be moved and destroyed
  });
}

TEST(nonblocking, more_than_the_tags_allow_at_once) {
  // Tags are reused after max_in_flight collectives, so further calls wait.
  constexpr std::size_t many = spar::max_in_flight + 500;
  std::vector<std::vector<std::int64_t>> x(3, std::vector<std::int64_t>(many));
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    auto& mine = x[static_cast<std::size_t>(net.rank())];
    std::iota(mine.begin(), mine.end(), std::int64_t{net.rank()});
    std::vector<spar::pending<spar::threads, void>> started;
    for (std::size_t c = 0; c < many; ++c) {
      started.push_back(spar::start_allreduce(net, std::span(mine).subspan(c, 1), spar::recursive_doubling{}));
    }
    for (auto& call : started) call.wait();
  });
  for (const auto& mine : x) {
    for (std::size_t c = 0; c < many; ++c) ASSERT_EQ(mine[c], static_cast<std::int64_t>(3 * c + 3));
  }
}

TEST(nonblocking, tags_wrap_around) {
  std::vector<std::int64_t> x(3, 1);
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    auto& mine = x[static_cast<std::size_t>(net.rank())];
    for (std::size_t c = 0; c < 2 * spar::max_in_flight + 3; ++c) {
      mine = net.rank() + 1;
      spar::allreduce(net, std::span<std::int64_t>(&mine, 1));
      ASSERT_EQ(mine, 6) << "call " << c;
    }
  });
}

/// Two collectives at the same time, with separate statistics.
struct counted_apart {
  std::vector<std::vector<float>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const std::span<float> large((*x)[rank]);
    auto first = spar::start_allreduce(net, large.first(1000), spar::recursive_doubling{});
    auto second = spar::start_allreduce(net, large.subspan(1000, 10), spar::recursive_doubling{});
    co_await std::move(second);
    EXPECT_EQ(second.statistics().messages_sent, 2U);
    EXPECT_EQ(second.statistics().bytes_sent, 2U * 10 * sizeof(float));
    EXPECT_EQ(second.statistics().bytes_received, 2U * 10 * sizeof(float));
    co_await std::move(first);
    EXPECT_EQ(first.statistics().messages_sent, 2U);
    EXPECT_EQ(first.statistics().bytes_sent, 2U * 1000 * sizeof(float));
    EXPECT_EQ(first.statistics().messages_received, 2U);
    EXPECT_EQ(first.statistics().header_bytes_sent, 2U * sizeof(spar::header));
    EXPECT_EQ(net.statistics().messages_sent, 4U);
    EXPECT_EQ(net.statistics().bytes_sent, 2U * 1010 * sizeof(float));
  }
};

TEST(nonblocking, statistics_belong_to_their_call) {
  for (const mode where : all_modes) {
    std::vector<std::vector<float>> x(4, std::vector<float>(2000, 2.0F));
    run(where, 4, counted_apart{&x});
  }
}

/// A call that fails to start for lack of memory, blocking or not, kills the communicator, so that peers do not wait
/// for this rank. It leaves nothing else behind.
TEST(nonblocking, a_start_without_memory_ends_the_communicator) {
  class failing final : public std::pmr::memory_resource {
   public:
    bool fails = true;

   private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      if (fails) throw std::bad_alloc();
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
      std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  } upstream;
  spar::thread_options options;
  options.memory = &upstream;
  spar::thread_group group(1, options);
  std::vector<float> x(100, 1.0F);
  EXPECT_THROW((void)spar::start_allreduce(group.rank(0), std::span(x)), std::bad_alloc);
  EXPECT_TRUE(group.rank(0).dead());
  upstream.fails = false;
  EXPECT_THROW(spar::allreduce(group.rank(0), std::span(x)), spar::peer_failed);

  spar::thread_group another(1, options);
  upstream.fails = true;
  EXPECT_THROW(spar::allreduce(another.rank(0), std::span(x)), std::bad_alloc);
  EXPECT_TRUE(another.rank(0).dead());
  upstream.fails = false;
  EXPECT_THROW(spar::allreduce(another.rank(0), std::span(x)), spar::peer_failed);
}

/// Starts a second call once `first` has ended.
spar::task<void> follow(spar::threads& net, spar::pending<spar::threads, void>* first, float* x) {
  co_await std::move(*first);
  auto second = spar::start_allreduce(net, std::span<float>(x, 1));
  co_await std::move(second);
}

// Rank 0 makes no progress for a while. When its blocking call begins, progress completes `first`, and `follow` starts
// another call. The blocking call must have its number by then, because the other rank makes that call first.
TEST(nonblocking, a_call_has_its_number_before_progress_lets_another_one_begin) {
  std::latch waits(2);
  spar::thread_group group(2);
  group.run([&](spar::threads& net) {
    float x = 1;
    float y = 1;
    std::vector<float> z(7, 1.0F);
    if (net.rank() == 0) {
      auto first = spar::start_allreduce(net, std::span<float>(&x, 1));
      auto follower = follow(net, &first, &y);
      waits.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      spar::allreduce(net, std::span(z));
      spar::run_until_done(net, std::move(follower));
    } else {
      waits.arrive_and_wait();
      auto first = spar::start_allreduce(net, std::span<float>(&x, 1));
      spar::allreduce(net, std::span(z));
      first.wait();
      spar::allreduce(net, std::span<float>(&y, 1));
    }
    EXPECT_EQ(x, 2.0F);
    EXPECT_EQ(y, 2.0F);
    EXPECT_EQ(z, std::vector<float>(7, 2.0F));
  });
}

TEST(nonblocking, to_cancel_a_call_that_has_ended_changes_nothing) {
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    while (!call.done()) {
    }
    call.cancel();
    EXPECT_FALSE(net.dead());
    call.wait();
    spar::allreduce(net, std::span(x));
    EXPECT_EQ(x[9], 4.0F);
  });
}

} // namespace
} // namespace spar_test
