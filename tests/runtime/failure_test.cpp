// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Deadlines, aborts, and the end of a communicator, with in-process and simulated ranks.
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <spar/runtime/progress_thread.hpp>
#include <spar/system/eager_sgd.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

/// A long reason loses its end on the way to other ranks. The rank that gives the reason keeps it, for it recognises
/// its own error by the reason (see thread_group::run).
TEST(abort, keeps_520_characters_of_its_reason_and_sends_516) {
  const std::string reason(520, 'x');
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    if (net.rank() == 0) spar::abort(net, reason);
    std::string text;
    try {
      spar::barrier(net);
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), net.rank() == 0 ? 520 : 516) << text;
  });
}

TEST(deadline, a_silent_rank_is_named) { a_silent_rank_is_named<in_host_memory>(); }
TEST(deadline, is_not_over_for_a_rank_that_is_only_late) {
  the_deadline_is_not_over_for_a_rank_that_is_only_late<in_host_memory>();
}

TEST(deadline, is_looked_at_by_polling_too) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    if (net.rank() == 1) return stay_silent(net);
    net.set_deadline(0.05);
    std::vector<float> x(100, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    while (!call.done()) {
    }
    EXPECT_THROW(call.wait(), spar::timeout);
  });
}

/// Ranks keep buffers of each other in failing calls, too; one rank makes only some of the calls.
TEST(deadline, ends_many_calls_in_any_order) {
  constexpr int calls = 12;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      spar::thread_group group{ranks};
      group.run([&](spar::threads& net) {
        net.set_deadline(0.05);
        std::vector<int> order(calls);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(seed * 100 + static_cast<unsigned>(net.rank())));
        const bool fails = net.rank() == ranks - 1;
        if (fails) order.resize(seed);

        std::vector<std::vector<float>> x(calls, std::vector<float>(20'000, 1.0F));
        std::vector<spar::pending<spar::threads, spar::sparse_stream<float>>> sums;
        std::vector<spar::pending<spar::threads, void>> in_place;
        const auto make = [&](int call) {
          const std::string text = std::to_string(call);
          const spar::named name{text};
          std::vector<float>& mine = x[static_cast<std::size_t>(call)];
          if (call % 4 == 0)
            in_place.push_back(spar::start_allreduce(net, name, std::span(mine), spar::ring{}));
          else if (call % 4 == 1)
            sums.push_back(spar::start_allreduce(net, name, spar::dense_view(mine), spar::recursive_doubling{}));
          else
            sums.push_back(spar::start_allreduce(net, name, spar::dense_view(mine), spar::ssar_split{}));
        };
        const auto ends = [&](auto& call) { return !text_of<spar::timeout>([&] { (void)call.wait(); }).empty(); };
        std::size_t failed = 0;
        failed += text_of<spar::timeout>([&] {
                    for (const int call : order) make(call);
                  }).empty()
                      ? 0U
                      : 1U;
        if (fails && seed % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (fails && seed % 2 == 1) spar::abort(net, "enough");
        for (auto& call : sums) failed += ends(call) ? 1U : 0U;
        for (auto& call : in_place) failed += ends(call) ? 1U : 0U;
        EXPECT_TRUE(fails || failed > 0) << ranks << " ranks, seed " << seed;
      });
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(group.rank(r).memory().live(), 0U);
    }
  }
}

/// Rank 0 sends memory of its pool to rank 1, which reads it for a long time. Then rank 0 waits for a message that
/// never comes.
struct read_slowly {
  static constexpr std::size_t n = 100'000;
  std::atomic<bool>* reads;
  std::atomic<bool>* may_end;
  std::atomic<bool>* has_read;

  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net) const {
    if (net.rank() == 0) {
      spar::buffer<float> mine(net.memory(), n);
      std::fill(mine.span().begin(), mine.span().end(), 1.0F);
      auto sent = net.send(1, {spar::wire_format::dense, n, {std::as_bytes(mine.span())}});
      spar::message_buffer never(net.memory());
      auto received = net.receive(1, never);
      co_await received;
    } else {
      spar::message_buffer lent(net.memory());
      auto received = net.receive(0, lent);
      co_await received;
      *reads = true;
      for (const double start = net.net().now(); !*may_end && net.net().now() < start + 20;) std::this_thread::yield();
      for (const float v : lent.piece<float>(0)) EXPECT_EQ(v, 1.0F);
      *has_read = true;
    }
  }
};

