// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs of several objects whose calls are in the order of streams, in random schedules: each rank is late at other
// times, the streams of the double advance at random, and calls are made by the host or by launches of graphs, with
// checked calls and saved states in between. All sums and residuals have the bits of the host.
#include "in_order.hpp"

#include "feedback_suite.hpp"
#include "random_schedules.hpp"

#include <spar/cuda/values/zfp.cuh>
#include <spar/stream_ordered.cuh>
#include <spar/stream_ordered_allreduce.cuh>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using feedback_test::bits, feedback_test::exact_topk, feedback_test::result;
using in_order::graph;
using over_nccl::be_late, over_nccl::outcome, over_nccl::outcomes_on_devices, over_nccl::random_source,
    over_nccl::up_to;
using spar::rank_t;

enum class kind { topka, split, dsar, ok_topk, bfloat16, half, qsgd, bfloat16_ring, zfp_ring };

/// How the calls of a step are made. Calls on entries alone can be checked ones.
enum class how { by_the_host, by_a_graph, checked, checked_on_device };

/// What all ranks do alike.
struct program {
  struct object {
    kind what{};
    std::size_t n = 0;
    std::uint64_t k = 0; // of a selection
    std::size_t stream = 0;
    std::uint64_t calls = 0; // in all steps
  };
  /// Calls of one object, or of two with the same stream, of which a graph contains both.
  struct step {
    std::size_t first = 0, second = 0;
    how by{};
    bool saves = false; // before the calls
    bool waits = false; // after them
  };
  rank_t ranks = 2;
  std::size_t streams = 1;
  std::vector<object> objects;
  std::vector<step> steps;
};

constexpr std::uint64_t period = 4; // of the checked calls of Ok-Topk

bool has_entries(kind what) { return what <= kind::ok_topk; }

program program_of(std::uint64_t seed) {
  random_source random(seed);
  program p;
  p.ranks = static_cast<rank_t>(2 + seed % 4);
  p.streams = 1 + up_to(random, 1);
  for (std::uint64_t object = 1 + up_to(random, 2); object > 0; --object) {
    const kind what = static_cast<kind>(up_to(random, static_cast<std::uint64_t>(kind::zfp_ring)));
    const std::size_t n = what == kind::ok_topk ? 600 : 1 + up_to(random, 150);
    // Slices have room for ten entries, and Ok-Topk finds thresholds that serve for a period.
    const std::uint64_t k = what == kind::ok_topk ? 80 : up_to(random, std::min<std::uint64_t>(n, 10));
    p.objects.push_back({what, n, k, up_to(random, p.streams - 1), 0});
  }
  for (std::uint64_t steps = 4 + up_to(random, 4); steps > 0; --steps) {
    program::step s{.first = up_to(random, p.objects.size() - 1), .second = up_to(random, p.objects.size() - 1)};
    if (random() % 2 == 0 || p.objects[s.first].stream != p.objects[s.second].stream) s.second = s.first;
    s.saves = random() % 8 == 0;
    s.waits = random() % 3 == 0;
    s.by = static_cast<how>(up_to(random, 3));
    const auto must_be_checked = [&](std::size_t o) {
      return p.objects[o].what == kind::ok_topk && p.objects[o].calls % period == 0;
    };
    const auto may_be_checked = [&](std::size_t o) {
      return has_entries(p.objects[o].what) && p.objects[o].what != kind::ok_topk;
    };
    if (must_be_checked(s.first) || must_be_checked(s.second)) {
      if (!must_be_checked(s.first)) s.first = s.second;
      s.second = s.first;
      if (s.by < how::checked) s.by = how::checked_on_device;
    } else if (s.by >= how::checked && !may_be_checked(s.first)) {
      s.by = how::by_a_graph;
    } else if (s.by >= how::checked) {
      s.second = s.first;
    }
    ++p.objects[s.first].calls;
    if (s.second != s.first) ++p.objects[s.second].calls;
    p.steps.push_back(s);
  }
  return p;
}

/// The values of a call: with a few ties, and for Ok-Topk smaller from call to call of a period.
std::vector<float> values_of(const program::object& o, rank_t rank, std::uint64_t call) {
  random_source random(static_cast<std::uint64_t>(rank) * 1000 + call * 10 + static_cast<std::uint64_t>(o.what));
  std::normal_distribution<float> normal(
      0, o.what == kind::ok_topk ? 1000 * std::pow(0.75F, static_cast<float>(call % period)) : 100);
  std::vector<float> x(o.n);
  for (std::size_t i = 0; i < o.n; ++i) x[i] = o.what != kind::ok_topk && i % 5 == 0 ? 1.5F : normal(random);
  return x;
}

