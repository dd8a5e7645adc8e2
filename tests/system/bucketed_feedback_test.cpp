// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in buckets: nothing is lost while buckets are in flight, are rebuilt, fail, or are saved and restored.
#include "support/counting_resource.hpp"
#include "support/global_allocations.hpp"
#include "support/ranks.hpp"

#include <spar/storage/coded.hpp>
#include <spar/system/bucketed_feedback.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using parameters = std::vector<spar::parameter>;
using ok_topk = spar::ok_topk_allreduce<>;
using coded =
    spar::composition<spar::selector::threshold_reuse, spar::storage::coded<>, spar::flat, spar::balanced_owners>;

const parameters& model() {
  static const parameters all{{"head", 10}, {"fc2", 300}, {"bias", 1}, {"fc1", 700}, {"empty", 0}, {"conv", 90}};
  return all;
}

template <class T>
using vectors = std::vector<std::vector<T>>; // one for each parameter, in the order of `model()`

std::size_t number_of(const std::string& name) {
  std::size_t i = 0;
  while (model()[i].name != name) ++i;
  return i;
}
template <class T>
vectors<T> zeros() {
  vectors<T> all;
  for (const auto& p : model()) all.emplace_back(p.size);
  return all;
}
/// Whole numbers, whose sums are exact, or any values in [-1, 1).
template <class T>
vectors<T> gradients(spar::rank_t rank, int step, bool whole) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(step));
  vectors<T> all = zeros<T>();
  for (auto& x : all) {
    for (T& value : x) {
      value = static_cast<T>(static_cast<int>(random() % 41) - 20);
      if (!whole) value = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
    }
  }
  return all;
}
template <class T, class Values>
void add(std::vector<T>& to, const Values& from) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] += static_cast<T>(from[i]);
}

/// What a rank has brought, received and kept.
template <class T>
struct account {
  vectors<double> brought = zeros<double>(), received = zeros<double>(), kept = zeros<double>();
  std::uint64_t buckets = 0; // of all steps
};

/// Steps with gradients that become ready in another order in each step and on each rank. Before each `period`-th step,
/// the buckets are rebuilt.
template <class T, class Algorithm, class Op>
struct training {
  Algorithm algorithm;
  int steps, period;
  bool whole, by_thread; // whether gradients are whole numbers; whether a progress thread exists
  std::vector<account<T>>* accounts;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    account<T>& its = (*accounts)[static_cast<std::size_t>(net.rank())];
    parameters order = model();
    spar::bucketed_feedback<Net, T, Algorithm, Op> feedback(net, order, {.bucket_bytes = 400}, algorithm);
    std::mt19937_64 shared(3), own(static_cast<std::uint64_t>(net.rank()));
    for (int step = 0; step < steps; ++step) {
      if (step > 0 && step % period == 0) {
        std::shuffle(order.begin(), order.end(), shared);
        feedback.rebuild(order, shared() % 5000 + 1);
      }
      its.buckets += feedback.buckets();
      auto x = gradients<T>(net.rank(), step, whole);
      for (std::size_t i = 0; i < x.size(); ++i) add(its.brought[i], x[i]);
      std::vector<std::size_t> ready(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) ready[i] = i;
      std::shuffle(ready.begin(), ready.end(), own);
      for (const std::size_t i : ready) {
        feedback.ready(model()[i].name, x[i]);
        feedback.progress();
      }
      if (by_thread) {
        feedback.wait();
      } else {
        auto ended = feedback.ended();
        co_await std::move(ended);
      }
      for (std::size_t i = 0; i < x.size(); ++i) add(its.received[i], x[i]);
    }
    for (std::size_t i = 0; i < model().size(); ++i) add(its.kept[i], feedback.residual(model()[i].name));
  }
};

/// What all ranks have received, `times` times, and kept is what they have brought.
template <class T>
void expect_nothing_lost(const std::vector<account<T>>& accounts, double times, double tolerance) {
  for (std::size_t i = 0; i < model().size(); ++i) {
    std::vector<double> brought(model()[i].size), found(model()[i].size);
    for (const auto& its : accounts) {
      ASSERT_EQ(its.received[i], accounts[0].received[i]) << "all ranks must have the same sums";
      add(brought, its.brought[i]);
      add(found, its.kept[i]);
    }
    for (std::size_t j = 0; j < brought.size(); ++j)
      ASSERT_NEAR(times * accounts[0].received[i][j] + found[j], brought[j], tolerance)
          << model()[i].name << '[' << j << ']';
  }
}