TEST(deadline, keeps_what_another_rank_still_reads) {
  spar::thread_group group{2};
  std::atomic<bool> reads{false}, may_end{false}, has_read{false};
  group.run([&](spar::threads& net) {
    const spar::signature agreed = {.element = spar::code_of<float>, .dimension = read_slowly::n};
    auto call = spar::start_collective(net, agreed, read_slowly{&reads, &may_end, &has_read});
    if (net.rank() == 0) {
      while (!reads) (void)call.done();
      net.set_deadline(0.05);
      while (!net.dead()) (void)call.done();
      spar::buffer<float> other(net.memory(), read_slowly::n); // must not overlap the memory that rank 1 reads
      std::fill(other.span().begin(), other.span().end(), 2.0F);
      for (const double start = net.now(); net.now() < start + 0.1;) EXPECT_FALSE(call.done());
      EXPECT_EQ(has_read, false);
      may_end = true;
    }
    EXPECT_EQ(text_of<spar::timeout>([&] { call.wait(); }).empty(), net.rank() == 1);
    EXPECT_EQ(has_read, true); // the call must not end before rank 1 has read
  });
  EXPECT_EQ(group.rank(0).memory().live(), 0U);
}

TEST(deadline, of_a_blocking_call_keeps_what_another_rank_still_reads) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    spar::thread_group group{2};
    std::atomic<bool> reads{false}, may_end{false}, has_read{false};
    group.run([&](spar::threads& net) {
      net.set_deadline(net.rank() == 0 ? 0.2 : 60);
      const spar::signature agreed{.element = spar::code_of<float>, .dimension = read_slowly::n};
      if (net.rank() == 1) {
        auto call = spar::start_collective(net, agreed, read_slowly{&reads, &may_end, &has_read});
        (void)text_of<spar::peer_failed>([&] { call.wait(); });
        return;
      }
      std::thread later([&] { // by then rank 0 has exceeded its deadline
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        may_end = true;
      });
      EXPECT_THROW(spar::run_collective(net, agreed, read_slowly{&reads, &may_end, &has_read}), spar::timeout);
      EXPECT_EQ(has_read, reads);
      later.join();
    });
    if (has_read) return;
  }
  ADD_FAILURE() << "the other rank was late in every attempt";
}

/// Rank 1 never calls; the others have a deadline in virtual time.
struct silent_in_the_simulator {
  std::vector<double>* ended;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_deadline(2.5);
    std::vector<float> x(100, 1.0F);
    if (net.rank() == 1) {
      auto late = net.sleep(10);
      co_await late;
      co_return;
    }
    auto call = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    try {
      co_await std::move(call);
      ADD_FAILURE() << "no error";
    } catch (const spar::timeout&) {
    } catch (const spar::peer_failed&) {
    }
    (*ended)[static_cast<std::size_t>(net.rank())] = net.now();
  }
};

TEST(deadline, is_looked_at_in_rare_polls_too) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    if (net.rank() == 1) return stay_silent(net);
    net.set_deadline(0.1);
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    const double start = net.now();
    while (!call.done() && net.now() < start + 10) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LT(net.now() - start, 5);
    EXPECT_THROW(call.wait(), spar::timeout);
  });
}

TEST(deadline, in_virtual_time) {
  std::vector<double> ended(5, 2.5);
  run_sim(5, silent_in_the_simulator{&ended});
  for (const double time : ended) EXPECT_NEAR(time, 2.5, 1e-3);
}