/// Calls `with(composition)`.
template <class With>
auto with_composition(const program::object& o, With with) {
  using namespace spar;
  switch (o.what) {
  case kind::topka:
    return with(topka_allreduce{.select = {.k = o.k}});
  case kind::split:
    return with(compose(exact_topk{.k = o.k}, split_allgather{}));
  case kind::dsar:
    return with(compose(exact_topk{.k = o.k}, storage::then<storage::coo, storage::as_bfloat16>{}, dsar_split{}));
  case kind::ok_topk:
    return with(ok_topk_allreduce<>{.select = {.k = o.k, .period = period, .epsilon = 0.9}, .by = {.tau = period}});
  case kind::bfloat16:
    return with(compose(storage::as_bfloat16{}, two_shot{.piece = 40}));
  case kind::half:
    return with(compose(storage::as_half{}, two_shot{}));
  case kind::bfloat16_ring:
    return with(compose(storage::as_bfloat16{}, ring{.piece = 20}));
  case kind::zfp_ring:
    return with(compose(storage::zfp{.rate = 8}, ring{.piece = 40}));
  case kind::qsgd:
  default:
    return with(compose(storage::qsgd<8>{.bucket = 32, .seed = 3}, two_shot{.piece = 64}));
  }
}

/// The sums of all calls of an object and its residual, of all ranks on the host. Ok-Topk must search for no threshold
/// between the checked calls: otherwise, calls in a stream have other bits.
std::vector<result> on_the_host(const program& p, const program::object& o) {
  return on_ranks(p.ranks, [&](spar::threads& net) {
    return with_composition(o, [&]<class Composition>(const Composition& parts) {
      result all;
      const auto make_calls = [&](auto reduce) {
        for (std::uint64_t call = 0; call < o.calls; ++call) {
          auto x = values_of(o, net.rank(), call);
          reduce(std::span(x), call);
          all.push_back(bits(std::span<const float>(x)));
        }
      };
      if constexpr (Composition::selects_entries) {
        auto feedback = spar::with_error_feedback<float>(parts);
        make_calls([&](std::span<float> x, std::uint64_t call) {
          feedback(net, x);
          if constexpr (requires { feedback.report().by.threshold_rounds; }) {
            if (call % period == 0) return;
            EXPECT_EQ(feedback.current_state().select.calls, call % period + 1) << "call " << call;
            EXPECT_EQ(feedback.report().by.threshold_rounds, 0) << "call " << call;
          }
        });
        if (o.calls == 0)
          all.push_back(std::vector<std::uint64_t>(o.n, 0x80000000)); // negative zeros
        else
          all.push_back(bits(feedback.residual()));
      } else {
        make_calls([&](std::span<float> x, std::uint64_t) { spar::allreduce(net, x, parts); });
      }
      return all;
    });
  });
}

/// An object of one rank, with its values and the graph of a call.
class own_object {
 public:
  virtual ~own_object() = default;
  virtual void call() = 0;
  virtual void check(spar::threads& control, bool on_device) = 0;
  virtual void wait() = 0;
  virtual void save_and_load() = 0;
  virtual std::vector<std::uint64_t> residual() = 0;

  /// Puts the values of the next call into the stream.
  void prepare() { x_.write(*work_, values_of(plan_, rank_, call_++)); }
  /// Puts a copy of the sum into the stream.
  void note() {
    sums_.push_back(std::make_unique<std::vector<float>>(plan_.n));
    cuda_double::put(*work_, [to = sums_.back()->data(), from = x_.data(), n = plan_.n] { std::copy_n(from, n, to); });
  }
  /// After a wait.
  [[nodiscard]] result results() const {
    result all;
    for (const auto& sum : sums_) all.push_back(bits(std::span<const float>(*sum)));
    return all;
  }

 protected:
  own_object(const program::object& plan, rank_t rank, const stream& work)
      : plan_(plan), rank_(rank), work_(&work), x_(std::vector<float>(plan.n, -1)) {}
  [[nodiscard]] spar::device_span<float> values() const { return {x_.data(), plan_.n, *work_}; }
  [[nodiscard]] const stream& work() const { return *work_; }
  [[nodiscard]] const program::object& plan() const { return plan_; }

 private:
  const program::object& plan_;
  rank_t rank_;
  const stream* work_;
  device_array<float> x_;
  std::uint64_t call_ = 0;
  std::vector<std::unique_ptr<std::vector<float>>> sums_;
};