template <class T, class Algorithm>
void expect_nothing_lost(const Algorithm& algorithm, spar::rank_t ranks, mode where, int steps, double tolerance) {
  SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", " << Algorithm::name);
  std::vector<account<T>> accounts(static_cast<std::size_t>(ranks));
  run(where, ranks, training<T, Algorithm, spar::sum>{algorithm, steps, 7, tolerance == 0, false, &accounts});
  expect_nothing_lost(accounts, 1, tolerance);
}

/// On threads, in each of which a progress thread sends and receives for the buckets in flight.
template <class T, class Op, class Algorithm>
void expect_nothing_lost_by_progress_threads(const Algorithm& algorithm, spar::rank_t ranks, double tolerance) {
  SCOPED_TRACE(testing::Message() << "P = " << ranks << ", " << Algorithm::name << ", " << Op::name);
  std::vector<account<T>> accounts(static_cast<std::size_t>(ranks));
  const training<T, Algorithm, Op> program{algorithm, 60, 7, tolerance == 0, true, &accounts};
  spar::thread_group(ranks).run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    spar::run_until_done(net, program(net));
  });
  expect_nothing_lost(accounts, std::is_same_v<Op, spar::average> ? ranks : 1, tolerance);
}

TEST(bucketed_feedback, nothing_is_lost_in_200_steps_with_buckets_rebuilt) {
  std::uint64_t number = 0;
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
      if (!runs_case(5, position_of(where), static_cast<std::uint64_t>(ranks), number++)) continue;
      expect_nothing_lost<float>(ok_topk{.select = {.density = 0.05, .period = 3}}, ranks, where, 200, 0);
      expect_nothing_lost<float>(spar::quantised_sparcml_allreduce<4>{.select = {.density = 0.05}}, ranks, where, 50,
                                 2e-3);
#if SPAR_ALL_CASES
      expect_nothing_lost<std::int64_t>(spar::topka_allreduce{.select = {.density = 0.05}}, ranks, where, 200, 0);
      expect_nothing_lost<double>(coded{.select = {.density = 0.05}}, ranks, where, 50, 1e-12);
#endif
    }
  }
}

TEST(bucketed_feedback, nothing_is_lost_by_progress_threads_and_by_averages) {
  const ok_topk reusing{.select = {.density = 0.05, .period = 3}};
  const spar::topka_allreduce exact{.select = {.density = 0.05}};
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 8}) {
    expect_nothing_lost_by_progress_threads<float, spar::sum>(reusing, ranks, 0);
    expect_nothing_lost_by_progress_threads<std::int64_t, spar::sum>(exact, ranks, 0);
    expect_nothing_lost_by_progress_threads<double, spar::average>(exact, ranks, 1e-11);
#if SPAR_ALL_CASES
    expect_nothing_lost_by_progress_threads<double, spar::average>(reusing, ranks, 1e-11);
#endif
  }
}

/// Each bucket is one call of an error_feedback, and sends what this call sends.
template <class Algorithm>
void expect_messages_of_calls(const Algorithm& algorithm, spar::rank_t ranks) {
  spar::thread_group group{ranks};
  group.run([&](spar::threads& inner) {
    using net_type = spar::counting<spar::threads>;
    net_type net(inner);
    spar::bucketed_feedback<net_type, float, Algorithm, spar::average> feedback(net, model(), {.bucket_bytes = 1300},
                                                                                algorithm);
    ASSERT_EQ(feedback.buckets(), 3U); // head, fc2 and bias; fc1; empty and conv
    const std::array<std::size_t, 4> first{0, 3, 4, 6};
    using reducer = spar::error_feedback<float, Algorithm>;
    const std::array<std::unique_ptr<reducer>, 3> alone{std::make_unique<reducer>(algorithm),
                                                        std::make_unique<reducer>(algorithm),
                                                        std::make_unique<reducer>(algorithm)};
    for (int step = 0; step < 4; ++step) {
      const auto before = net.sent();
      auto x = gradients<float>(net.rank(), step, true);
      for (std::size_t i = 0; i < x.size(); ++i) feedback.ready(model()[i].name, x[i]);
      feedback.wait();
      const auto between = net.sent();
      const auto y = gradients<float>(net.rank(), step, true);
      for (std::size_t b = 0; b < 3; ++b) {
        std::vector<float> all, reduced;
        for (std::size_t i = first[b]; i < first[b + 1]; ++i) {
          all.insert(all.end(), y[i].begin(), y[i].end());
          reduced.insert(reduced.end(), x[i].begin(), x[i].end());
        }
        (*alone[b])(net, all, spar::average{});
        EXPECT_EQ(reduced, all);
        const auto kept = feedback.reducer(b).residual(), its = alone[b]->residual();
        EXPECT_TRUE(std::equal(kept.begin(), kept.end(), its.begin(), its.end()));
      }
      const auto after = net.sent();
      EXPECT_EQ(between.messages - before.messages, after.messages - between.messages);
      EXPECT_EQ(between.bytes - before.bytes, after.bytes - between.bytes);
    }
  });
}
TEST(bucketed_feedback, messages_are_those_of_one_error_feedback_for_each_bucket) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    expect_messages_of_calls(ok_topk{.select = {.density = 0.05}}, ranks);
    expect_messages_of_calls(spar::topka_allreduce{.select = {.density = 0.05}}, ranks);
  }
}