/// Two calls: the first takes some time; only rank 0 makes the second one.
struct late_silence {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_deadline(1);
    std::vector<float> x(100, 1.0F);
    auto first = spar::start_allreduce(net, std::span(x));
    co_await std::move(first);
    if (net.rank() == 1) {
      auto late = net.sleep(10);
      co_await late;
      co_return;
    }
    auto second = spar::start_allreduce(net, std::span(x));
    try {
      co_await std::move(second);
      ADD_FAILURE() << "no error";
    } catch (const spar::timeout&) {
    }
  }
};

TEST(deadline, is_noticed_whatever_the_rounding_of_its_time) {
  for (int i = 1; i < 500; ++i) {
    spar::simulator_options options;
    options.latency = 1e-6 * i / 7;
    EXPECT_NO_THROW(run_sim(2, late_silence{}, options)) << options.latency;
  }
}

TEST(abort, reaches_those_who_wait_and_those_who_call_later) {
  an_abort_reaches_those_who_wait_and_those_who_call_later<in_host_memory>();
}

/// Of two aborts whose control messages are interleaved, only the one whose first part came first counts.
TEST(abort, of_two_ranks_counts_once) {
  spar::thread_group group(4);
  spar::endpoint& node = group.rank(0).port();
  const std::string reason(80, 'a');
  for (const std::size_t at : {0U, 52U}) {
    for (const spar::rank_t failed : {2, 3}) {
      const std::string text = std::string{static_cast<char>(failed), 0, 0, 0} + reason;
      node.on_control_message(spar::part_of(spar::control_message::purpose::abort, failed, text, at));
    }
  }
  EXPECT_EQ(node.failure().failed_rank(), 2);
  EXPECT_EQ(node.failure().reason(), reason);
}

TEST(abort, lets_values_be_freed) { values_may_be_freed_once_their_call_has_failed<in_host_memory>(); }

/// Several calls are in flight when rank 1 aborts; a coroutine that waits for one of them gets the error.
struct aborted_in_flight {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(5000, 1.0F);
    std::vector<float> y(10, 1.0F);
    int failed = 0;
    if (net.rank() == 1) {
      spar::abort(net, "enough");
    } else {
      auto first = spar::start_allreduce(net, std::span(x), spar::ring{});
      auto second = spar::start_allreduce(net, std::span(y), spar::recursive_doubling{});
      try {
        co_await std::move(second);
      } catch (const spar::peer_failed& e) {
        EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos);
        ++failed;
      }
      try {
        co_await std::move(first);
      } catch (const spar::peer_failed&) {
        ++failed;
      }
      EXPECT_EQ(failed, 2);
    }
  }
};

TEST(abort, ends_every_call_in_flight) {
  for (const mode where : all_modes) {
    SCOPED_TRACE(where);
    for (const spar::rank_t ranks : {2, 3, 4, 5}) run(where, ranks, aborted_in_flight{});
  }
}

TEST(abort, by_cancelling_a_call) { a_cancelled_call_ends_on_all_ranks<in_host_memory>(); }