template <class Reduce>
class own_object_of final : public own_object {
 public:
  template <class Make>
  own_object_of(const program::object& plan, rank_t rank, const stream& work, Make make)
      : own_object(plan, rank, work), reduce_(make()) {}
  void call() override { reduce_(values()); }
  void wait() override { reduce_.wait(work()); }
  void check(spar::threads& control, bool on_device) override {
    if constexpr (has_residual) {
      if (!on_device) return reduce_(control, values());
      spar::on_device gpu(control);
      reduce_(gpu, values());
    }
  }
  void save_and_load() override {
    if constexpr (has_residual) {
      const auto saved = reduce_.save();
      reduce_.set_residual(std::vector<float>(plan().n, 7));
      reduce_.load(saved);
    }
  }
  std::vector<std::uint64_t> residual() override {
    if constexpr (has_residual)
      return bits(std::span<const float>(cuda_double::values_at(reduce_.residual(), plan().n, work())));
    return {};
  }

 private:
  static constexpr bool has_residual = requires(Reduce& reduce) { reduce.residual(); };

  Reduce reduce_;
};

std::unique_ptr<own_object> make_object(spar::nccl_stream<spar::threads>& order, const program::object& plan,
                                        const stream& work) {
  return with_composition(plan, [&]<class Composition>(const Composition& parts) -> std::unique_ptr<own_object> {
    const auto make = [&] {
      if constexpr (Composition::selects_entries)
        return spar::with_stream_ordered_feedback<float>(order, plan.n, parts);
      else
        return spar::with_stream_ordered_allreduce<float>(order, plan.n, parts);
    };
    return std::make_unique<own_object_of<decltype(make())>>(plan, order.rank(), work, make);
  });
}

/// Runs the program on one rank, and returns the results of each object. `prepare()` runs before the first step.
template <class Prepare>
std::vector<result> run(spar::threads& control, const program& p, random_source& random, Prepare prepare) {
  spar::nccl_stream order(control);
  const std::vector<stream> streams(p.streams);
  std::vector<std::unique_ptr<own_object>> objects;
  for (const program::object& plan : p.objects) objects.push_back(make_object(order, plan, streams[plan.stream]));
  std::vector<std::vector<std::unique_ptr<graph>>> graphs(objects.size()); // [first][second]
  for (auto& of_first : graphs) of_first.resize(objects.size());
  const auto wait_for_all = [&] {
    for (const auto& object : objects) object->wait();
  };
  prepare();
  for (const program::step& s : p.steps) {
    be_late(random);
    std::vector<own_object*> both{objects[s.first].get()};
    if (s.second != s.first) both.push_back(objects[s.second].get());
    const auto call = [&] {
      for (own_object* object : both) object->call();
    };
    if (s.saves) {
      wait_for_all();
      for (own_object* object : both) object->save_and_load();
    }
    auto& captured = graphs[s.first][s.second];
    if (s.by == how::by_a_graph && captured == nullptr) // all ranks capture at the same step
      captured = std::make_unique<graph>(streams[p.objects[s.first].stream], call);
    be_late(random);
    for (own_object* object : both) object->prepare();
    if (random() % 4 == 0) cuda_double::stall(streams[p.objects[s.first].stream]);
    if (s.by == how::by_the_host) {
      call();
    } else if (s.by == how::by_a_graph) {
      captured->launch(streams[p.objects[s.first].stream]);
    } else {
      wait_for_all(); // the call may free memory
      both[0]->check(control, s.by == how::checked_on_device);
    }
    for (own_object* object : both) object->note();
    if (s.waits) both.back()->wait();
  }
  wait_for_all();
  std::vector<result> all;
  for (std::size_t o = 0; o < objects.size(); ++o) {
    all.push_back(objects[o]->results());
    if (has_entries(p.objects[o].what)) all.back().push_back(objects[o]->residual());
  }
  return all;
}

/// Programs with the seeds of one remainder by `parts`, so that a part of all can run by itself.
class stream_ordered_schedules : public over_nccl::on_device_nccl, public testing::WithParamInterface<std::uint64_t> {
 protected:
  static constexpr std::uint64_t parts = 10;