TEST(bucketed_feedback, a_bucket_starts_when_its_last_gradient_is_ready_or_as_a_whole) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const parameters two{{"a", 2}, {"b", 1}};
    spar::bucketed_feedback<spar::threads, float, spar::topka_allreduce> feedback(net, two, {}, {.select = {.k = 1}});
    std::vector<float> a{1, 5}, b{2};
    feedback.ready("b", b);
    EXPECT_FALSE(feedback.progress());
    feedback.ready("a", a);
    while (feedback.progress()) {
    }
    EXPECT_EQ(a[1], 5); // the results come with `wait`
    feedback.wait();
    EXPECT_EQ(a, (std::vector<float>{0, 10}));
    EXPECT_EQ(b[0], 0);
    std::vector<float> all{0, 0, 2};
    feedback.start(feedback.bucket_of("a"), all);
    feedback.wait();
    EXPECT_EQ(all, (std::vector<float>{0, 0, 8}));
    EXPECT_EQ(feedback.residual("a")[0], 1);
    EXPECT_EQ(feedback.residual("b")[0], 0);
    feedback.set_algorithm({.select = {.k = 2}});
    feedback.start(0, all);
    feedback.wait();
    EXPECT_EQ(all, (std::vector<float>{2, 0, 16}));
  });
}

/// Steps of buckets that outlive the program, with the same values each time.
template <class Net, class Algorithm>
struct same_steps {
  using feedback = spar::bucketed_feedback<Net, float, Algorithm>;
  std::vector<std::unique_ptr<feedback>>* all;
  std::vector<vectors<float>>* x;
  int steps;

  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    std::unique_ptr<feedback>& its = (*all)[r];
    if (!its) {
      Algorithm algorithm{.select = {.density = 1}};
      if constexpr (std::is_same_v<Algorithm, ok_topk>) algorithm.select.period = 2;
      its = std::make_unique<feedback>(net, model(), spar::fusion_options{.bucket_bytes = 1300}, algorithm);
    }
    vectors<float>& mine = (*x)[r];
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t j = 0; j < mine[i].size(); ++j) mine[i][j] = static_cast<float>(j % 7) + 1;
        its->ready(model()[i].name, mine[i]);
      }
      auto ended = its->ended();
      co_await std::move(ended);
    }
  }
};

/// `run` runs a program on all ranks. After one step, the pools take no memory in any later step, in whatever order
/// messages arrive. If the order differs from that of the first step, a rank may have more coroutines or expected
/// messages at once, and makes the lists of these 2 or 4 times as long: all ranks together at most `growths` times.
template <class Net, class Algorithm, class Run>
void expect_no_memory_after_the_first_step(spar::rank_t ranks, const counting_resource& upstream, const Run& run,
                                           std::uint64_t growths) {
  std::vector<std::unique_ptr<spar::bucketed_feedback<Net, float, Algorithm>>> all(static_cast<std::size_t>(ranks));
  std::vector<vectors<float>> x(all.size(), zeros<float>());
  const auto taken_by = [&](int steps) -> taken {
    const taken before{upstream.allocations(), global_allocations()};
    run(same_steps<Net, Algorithm>{&all, &x, steps});
    return {upstream.allocations() - before.pooled, global_allocations() - before.global};
  };
  taken_by(1);
  const taken idle = taken_by(0);
  std::uint64_t more = 0;
  for (const int steps : {1, 1, 2, 10}) {
    const taken now = taken_by(steps);
    EXPECT_EQ(now.pooled, idle.pooled) << steps << " steps, P = " << ranks;
    more += now.global - idle.global;
  }
  EXPECT_LE(more, growths) << "P = " << ranks;
}