/// Rank 1 keeps a buffer of rank 0 until rank 2 sends as well, which never happens. Rank 1 aborts and makes no further
/// call, so the abort must give the buffer back.
TEST(abort, gives_back_what_others_have_lent) {
  for (const bool cancels : {false, true}) {
    spar::thread_group group{3};
    std::atomic<bool> ended{false};
    group.run([&](spar::threads& net) {
      if (net.rank() == 2) return;
      std::vector<float> x(100'000, 1.0F);
      const auto view = spar::dense_view(x);
      if (net.rank() == 0) {
        EXPECT_THROW((void)spar::allreduce(net, view, spar::ssar_split{}), spar::peer_failed);
        ended = true;
        return;
      }
      auto call = spar::start_allreduce(net, view, spar::ssar_split{});
      for (const double start = net.now(); net.now() < start + 0.1;) (void)call.done();
      if (cancels)
        call.cancel();
      else
        spar::abort(net, "enough");
      for (const double start = net.now(); !ended && net.now() < start + 10;) std::this_thread::yield();
      EXPECT_TRUE(ended);
    });
  }
}

TEST(abort, ends_calls_that_await_nothing) {
  spar::thread_group group{1};
  group.run([](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    spar::allreduce(net, std::span(x));
    spar::abort(net, "enough");
    EXPECT_NE(text_of<spar::peer_failed>([&] { spar::allreduce(net, std::span(x)); }), "");
    EXPECT_NE(text_of<spar::peer_failed>([&] { spar::start_allreduce(net, std::span(x)).wait(); }), "");
  });
}

TEST(abort, a_group_that_has_failed_says_so_when_it_runs_again) {
  spar::thread_group group{2};
  EXPECT_THROW(group.run([](spar::threads& net) { net.rank() == 1 ? throw std::out_of_range("why") : void(); }),
               std::out_of_range);
  bool ran = false;
  EXPECT_EQ(text_of<spar::invalid_argument>([&] { group.run([&](spar::threads&) { ran = true; }); }),
            "this thread_group has failed, and cannot run again; construct another one. Its error: why");
  EXPECT_FALSE(ran);
}

TEST(abort, of_one_group_leaves_another_alive) {
  spar::thread_group first{3};
  spar::thread_group second{3};
  first.run([&](spar::threads& net) {
    if (net.rank() == 0) spar::abort(net, "enough");
    std::vector<float> x(10, 1.0F);
    EXPECT_THROW(spar::allreduce(net, std::span(x)), spar::peer_failed);
    spar::allreduce(second.rank(net.rank()), std::span(x));
    EXPECT_EQ(x[0], 3.0F);
  });
}

/// An operation that throws on one rank only, so that the call fails there.
struct throwing_sum {
  static constexpr std::string_view name = "throwing_sum";
  bool throws = false;
  template <class T>
  [[nodiscard]] T operator()(T a, T b) const {
    if (throws) throw std::runtime_error("out of paper");
    return a + b;
  }
  template <class T>
  [[nodiscard]] static T neutral() {
    return T{};
  }
};

TEST(abort, by_a_call_that_fails_on_one_rank) {
  for (const std::size_t n : sizes) {
    for (const bool synchronous : {false, true}) {
      spar::thread_group group{4, {.synchronous = synchronous}};
      group.run([&](spar::threads& net) {
        std::vector<float> x(n, 1.0F);
        const std::string text = text_of<std::runtime_error>(
            [&] { spar::allreduce(net, std::span(x), spar::recursive_doubling{}, throwing_sum{net.rank() == 1}); });
        if (text.empty()) { // this rank had its result already, so its next call fails
          EXPECT_THROW(
              {
                for (int calls = 0; calls < 1000; ++calls) spar::allreduce(net, std::span(x));
              },
              spar::peer_failed);
        } else {
          EXPECT_NE(text.find("out of paper"), std::string::npos) << text;
        }
      });
    }
  }
}

TEST(checksums, results_are_the_same_with_them) {
  for (const std::size_t n : sizes) {
    spar::thread_group group{3};
    group.run([&](spar::threads& net) {
      net.set_checksums(true);
      std::vector<float> x(n, 1.0F);
      spar::allreduce(net, std::span(x));
      EXPECT_EQ(x, std::vector<float>(n, 3.0F));
      const std::vector<std::uint32_t> indices{1, 5};
      const std::vector<float> values{1.0F, 2.0F};
      const auto sum = spar::allreduce(net, spar::sparse_view(n, indices, values));
      sum.to_dense(std::span(x), spar::sum{});
      EXPECT_EQ(x[1], 3.0F);
      EXPECT_EQ(x[5], 6.0F);
    });
  }
}

/// Rank 0 broadcasts and leaves at once; the other ranks make one more call if `one_more`, which must fail.
struct root_that_leaves {
  std::size_t n;
  bool one_more;
  bool is_named;
  std::vector<std::string>* errors;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(n);
    std::string& text = (*errors)[static_cast<std::size_t>(net.rank())];
    const int calls = one_more && net.rank() != 0 ? 4 : 3;
    try {
      for (int call = 0; call < calls; ++call) {
        if (net.rank() == 0) x.assign(n, static_cast<float>(call + 1));
        if (is_named) {
          auto pending = spar::start_broadcast(net, spar::named{"weights"}, std::span(x), 0);
          co_await std::move(pending);
        } else {
          auto pending = spar::start_broadcast(net, std::span(x), 0);
          co_await std::move(pending);
        }
        EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(call + 1)));
        EXPECT_LT(call, 3);
      }
    } catch (const spar::peer_failed& e) {
      text = e.what();
      EXPECT_EQ(net.failed_rank(), 0) << "rank " << net.rank();
    }
  }
};