  /// Calls `with(seed)` for SPAR_SCHEDULES seeds, in the full set 2000, and with sanitizers 200, or a part of them.
  template <class With>
  void for_each_seed(std::uint64_t part_of_them, With with) {
    const bool is_given = std::getenv("SPAR_SCHEDULES") != nullptr;
    const std::uint64_t all = is_given ? spar_test::schedules() : spar_test::is_full() ? 2000 : 200;
    for (std::uint64_t seed = GetParam(); seed < all / part_of_them && !HasFailure(); seed += parts) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      with(seed);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(by_seed, stream_ordered_schedules, testing::Range<std::uint64_t>(0, 10));

/// Runs the program on each rank. `prepare(rank, random)` runs before the first step.
template <class Prepare>
std::vector<outcome> run_on_ranks(const program& p, std::uint64_t seed, std::vector<std::vector<result>>& got,
                                  Prepare prepare) {
  got.assign(static_cast<std::size_t>(p.ranks), {});
  return outcomes_on_devices(p.ranks, seed, [&](spar::threads& control, outcome&) {
    const auto rank = static_cast<std::size_t>(control.rank());
    random_source random(seed * 100 + rank);
    got[rank] = run(control, p, random, [&] { prepare(control.rank(), random); });
    return std::vector<float>();
  });
}
/// Checks the results of the ranks that ended without an error.
void expect_bits_of_the_host(const program& p, const std::vector<std::vector<result>>& got,
                             const std::vector<outcome>& ended) {
  for (std::size_t o = 0; o < p.objects.size(); ++o) {
    SCOPED_TRACE(testing::Message() << "object " << o << " of kind " << static_cast<int>(p.objects[o].what));
    const auto expected = on_the_host(p, p.objects[o]);
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      if (!ended[rank].error.empty()) continue;
      EXPECT_TRUE(o < got[rank].size() && got[rank][o] == expected[rank]) << "rank " << rank;
    }
  }
}

TEST_P(stream_ordered_schedules, have_the_bits_of_the_host) {
  for_each_seed(1, [](std::uint64_t seed) {
    const program p = program_of(seed);
    std::vector<std::vector<result>> got;
    const auto ended = run_on_ranks(p, seed, got, [](rank_t, random_source&) {});
    in_order::expect_no_errors(ended);
    expect_bits_of_the_host(p, got, ended);
  });
}

/// A call of CUDA or of NCCL fails on one rank, or a transfer: all ranks that have not finished before end in an error
/// with the reason.
TEST_P(stream_ordered_schedules, end_on_all_ranks_if_cuda_or_nccl_fails) {
  int programs = 0, failed = 0;
  for_each_seed(4, [&](std::uint64_t seed) {
    const program p = program_of(seed);
    const auto failing = static_cast<rank_t>(seed / 4 % static_cast<std::uint64_t>(p.ranks));
    std::vector<std::vector<result>> got;
    const auto ended = run_on_ranks(p, seed, got, [&](rank_t rank, random_source& random) {
      if (rank != failing) return;
      if (seed % 3 == 0) nccl_double::fail_at(1 + up_to(random, 40));
      if (seed % 3 == 1) nccl_double::fail_later_at(1 + up_to(random, 40));
      if (seed % 3 == 2) cuda_double::fail_at(1 + up_to(random, 100));
    });
    cuda_double::fail_at(1U << 30);
    for (const outcome& o : ended) { // the program captures and launches graphs, which may fail as well
      EXPECT_TRUE(o.error.empty() || o.error.find("a planned error") != std::string::npos ||
                  o.error.find("an exception has left the scope of a spar::nccl_stream") != std::string::npos)
          << o.error;
    }
    expect_bits_of_the_host(p, got, ended);
    ++programs;
    failed += ended[static_cast<std::size_t>(failing)].error.empty() ? 0 : 1;
  });
  EXPECT_GE(failed, programs / 3);
}

/// Many launches of the graph of a call, with other values each time; those of Ok-Topk between checked calls.
class stream_ordered_launches : public over_nccl::on_device_nccl, public testing::WithParamInterface<kind> {};
INSTANTIATE_TEST_SUITE_P(of_each_kind, stream_ordered_launches,
                         testing::Values(kind::topka, kind::split, kind::dsar, kind::ok_topk, kind::bfloat16,
                                         kind::half, kind::qsgd, kind::bfloat16_ring, kind::zfp_ring));

TEST_P(stream_ordered_launches, have_the_bits_of_the_host) {
  const bool is_ok_topk = GetParam() == kind::ok_topk;
  program p{.ranks = 3, .objects = {{GetParam(), is_ok_topk ? 600U : 90U, is_ok_topk ? 80U : 10U}}, .steps = {}};
  std::uint64_t& calls = p.objects[0].calls;
  for (std::uint64_t launches = spar_test::runs_all_cases() ? 1000 : 40; launches > 0; ++calls) {
    const bool is_checked = is_ok_topk && calls % period == 0;
    p.steps.push_back({.by = is_checked ? how::checked_on_device : how::by_a_graph, .waits = calls % 7 == 0});
    if (!is_checked) --launches;
  }
  std::vector<std::vector<result>> got;
  const auto ended = run_on_ranks(p, 1, got, [](rank_t, random_source&) {});
  in_order::expect_no_errors(ended);
  expect_bits_of_the_host(p, got, ended);
}

} // namespace