template <class Algorithm>
void expect_no_memory_after_the_first_step() {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 8}) {
    const std::uint64_t growths = 5 * static_cast<std::uint64_t>(ranks);
#ifndef SPAR_SANITIZES_THREADS // a simulator has one thread
    for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
      counting_resource upstream;
      auto options = seed == 0 ? spar::simulator_options{} : random_order(seed);
      options.memory = &upstream;
      spar::simulator engine(ranks, options);
      const auto run = [&](const auto& program) { engine.run([&](spar::sim& net) { return program(net); }); };
      expect_no_memory_after_the_first_step<spar::sim, Algorithm>(ranks, upstream, run, seed == 0 ? 0 : growths);
    }
#endif
    counting_resource upstream;
    spar::thread_group group(ranks, {.memory = &upstream});
    const auto run = [&](const auto& program) {
      group.run([&](spar::threads& net) { spar::run_until_done(net, program(net)); });
    };
    expect_no_memory_after_the_first_step<spar::threads, Algorithm>(ranks, upstream, run, growths);
  }
}
TEST(bucketed_feedback, takes_no_memory_after_the_first_step) {
  expect_no_memory_after_the_first_step<ok_topk>();
  expect_no_memory_after_the_first_step<spar::topka_allreduce>();
}

/// Steps whose backward pass computes 8 parts for 1 ms each. In turn: the buckets start after the last part.
struct backward_pass {
  bool computes, in_turn;

  spar::task<void> operator()(spar::sim& net) const& {
    constexpr std::size_t parts = 8, size = 50'000;
    parameters layers;
    for (std::size_t i = 0; i < parts; ++i) layers.push_back({"layer " + std::to_string(i), size});
    std::vector<float> x(parts * size);
    spar::bucketed_feedback<spar::sim, float, ok_topk> feedback(net, layers, {.bucket_bytes = 1},
                                                                {.select = {.density = 0.05}});
    std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()));
    for (int step = 0; step < 4; ++step) {
      for (float& value : x) value = static_cast<float>(random() % 1000);
      for (std::size_t i = 0; i < parts; ++i) {
        if (computes) co_await net.sleep(1e-3);
        if (!in_turn) feedback.start(i, std::span(x).subspan(i * size, size));
      }
      for (std::size_t i = 0; in_turn && i < parts; ++i) feedback.start(i, std::span(x).subspan(i * size, size));
      auto ended = feedback.ended();
      co_await std::move(ended);
    }
  }
};

#ifndef SPAR_SANITIZES_THREADS
TEST(bucketed_feedback, hides_most_of_the_communication_behind_a_longer_computation) {
  const auto seconds = [](bool computes, bool in_turn) {
    return run_sim(4, backward_pass{computes, in_turn}, {.latency = 2e-5, .bandwidth = 1.25e8}); // 1 Gbit/s
  };
  const double computation = 4 * 8 * 1e-3, communication = seconds(false, true);
  const double in_turn = seconds(true, true), overlapped = seconds(true, false);
  EXPECT_LT(communication, computation);
  EXPECT_NEAR(in_turn, computation + communication, 1e-3 * in_turn);
  EXPECT_GT((in_turn - overlapped) / communication, 0.7); // at most, all but the last of 8 parts
}
#endif

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return "no error";
}

using small = spar::bucketed_feedback<spar::threads, float, spar::topka_allreduce>;