/// `run_on(ranks, program)` runs a program on new ranks.
template <class Run>
void a_root_leaves(const Run& run_on) {
  for (const std::size_t n : sizes) {
    for (const bool is_named : {false, true}) {
      for (const bool one_more : {false, true}) {
        std::vector<std::string> errors(4);
        run_on(4, root_that_leaves{n, one_more, is_named, &errors});
        const std::string expected =
            spar::sentence("rank 0 has left (calls ", is_named ? "of this name" : "without a name", ": 3), but rank ");
        for (std::size_t r = 0; r < 4; ++r) {
          SCOPED_TRACE(testing::Message() << n << " values, rank " << r << (is_named ? ", named" : ""));
          EXPECT_EQ(errors[r].empty(), !one_more || r == 0) << errors[r];
          if (!errors[r].empty()) {
            EXPECT_NE(errors[r].find(expected), std::string::npos) << errors[r];
          }
        }
      }
    }
  }
}

TEST(leaving, a_root_that_leaves_at_once_ends_only_the_calls_that_it_has_not_made) {
  for (const mode where : all_modes) {
    SCOPED_TRACE(testing::Message() << where);
    a_root_leaves([=](spar::rank_t ranks, const auto& program) { run(where, ranks, program); });
  }
}

TEST(leaving, in_any_order_of_messages) {
  for (std::uint64_t seed = 1; has_sim && seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    a_root_leaves([=](spar::rank_t ranks, const auto& program) { run_sim(ranks, program, random_order(seed)); });
  }
}

TEST(leaving, a_program_may_run_again_on_the_same_ranks) {
  spar::thread_group threads(3);
  for (int attempt = 0; attempt < 20; ++attempt) {
    threads.run([=](spar::threads& net) {
      std::vector<float> x(10, static_cast<float>(attempt));
      for (int call = 0; call < attempt % 3; ++call) spar::broadcast(net, std::span(x), call);
    });
  }
}

/// Rank 0 says that it has left before it makes its last call, as if the text had overtaken the messages of the call.
TEST(leaving, what_overtakes_the_last_messages_ends_no_call) {
  using purpose = spar::control_message::purpose;
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    net.port().leavers().set_late(1);
    if (net.rank() == 0) {
      const spar::detail::calls_of_leaver calls({}, {1}, 1);
      net.port().post(spar::part_of(purpose::left, 0, calls.text(), 0), 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(50)); // rank 1 should wait meanwhile
    }
    spar::broadcast(net, std::span(x), 0);
    if (net.rank() == 1) {
      EXPECT_THROW(spar::broadcast(net, std::span(x), 0), spar::peer_failed);
    }
  });
}

/// Rank 0 takes rank 1 for the root of a broadcast, which the others receive from rank 2. They make `more` broadcasts,
/// and leave.
struct another_root {
  int more;
  std::string* error;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(10);
    try {
      for (int call = 0; call <= more; ++call) {
        auto pending = spar::start_broadcast(net, std::span(x), net.rank() == 0 ? 1 : 2);
        co_await std::move(pending);
      }
    } catch (const spar::error& e) {
      if (net.rank() == 0) *error = e.what();
    }
  }
};