TEST(bucketed_feedback, bad_input_is_named_and_nothing_is_lost) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const auto made = [&](const parameters& of, std::size_t bytes = 8) {
      return error_of([&] { small(net, of, {.bucket_bytes = bytes}); });
    };
    EXPECT_EQ(made({}), "there are no parameters; expected at least one");
    EXPECT_EQ(made({{"a", 1}, {"a", 2}}), "two parameters have the name a; names must be unique");
    EXPECT_EQ(made({{"a", 1}}, 0), "bucket_bytes is 0; expected at least 1");
    parameters two{{"a", 2}, {"b", 3}};
    small feedback(net, two, {.bucket_bytes = 8}, {.select = {.k = 1}});
    std::vector<float> a{1, 2}, b{1, 2, 3};
    EXPECT_EQ(error_of([&] { feedback.ready("c", a); }),
              "no parameter has the name c; there are 2 parameters, of which the first is a");
    EXPECT_EQ(error_of([&] { feedback.ready("a", b); }),
              "parameter a has 3 values; expected 2, its size in the constructor");
    EXPECT_EQ(error_of([&] { feedback.start(2, b); }), "bucket 2 is out of range: there are 2 buckets");
    EXPECT_EQ(error_of([&] { feedback.start(1, a); }), "bucket 1 has 3 values, but the span has 2");
    EXPECT_EQ(error_of([&] { (void)feedback.residual("d"); }),
              "no parameter has the name d; there are 2 parameters, of which the first is a");
    EXPECT_EQ(error_of([&] { (void)feedback.reducer(7); }), "bucket 7 is out of range: there are 2 buckets");
    const auto saved = feedback.save();
    feedback.ready("a", a);
    const char* const twice = "parameter a was marked as ready twice in one round; call wait() before the next round";
    EXPECT_EQ(error_of([&] { feedback.ready("a", a); }), twice);
    EXPECT_EQ(error_of([&] { feedback.start(0, a); }), twice);
    const char* const idle = "parameter a is marked as ready, and its round has not ended; call wait() first";
    EXPECT_EQ(error_of([&] { (void)feedback.save(); }), idle);
    EXPECT_EQ(error_of([&] { feedback.rebuild(two, 100); }), idle);
    EXPECT_EQ(error_of([&] { feedback.load(saved); }), idle);
    EXPECT_EQ(error_of([&] { feedback.take_over(saved); }), idle);
    EXPECT_EQ(error_of([&] { feedback.set_algorithm({}); }), idle);
    const char* const missing = "parameter b is not ready, so wait() cannot end the round; call ready() for it first";
    EXPECT_EQ(error_of([&] { feedback.wait(); }), missing);
    EXPECT_EQ(error_of([&] { (void)feedback.ended(); }), missing);
    feedback.start(1, b);
    const char* const again = "parameter b was marked as ready twice in one round; call wait() before the next round";
    EXPECT_EQ(error_of([&] { feedback.start(1, b); }), again);
    EXPECT_EQ(error_of([&] { feedback.ready("b", b); }), again);
    feedback.wait();
    const auto rebuilt = [&](const parameters& of) { return error_of([&] { feedback.rebuild(of, 100); }); };
    EXPECT_EQ(rebuilt({{"a", 2}, {"b", 4}}), "parameter b has length 4, but its residual has length 3");
    EXPECT_EQ(rebuilt({{"a", 2}}), "no parameter has the name b, for which there is a residual");
    EXPECT_EQ(rebuilt({{"a", 2}, {"b", 3}, {"c", 1}}), "there is no residual of parameter c");
    EXPECT_EQ(rebuilt({{"a", 2}, {"b", 3}, {"a", 2}}), "two parameters have the name a; names must be unique");
    EXPECT_EQ(rebuilt({}), "there are no parameters; expected at least one");
    EXPECT_EQ(error_of([&] { feedback.rebuild(two, 0); }), "bucket_bytes is 0; expected at least 1");
    EXPECT_EQ(error_of([&] { (void)feedback.bucket_of("d"); }),
              "no parameter has the name d; there are 2 parameters, of which the first is a");
    EXPECT_EQ(feedback.residual("a")[0], 1);
    EXPECT_EQ(feedback.residual("b")[1], 2);
    EXPECT_EQ(b[2], 6);
    feedback.start(1, b); // buckets and residuals are those of before
    feedback.ready("a", a);
    feedback.wait();
    EXPECT_EQ(a, (std::vector<float>{0, 8}));
    EXPECT_EQ(b, (std::vector<float>{0, 0, 12}));
  });
}

/// The error on each rank of two that disagree.
template <class Program>
std::vector<std::string> errors_of_two(Program program) {
  std::vector<std::string> texts(2);
  spar::thread_group group{2};
  try {
    group.run([&](spar::threads& net) {
      net.set_deadline(20);
      try {
        program(net);
      } catch (const std::exception& e) {
        texts[static_cast<std::size_t>(net.rank())] = e.what();
        throw;
      }
    });
  } catch (const spar::error&) { // also in `texts`
  }
  return texts;
}

TEST(bucketed_feedback, ranks_with_other_buckets_get_an_error_on_all_ranks) {
  struct shape {
    parameters of;
    std::size_t bytes;
    const char* text;
  };
  const parameters own{{"a", 4}, {"b", 8}, {"c", 8}};
  const std::vector<shape> others{{{{"a", 4}, {"b", 8}}, 1000, "tensors=a:4+b:8"},
                                  {{{"a", 4}, {"c", 8}, {"b", 8}}, 1000, "tensors=a:4+c:8+b:8"},
                                  {{{"a", 4}, {"b", 8}, {"d", 8}}, 1000, "tensors=a:4+b:8+d:8"},
                                  {{{"a", 8}, {"b", 4}, {"c", 8}}, 1000, "tensors=a:8+b:4+c:8"},
                                  {own, 40, "bucket_bytes=40"}};
  for (const bool late : {false, true}) { // in the constructor, or by `rebuild` after a step
    for (const shape& other : others) {
      if (late && other.of.size() < 3) continue;
      const auto texts = errors_of_two([&](spar::threads& net) {
        const bool differs = net.rank() == 0;
        small feedback(net, differs && !late ? other.of : own, {.bucket_bytes = differs && !late ? other.bytes : 1000},
                       {.select = {.k = 1}});
        const auto step = [&] {
          vectors<float> x;
          const parameters& of = differs && !late ? other.of : own;
          for (const auto& p : of) x.emplace_back(p.size, 1.0F);
          for (std::size_t i = 0; i < of.size(); ++i) feedback.ready(of[i].name, x[i]);
          feedback.wait();
        };
        step();
        if (!late) return;
        bool same_parameters = true;
        for (const auto& p : other.of) same_parameters &= std::find(own.begin(), own.end(), p) != own.end();
        if (differs) feedback.rebuild(same_parameters ? other.of : parameters(own.rbegin(), own.rend()), other.bytes);
        step();
      });
      for (const std::string& text : texts) EXPECT_NE(text, "");
      if (!late) {
        EXPECT_NE((texts[0] + texts[1]).find(other.text), std::string::npos) << texts[0] << '\n' << texts[1];
      }
    }
  }
}

TEST(bucketed_feedback, ranks_with_other_buckets_behind_the_parameters_in_error_messages_get_an_error) {
  const auto texts = errors_of_two([](spar::threads& net) {
    parameters many;
    for (int i = 0; i < 102; ++i) many.push_back({"p" + std::to_string(i), 1});
    if (net.rank() == 0) std::swap(many[100], many[101]);
    small feedback(net, many, {}, {.select = {.k = 1}});
    std::vector<float> x(many.size(), 1);
    feedback.start(0, x);
    feedback.wait();
  });
  for (const std::string& text : texts) EXPECT_NE(text, "");
  EXPECT_NE((texts[0] + texts[1]).find("digest_of_tensors="), std::string::npos) << texts[0] << '\n' << texts[1];
}

TEST(bucketed_feedback, a_failure_leaves_the_residuals_of_failed_buckets) {
  for (int failing = 1; failing < 30; ++failing) { // the failure hits another bucket each time
    spar::thread_group group{3};
    EXPECT_THROW(group.run([&](spar::threads& net) {
      auto first = gradients<float>(net.rank(), 0, true);
      const auto brought = gradients<float>(net.rank(), 1, true);
      auto x = brought; // lives longer than the calls in flight on the rank that fails
      spar::bucketed_feedback<spar::threads, float, ok_topk> feedback(net, model(), {.bucket_bytes = 1300},
                                                                      {.select = {.density = 0.1}});
      const auto make_step = [&](vectors<float>& of) {
        for (std::size_t i = 0; i < of.size(); ++i) {
          if (net.rank() == 2 && failing % 6 == static_cast<int>(i) && feedback.residual("head").size() > 0)
            throw spar::error("this rank fails");
          feedback.ready(model()[i].name, of[i]);
          for (int p = 0; p < failing; ++p) feedback.progress();
        }
        feedback.wait();
      };
      make_step(first);
      vectors<float> before;
      for (const auto& p : model())
        before.emplace_back(feedback.residual(p.name).begin(), feedback.residual(p.name).end());
      try {
        make_step(x);
      } catch (const spar::error&) {
        if (net.rank() != 2) {
          for (const auto& p : model()) {
            const std::size_t i = number_of(p.name);
            const auto now = feedback.residual(p.name);
            // A bucket of several parameters that failed has its gradients and residuals, any other one its results.
            if (std::equal(now.begin(), now.end(), before[i].begin())) continue;
            EXPECT_NE(x[i], brought[i]) << p.name;
          }
          EXPECT_NO_THROW(feedback.rebuild(model(), 100)); // the object is idle
          EXPECT_NO_THROW((void)feedback.save());
        }
        throw;
      }
    }),
                 spar::error);
  }
}