TEST(leaving, after_a_call_with_another_root_the_roots_are_named) {
  for (const mode where : free_modes) {
    for (const int more : {0, 1}) {
      SCOPED_TRACE(testing::Message() << where << ", " << more);
      std::string text;
      const std::string thrown = text_of<spar::mismatch>([&] { run(where, 3, another_root{more, &text}); });
      text += thrown; // the simulator compares calls in the program that has ended
      const bool names_roots = text.find("rank 1 has 2, rank 0 has 1") != std::string::npos ||
                               (text.find("root=2") != std::string::npos && text.find("root=1") != std::string::npos);
      EXPECT_EQ(names_roots, more == 0 || where == mode::sim) << text;
      EXPECT_NE(text, "");
    }
  }
}

/// Rank 0 leaves without the message for which rank 1 waits, although both ranks have made the same call.
TEST(leaving, without_a_message_ends_the_wait_for_it) {
  for (const bool is_named : {false, true}) {
    spar::thread_group group(2);
    group.run([=](spar::threads& inner) {
      std::vector<float> x(10);
      spar::faulty<spar::threads> net(inner, {{.what = spar::fault::kind::drop, .message = 0}});
      const auto call = [&] {
        if (is_named)
          spar::broadcast(net, spar::named{"weights"}, std::span(x), 0);
        else
          spar::broadcast(net, std::span(x), 0);
      };
      if (net.rank() == 0) return call();
      const std::string text = text_of<spar::peer_failed>(call);
      const std::string kind = is_named ? "of this name" : "without a name";
      EXPECT_NE(text.find("rank 0 has left (calls " + kind + ": 1), but rank 1 waits for a message from rank 0"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("lane 0); all ranks must make the same calls"), std::string::npos) << text;
    });
  }
}

/// The text of a rank that leaves has room for the calls of 58 names.
TEST(leaving, before_a_call_with_a_later_name_ends_it) {
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(10);
    for (int name = 0; name < 60; ++name) spar::broadcast(net, spar::named{std::to_string(name)}, std::span(x), 0);
    if (net.rank() == 0) return;
    const std::string text =
        text_of<spar::peer_failed>([&] { spar::broadcast(net, spar::named{"59"}, std::span(x), 0); });
    EXPECT_NE(text.find("rank 0 has left (calls without a name: 0), but rank 1 waits"), std::string::npos) << text;
  });
}

TEST(leaving, is_certain_only_for_calls_that_the_rank_has_not_made) {
  using calls = spar::detail::calls_of_leaver;
  using spar::detail::leavers;
  const auto unnamed = [](std::uint64_t n) { return n / 2048 * spar::max_in_flight + n % 2048; };
  for (const std::uint64_t made : {0U, 1U, 2047U, 2048U, 2049U, 10'000U}) {
    const calls its({}, {made}, 1);
    for (const std::uint64_t call : {0U, 1U, 2046U, 2047U, 2048U, 2049U, 2050U, 9'999U, 10'000U})
      EXPECT_EQ(its.lack(unnamed(call)), call >= made) << made << " " << call;
  }
  leavers all;
  const std::uint64_t of_names[] = {7, 0, 2};
  all.add(3, calls({}, {5, 7, 0, 2}, 4).text());
  all.add(3, calls({}, {9}, 1).text()); // only the first text counts
  ASSERT_NE(all.find(3), nullptr);
  EXPECT_EQ(all.find(2), nullptr);
  const auto named = [](std::uint64_t name, std::uint64_t turn) { return turn * spar::max_in_flight + 2048 + name; };
  for (const std::uint64_t name : {0U, 1U, 2U, 3U, 57U}) {
    const std::uint64_t made = name < 3 ? of_names[name] : 0;
    for (const std::uint64_t turn : {0U, 1U, 2U, 6U, 7U, 8U})
      EXPECT_EQ(all.find(3)->lack(named(name, turn)), turn >= made);
  }
  EXPECT_FALSE(all.find(3)->lack(named(58, 0))); // of later names it says nothing
  EXPECT_THROW(all.add(1, ""), spar::corrupt_message);
  EXPECT_THROW(all.add(1, "123456789"), spar::corrupt_message);
}

/// In a ring, each rank waits for the next, and rank 3 makes no call.
struct chain {
  std::vector<std::string>* errors;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_deadline(0.2);
    std::vector<float> x(10, 1.0F);
    if (net.rank() == 3) {
      if constexpr (requires { net.sleep(1); }) {
        auto late = net.sleep(1);
        co_await late;
      } else {
        stay_silent(net);
      }
      co_return;
    }
    try {
      auto pending = spar::start_allreduce(net, std::span(x), spar::ring{});
      co_await std::move(pending);
    } catch (const spar::error& e) {
      (*errors)[static_cast<std::size_t>(net.rank())] = e.what();
    }
  }
};