TEST(bucketed_feedback, a_step_of_which_a_part_is_ready_ends_on_a_dead_communicator) {
  spar::thread_group group{2};
  EXPECT_THROW(group.run([&](spar::threads& net) {
    if (net.rank() == 1) throw spar::error("this rank fails");
    const parameters two{{"a", 2}, {"b", 3}};
    std::vector<float> a{1, 2};
    small feedback(net, two, {.bucket_bytes = 8}, {.select = {.k = 1}});
    feedback.ready("a", a);
    while (!net.dead()) feedback.progress();
    EXPECT_THROW(feedback.wait(), spar::peer_failed);
    EXPECT_NO_THROW((void)feedback.save());
    feedback.ready("a", a);
    EXPECT_THROW(spar::run_until_done(net, feedback.ended()), spar::peer_failed);
    EXPECT_NO_THROW(feedback.rebuild(two, 100));
    throw spar::error("after the test");
  }),
               spar::error);
}

/// Steps of two objects, so that both must end with the same bits.
template <class Feedback>
vectors<float> step_of(Feedback& feedback, spar::rank_t rank, int step) {
  auto x = gradients<float>(rank, step, true);
  for (std::size_t i = 0; i < x.size(); ++i) feedback.ready(model()[i].name, x[i]);
  feedback.wait();
  return x;
}

TEST(bucketed_feedback, is_saved_loaded_and_taken_over_with_other_buckets) {
  using type = spar::bucketed_feedback<spar::threads, float, ok_topk>;
  const ok_topk algorithm{.select = {.density = 0.05, .period = 5}};
  std::vector<std::vector<std::byte>> saved(3);
  std::vector<vectors<float>> kept(3);
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    const auto r = static_cast<std::size_t>(net.rank());
    type first(net, model(), {.bucket_bytes = 1300}, algorithm);
    for (int step = 0; step < 7; ++step) step_of(first, net.rank(), step);
    saved[r] = first.save();
    for (const auto& p : model()) kept[r].emplace_back(first.residual(p.name).begin(), first.residual(p.name).end());
    type same(net, model(), {.bucket_bytes = 1300}, algorithm);
    same.load(saved[r]);
    EXPECT_EQ(same.save(), saved[r]);
    for (int step = 7; step < 12; ++step) EXPECT_EQ(step_of(same, net.rank(), step), step_of(first, net.rank(), step));

    parameters reversed(model().rbegin(), model().rend());
    type other(net, reversed, {.bucket_bytes = 300}, algorithm);
    other.load(saved[r]);
    for (const auto& p : model()) {
      const auto residual = other.residual(p.name);
      EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()), kept[r][number_of(p.name)]) << p.name;
    }
    step_of(other, net.rank(), 7);
    type of_another_algorithm(net, model(), {.bucket_bytes = 1300}, algorithm);
    spar::bucketed_feedback<spar::threads, float, spar::topka_allreduce> topka(net, model(), {}, {});
    EXPECT_NE(error_of([&] { topka.load(saved[r]); }).find("the state was saved by the reducer threshold_reuse"),
              std::string::npos);
    spar::bucketed_feedback<spar::threads, double, ok_topk> doubles(net, model(), {}, algorithm);
    EXPECT_NE(error_of([&] { doubles.load(saved[r]); }).find("float"), std::string::npos);
    EXPECT_NE(error_of([&] { doubles.take_over(saved[r]); }).find("float"), std::string::npos);
    parameters longer = model();
    longer[1].size = 301;
    type another(net, longer, {}, algorithm);
    const char* const text = "parameter fc2 has length 301, but its residual has length 300";
    for (int step = 0; step < 2; ++step) { // with residuals of its own in the second
      vectors<float> before, after;
      for (const auto& p : longer)
        before.emplace_back(another.residual(p.name).begin(), another.residual(p.name).end());
      EXPECT_EQ(error_of([&] { another.load(saved[r]); }), text);
      EXPECT_EQ(error_of([&] { another.take_over(saved[r]); }), text);
      for (const auto& p : longer) after.emplace_back(another.residual(p.name).begin(), another.residual(p.name).end());
      EXPECT_EQ(after, before);
      vectors<float> x;
      for (const auto& p : longer) x.emplace_back(p.size, 1.0F);
      for (std::size_t i = 0; i < x.size(); ++i) another.ready(longer[i].name, x[i]);
      another.wait();
    }
    parameters renamed = model();
    renamed[3].name = "fc3";
    type of_another_model(net, renamed, {}, algorithm);
    EXPECT_EQ(error_of([&] { of_another_model.load(saved[r]); }),
              "no parameter has the name fc1, for which there is a residual");
  });
  // A job of one rank takes over the residuals of all.
  spar::thread_group alone{1};
  type next(alone.rank(0), parameters(model().rbegin(), model().rend()), {.bucket_bytes = 5000}, algorithm);
  const auto nothing = next.save();
  for (const auto& bytes : saved) next.take_over(bytes);
  next.take_over(nothing);
  for (const auto& p : model()) {
    const std::size_t i = number_of(p.name);
    std::vector<float> sum(p.size);
    for (const auto& its : kept) add(sum, its[i]);
    const auto residual = next.residual(p.name);
    EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()), sum) << p.name;
  }
  for (std::size_t at = 0; at < saved[0].size(); at += 7) {
    auto damaged = saved[0];
    damaged[at] ^= std::byte{0x10};
    EXPECT_NE(error_of([&] { next.load(damaged); }).find("is damaged"), std::string::npos) << "byte " << at;
  }
  for (std::size_t size = 0; size < saved[0].size(); size += 13) {
    EXPECT_NE(error_of([&] { next.load(std::span(saved[0]).first(size)); }).find("is damaged"), std::string::npos)
        << "cut to " << size;
  }
}