TEST(deadline, names_the_rank_at_the_end_of_the_chain_of_waits) {
  std::vector<std::string> errors(4);
  const auto check = [&] {
    for (const std::size_t r : {0U, 1U, 2U})
      EXPECT_NE(errors[r].find("; rank 3 is in no call (calls without a name: 0)"), std::string::npos) << errors[r];
  };
  if (has_sim) {
    run_sim(4, chain{&errors});
    check();
  }
  if (has_threads) {
    run_threads(4, chain{&errors});
    check();
  }
}

TEST(deadline, of_a_rank_that_answers_nothing_says_so) {
  spar::thread_group group(2);
  std::atomic<bool> ended{false};
  group.run([&](spar::threads& net) {
    if (net.rank() == 1) {
      while (!ended) std::this_thread::yield();
      return;
    }
    net.set_deadline(0.05);
    std::vector<float> x(10, 1.0F);
    const std::string text = text_of<spar::timeout>([&] { spar::allreduce(net, std::span(x)); });
    EXPECT_NE(text.find("rank 1 has not answered for 0.05 s"), std::string::npos) << text;
    ended = true;
  });
}

struct names_that_differ {
  std::vector<std::string>* errors;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_deadline(0.2);
    std::vector<float> x(10, 1.0F);
    try {
      auto pending = spar::start_allreduce(net, spar::named{net.rank() == 0 ? "layer 1" : "layer1"}, std::span(x));
      co_await std::move(pending);
    } catch (const spar::error& e) {
      (*errors)[static_cast<std::size_t>(net.rank())] = e.what();
    }
  }
};

TEST(deadline, names_the_collectives_of_both_ranks) {
  std::vector<std::string> errors(2);
  const auto check = [&] {
    for (const std::string& text : errors) {
      EXPECT_NE(text.find("named layer 1"), std::string::npos) << text;
      EXPECT_NE(text.find("named layer1"), std::string::npos) << text;
      EXPECT_NE(text.find("these ranks wait for each other"), std::string::npos) << text;
    }
  };
  if (has_sim) {
    run_sim(2, names_that_differ{&errors});
    check();
  }
  if (has_threads) {
    run_threads(2, names_that_differ{&errors});
    check();
  }
}

/// The handles of all ranks outlive the ranks.
template <class Group, class Net>
void handles_outlive_their_group(auto make_group, auto run) {
  for (const std::size_t n : sizes) {
    std::vector<std::vector<float>> x(3, std::vector<float>(n, 1.0F));
    std::vector<std::optional<spar::pending<Net, void>>> ended(3), in_flight(3);
    {
      auto group = make_group();
      run(*group, [&](Net& net) {
        const auto r = static_cast<std::size_t>(net.rank());
        ended[r].emplace(spar::start_allreduce(net, std::span(x[r]), spar::ring{}));
        if (r != 1) in_flight[r].emplace(spar::start_allreduce(net, spar::named{"later"}, std::span(x[r])));
      });
      for (int done = 0; done < 3;) {
        done = 0;
        for (auto& call : ended) done += call->done() ? 1 : 0; // each rank makes progress
      }
    }
    for (std::size_t r = 0; r < 3; ++r) {
      spar::pending<Net, void> moved(std::move(*ended[r]));
      EXPECT_TRUE(moved.done());
      moved.cancel();
      EXPECT_NO_THROW(moved.wait());
      EXPECT_EQ(moved.statistics().messages_sent, 0U);
      if (r == 1) continue;
      EXPECT_TRUE(in_flight[r]->done());
      const std::string text = text_of<spar::peer_failed>([&] { in_flight[r]->wait(); });
      EXPECT_NE(text.find("the communicator was destroyed while a call was in flight"), std::string::npos) << text;
    }
  }
}

TEST(destroyed_in_flight, handles_outlive_threads) {
  for (const bool synchronous : {false, true}) {
    handles_outlive_their_group<spar::thread_group, spar::threads>(
        [&] { return std::make_unique<spar::thread_group>(3, spar::thread_options{.synchronous = synchronous}); },
        [](spar::thread_group& group, auto program) { group.run(program); });
  }
}

TEST(destroyed_in_flight, handles_outlive_the_simulator) {
  handles_outlive_their_group<spar::simulator, spar::sim>([] { return std::make_unique<spar::simulator>(3); },
                                                          [](spar::simulator& group, auto program) {
                                                            for (spar::rank_t r = 0; r < group.size(); ++r)
                                                              program(group.rank(r));
                                                          });
}

TEST(destroyed_in_flight, objects_that_may_not_outlive_threads_are_named) {
  const auto outlives = [](auto make) {
    auto group = std::make_unique<spar::thread_group>(1);
    const auto object = make(group->rank(0));
    group.reset();
  };
  EXPECT_DEATH(outlives([](spar::threads& net) { return std::make_unique<spar::progress_thread<spar::threads>>(net); }),
               "a communicator is destroyed before its progress_thread; destroy that first");
  EXPECT_DEATH(
      outlives([](spar::threads& net) { return std::make_unique<spar::eager_sgd<float, spar::threads>>(net, 10); }),
      "a communicator is destroyed before a partial allreduce on it; destroy that first");
}

TEST(destroyed_in_flight, a_decorator_ends_its_own_calls_on_all_ranks) {
  spar::thread_group group{2};
  group.run([](spar::threads& inner) {
    std::vector<float> x(1000, 1.0F), y(1000, 1.0F);
    if (inner.rank() == 1) {
      const std::string text = text_of<spar::peer_failed>([&] { // in another call, so that those of rank 0 cannot end
        spar::allreduce(inner, spar::named{"of rank 1"}, std::span(x));
      });
      EXPECT_NE(text.find("rank 0 failed"), std::string::npos) << text;
      EXPECT_NE(text.find("was destroyed while a call was in flight"), std::string::npos) << text;
      return;
    }
    auto other = spar::start_allreduce(inner, std::span(y)); // of the communicator that goes on
    std::optional<spar::counting<spar::threads>> net(std::in_place, inner);
    auto call = spar::start_allreduce(*net, std::span(x));
    net.reset();
    EXPECT_THROW(call.wait(), spar::peer_failed);
    EXPECT_THROW(other.wait(), spar::peer_failed);
  });
}

/// The call of a decorator that a coroutine destroys does not use the decorator any more.
TEST(destroyed_in_flight, a_coroutine_destroys_a_decorator) {
  spar::simulator group{2};
  group.run([](spar::sim& inner) -> spar::task<void> {
    std::vector<float> x(1000, 1.0F);
    co_await inner.sleep(1); // the scheduler resumes the rest
    auto net = std::make_unique<spar::counting<spar::sim>>(inner);
    auto call = spar::start_allreduce(*net, std::span(x));
    if (inner.rank() == 0) net.reset();
    std::string text;
    try {
      co_await std::move(call);
      co_await inner.sleep(1);
      auto other = spar::start_allreduce(inner, std::span(x));
      co_await std::move(other);
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("was destroyed while a call was in flight"), std::string::npos) << text;
  });
}

TEST(destroyed_in_flight, a_decorator_leaves_the_calls_of_others_alone) {
  spar::thread_group group{2};
  group.run([](spar::threads& inner) {
    std::vector<float> x(1000, 1.0F);
    auto call = spar::start_allreduce(inner, std::span(x));
    {
      const spar::counting<spar::threads> net(inner);
    }
    call.wait();
    EXPECT_EQ(x[999], 2.0F);
  });
}

} // namespace
} // namespace spar_test