TEST(bucketed_feedback, a_bucket_that_stays_keeps_its_thresholds) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const ok_topk algorithm{.select = {.density = 0.05}};
    spar::bucketed_feedback<spar::threads, float, ok_topk> feedback(net, model(), {.bucket_bytes = 1300}, algorithm);
    for (int step = 0; step < 3; ++step) step_of(feedback, net.rank(), step);
    const auto calls = [&](const char* name) {
      return feedback.reducer(feedback.bucket_of(name)).current_state().select.calls;
    };
    EXPECT_GT(calls("fc1"), 0U);
    EXPECT_GT(calls("conv"), 0U);
    parameters order = model(); // the buckets of conv and fc1 stay, in another order; head, fc2 and bias change
    std::rotate(order.begin(), order.begin() + 4, order.end());
    std::swap(order[2], order[3]);
    const auto of_fc1 = calls("fc1"), of_conv = calls("conv");
    feedback.rebuild(order, 1300);
    EXPECT_EQ(calls("fc1"), of_fc1);
    EXPECT_EQ(calls("conv"), of_conv);
    EXPECT_EQ(calls("fc2"), 0U);
    step_of(feedback, net.rank(), 3);
    EXPECT_EQ(calls("fc2"), 1U);
  });
}

TEST(bucketed_feedback, that_a_coroutine_cannot_await_loses_nothing) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const parameters two{{"a", 2}, {"b", 1}};
    std::vector<float> a{1, 5}, b{2};
    small feedback(net, two, {}, {.select = {.k = 1}});
    const spar::progress_thread progress(net);
    feedback.ready("a", a);
    feedback.ready("b", b);
    EXPECT_THROW(spar::run_until_done(net, feedback.ended()), spar::error); // coroutines need a rank without a thread
    feedback.wait();
    EXPECT_EQ(a, (std::vector<float>{0, 10}));
    EXPECT_EQ(feedback.residual("b")[0], 2);
  });
}

TEST(bucketed_feedback, may_outlive_its_communicator) {
  std::optional<small> first;
  const parameters one{{"a", 2}};
  std::vector<float> a{1, 2};
  {
    spar::thread_group group{1};
    first.emplace(group.rank(0), one, spar::fusion_options{}, spar::topka_allreduce{.select = {.k = 1}});
  }
  const char* const text = "the communicator of this bucketed_feedback has been destroyed; construct another one";
  EXPECT_EQ(error_of([&] { first->ready("a", a); }), text);
  EXPECT_EQ(error_of([&] { first->start(0, a); }), text);
  EXPECT_EQ(error_of([&] { first->wait(); }), text);
  EXPECT_EQ(error_of([&] { (void)first->ended(); }), text);
  EXPECT_EQ(error_of([&] { first->rebuild(one, 100); }), text);
  EXPECT_EQ(error_of([&] { first->load(first->save()); }), text);
  EXPECT_NO_THROW((void)first->save());
}

} // namespace
} // namespace spar_test
