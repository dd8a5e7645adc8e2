// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// After one call, calls that are no larger allocate nothing: neither from the transport's memory resource nor from
// anywhere else. This holds on every rank and for any order of events, also while the previous call's result is kept.
#include "support/compositions.hpp"
#include "support/counting_resource.hpp"
#include "support/global_allocations.hpp"
#include "support/ranks.hpp"
#include "support/repeated_calls.hpp"
#include "support/streams.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/strided.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#ifdef SPAR_TEST_LIBZFP
#include "support/line.hpp"
#endif

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <type_traits>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;
using vectors = std::vector<std::vector<float>>;

// Calls for `repeated`; all of them borrow their arguments.

template <class Algorithm>
struct sparse_allreduce {
  const inputs* mine;
  template <class Net>
  auto operator()(Net& net) const {
    return spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
  }
};

template <class Algorithm>
struct dense_allreduce {
  vectors* x;
  template <class Net>
  auto operator()(Net& net) const {
    return spar::start_allreduce(net, std::span<float>((*x)[static_cast<std::size_t>(net.rank())]), Algorithm{});
  }
};

enum class piece { reduce_scatter, allgather, reduce, broadcast };

/// Whether the ranks stay in step. In a reduce or a broadcast some ranks only send and may be any number of calls
/// ahead, with messages in flight; buffered sends copy these messages into the sender's memory.
template <class Call>
inline constexpr bool in_step = true;

template <piece What, class Net, class Own>
auto start_piece(Net& net, const Own& own) {
  const spar::rank_t root = net.size() - 1;
  if constexpr (What == piece::reduce_scatter) return spar::start_reduce_scatter(net, own);
  if constexpr (What == piece::allgather) return spar::start_allgather(net, own);
  if constexpr (What == piece::reduce) return spar::start_reduce(net, own, root);
  if constexpr (What == piece::broadcast) return spar::start_broadcast(net, own, root);
}

template <piece What>
struct sparse_piece {
  const inputs* mine;
  template <class Net>
  auto operator()(Net& net) const {
    const auto own = (*mine)[static_cast<std::size_t>(net.rank())].view();
    return start_piece<What>(net, own);
  }
};

template <piece What>
struct dense_piece {
  vectors* x;
  template <class Net>
  auto operator()(Net& net) const {
    const std::span<float> own((*x)[static_cast<std::size_t>(net.rank())]);
    return start_piece<What>(net, own);
  }
};

/// An allreduce of every other value.
struct strided_allreduce {
  vectors* x;
  template <class Net>
  auto operator()(Net& net) const {
    auto& own = (*x)[static_cast<std::size_t>(net.rank())];
    return spar::start_allreduce(net, spar::strided(own.data(), {own.size() / 2}, {2}), spar::ring{});
  }
};

template <piece What>
inline constexpr bool in_step<sparse_piece<What>> = What != piece::reduce && What != piece::broadcast;
template <piece What>
inline constexpr bool in_step<dense_piece<What>> = What != piece::reduce && What != piece::broadcast;

/// The larger numbers of ranks take minutes.
std::span<const spar::rank_t> some_ranks() { return is_full() ? std::span(all_ranks) : std::span(all_ranks).first(5); }

/// A tenth of 30000 indices, evenly spread; otherwise a rank might own more entries of a smaller vector.
inputs even(pattern shape, spar::rank_t ranks) {
  inputs all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].n = 30'000;
    if (shape == pattern::some_empty && r % 3 != 1) continue;
    for (index i = shape == pattern::disjoint ? static_cast<index>(r % 10) : 0; i < 30'000; i += 10) {
      all[r].indices.push_back(i);
      all[r].values.push_back(1.0F);
    }
  }
  return all;
}

/// Every `stride`-th of each rank's entries below n: in no respect larger than `all`.
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

/// An empty program: measures what a run itself allocates, the list of the ranks' programs or the threads.
struct nothing {
  template <class Net>
  spar::task<void> operator()(Net&) const& {
    co_return;
  }
};

struct simulated {
  spar::simulator engine;
  template <class Program>
  void run(const Program& program) {
    engine.run([&](spar::sim& net) { return program(net); });
  }
};
struct threaded {
  spar::thread_group group;
  template <class Program>
  void run(const Program& program) {
    group.run([&](spar::threads& net) { spar::run_until_done(net, program(net)); });
  }
};

/// Makes the calls of each of `others`, also with results kept, and one call of `first` after each. All in one program,
/// because starting the threads costs more than a call.
template <class Call>
struct in_turn {
  const Call* first;
  const std::vector<Call>* others;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const repeated<Call> large{*first, 1};
    for (const Call& other : *others) {
      const repeated<Call> once{other, 1};
      co_await once(net);
      const repeated<Call> kept{other, 3, true};
      co_await kept(net);
      co_await large(net);
    }
  }
};

/// After one call of `first`, neither `first` nor the `others` allocate anything, however often they are called.
template <class Machine, class Call>
void expect_none_after_one(Machine& ranks, const counting_resource& upstream, const Call& first,
                           const std::vector<Call>& others, bool loops) {
  const auto run = [&](const auto& program) -> taken {
    const taken before{upstream.allocations(), global_allocations()};
    ranks.run(program);
    return {upstream.allocations() - before.pooled, global_allocations() - before.global};
  };
  const std::vector<Call> none;
  run(in_turn<Call>{&first, &none}); // warms up the memory of this coroutine, which is not the calls'
  run(repeated<Call>{first, 1});
  const taken idle = run(nothing{});
  for (int call = 0; call < 3; ++call) EXPECT_EQ(run(repeated<Call>{first, 1}), idle) << "call " << call;
  const int times = loops ? 6 : 1;
  EXPECT_EQ(run(repeated<Call>{first, times}), idle) << "in a loop";
  EXPECT_EQ(run(repeated<Call>{first, times, true}), idle) << "in a loop, results kept";
  if (loops) {
    const std::vector<Call> itself{first};
    run(in_turn<Call>{&first, &itself}); // the scheduler makes room for one coroutine more than the calls need
    EXPECT_EQ(run(in_turn<Call>{&first, &others}), idle) << "smaller calls";
    return;
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(run(repeated<Call>{others[i], 1}), idle) << "smaller call " << i;
    EXPECT_EQ(run(repeated<Call>{first, 1}), idle) << "after smaller call " << i;
  }
}

/// Whether to make these calls on threads, too; in the quick set only some calls.
template <class Call>
inline constexpr bool is_on_threads = compiles_all_cases;
template <>
inline constexpr bool is_on_threads<sparse_allreduce<spar::ssar_split>> = true;
template <>
inline constexpr bool is_on_threads<dense_allreduce<spar::ring>> = true;
template <>
inline constexpr bool is_on_threads<dense_piece<piece::broadcast>> = true;
#ifdef SPAR_TEST_LIBZFP
/// Each run of a group has new threads, and each thread keeps memory of its own for libzfp.
template <class Schedule>
inline constexpr bool is_on_threads<dense_allreduce<stored<line, Schedule>>> = false;
#endif

/// The same check on every in-process transport. `shape` is the position of the input, for runs_case().
template <class Call>
void expect_none_after_one(spar::rank_t ranks, int shape, const Call& first, const std::vector<Call>& others = {}) {
  for (const bool synchronous : {false, true}) {
    for (const std::uint64_t seed : {0U, 1U, 8U}) {
      if (!runs_case(3, ranks, shape, synchronous, seed)) continue;
      SCOPED_TRACE(testing::Message() << "simulated, P = " << ranks << ", seed " << seed
                                      << (synchronous ? ", synchronous" : ""));
      counting_resource upstream;
      auto options = seed == 0 ? spar::simulator_options{.synchronous = synchronous} : random_order(seed, synchronous);
      options.memory = &upstream;
      simulated machine{spar::simulator(ranks, options)};
      expect_none_after_one(machine, upstream, first, others, synchronous || in_step<Call>);
    }
    if constexpr (is_on_threads<Call>) {
      if (!runs_case(2, ranks, shape, synchronous)) continue;
      SCOPED_TRACE(testing::Message() << "threads, P = " << ranks << (synchronous ? ", synchronous" : ""));
      counting_resource upstream;
      threaded machine{spar::thread_group(ranks, {.synchronous = synchronous, .memory = &upstream})};
      expect_none_after_one(machine, upstream, first, others, true);
    }
  }
}

template <class Algorithm>
class allocations : public testing::Test {};
using adaptive = spar::split_allgather<>;
template <class A>
using coded = spar::composition<spar::everything,
                                spar::storage::then<spar::storage::coded<>, spar::storage::as_bfloat16>, spar::flat, A>;
using algorithms = joined<testing::Types, stream_schedules,
                          std::tuple<quantised_split<8>, adaptive, spar::gather_and_merge, coded<doubling_in_parts<3>>,
                                     coded<spar::rabenseifner>, coded<spar::split_allgather<>>>>;
TYPED_TEST_SUITE(allocations, algorithms);

TYPED_TEST(allocations, none_by_repeated_calls) {
  for (const spar::rank_t ranks : some_ranks()) {
    for (const pattern shape :
         {pattern::random, pattern::identical, pattern::disjoint, pattern::mixed, pattern::dense}) {
      SCOPED_TRACE(shape);
      const auto mine = contributions<float, index>(shape, ranks, 6000, 1, exact_value<float>);
      expect_none_after_one(ranks, static_cast<int>(shape), sparse_allreduce<TypeParam>{&mine});
    }
  }
}

/// The bound of an encoded entry is larger than a dense value. So if a call's sums turn dense, a call with fewer
/// entries whose sums stay sparse may need more memory; only a call with the same density is then smaller in every
/// respect.
template <class Algorithm>
inline constexpr bool stays_sparse_longer = false;
template <class A>
inline constexpr bool stays_sparse_longer<coded<A>> = true;

/// Fewer entries, a smaller dimension, or both. Skips the algorithms that may choose another schedule for smaller
/// calls.
TYPED_TEST(allocations, none_by_smaller_calls) {
  if constexpr (!std::is_same_v<TypeParam, spar::sparcml> && !std::is_same_v<TypeParam, adaptive>) {
    for (const spar::rank_t ranks : some_ranks()) {
      for (const pattern shape : {pattern::identical, pattern::some_empty, pattern::disjoint}) {
        SCOPED_TRACE(shape);
        const inputs large = even(shape, ranks);
        std::vector<inputs> some;
        for (const std::uint64_t n : {30'000U, 10'000U, 500U}) {
          for (const std::size_t stride : {1U, 2U, 10U, 1000U}) {
            // With ten ranks or more, the disjoint entries of the larger call fill the vector.
            if (stays_sparse_longer<TypeParam> && shape == pattern::disjoint && ranks >= 10 && stride > 1) continue;
            some.push_back(smaller(large, n, stride));
          }
        }
        std::vector<sparse_allreduce<TypeParam>> others;
        for (const auto& mine : some) others.push_back({&mine});
        expect_none_after_one(ranks, static_cast<int>(shape), sparse_allreduce<TypeParam>{&large}, others);
      }
    }
  }
}

/// The calls have the same k, so the ranks choose the same algorithm, but in the smaller call they first get to know
/// sums of short streams.
TEST(allocations_of_sparcml, none_if_more_sums_are_known) {
  for (const spar::rank_t ranks : some_ranks()) {
    const inputs large = even(pattern::disjoint, ranks);
    inputs shorter = smaller(large, 30'000, 100);
    shorter[0] = large[0];
    expect_none_after_one(ranks, 0, sparse_allreduce<spar::sparcml>{&large},
                          {sparse_allreduce<spar::sparcml>{&shorter}});
  }
}

template <class Call>
void expect_no_dense_allocations() {
  for (const spar::rank_t ranks : some_ranks()) {
    std::vector<vectors> x;
    for (const std::size_t n : {30'000U, 20'000U, 3000U, 600U, 10U}) {
      x.emplace_back(static_cast<std::size_t>(ranks), std::vector<float>(n, 0.0F));
    }
    std::vector<Call> others;
    if (!std::is_same_v<Call, dense_allreduce<spar::cheapest>>) { // may choose another schedule
      for (auto& smaller : x) others.push_back({&smaller});
    }
    expect_none_after_one(ranks, 0, Call{&x[0]}, others);
  }
}

struct hundredth : spar::storage::bound {
  hundredth() : bound{.error = 0.01} {}
};

TEST(dense_allocations, none_after_the_first_call) {
  std::apply(
      [](const auto&... by) { (expect_no_dense_allocations<dense_allreduce<std::decay_t<decltype(by)>>>(), ...); },
      dense_schedules());
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::qsgd<8>, spar::ring>>>();
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::as_bfloat16, spar::recursive_doubling>>>();
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::qsgd<8>, spar::two_shot>>>();
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::as_bfloat16, spar::one_shot>>>();
#if SPAR_ALL_CASES
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::as_half, spar::ring>>>();
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::zfp, spar::two_shot>>>();
  expect_no_dense_allocations<dense_allreduce<stored<spar::storage::mx<spar::storage::e4m3>, spar::ring>>>();
#endif
  expect_no_dense_allocations<dense_allreduce<stored<hundredth, spar::ring>>>();
  expect_no_dense_allocations<dense_allreduce<stored<hundredth, spar::dsar_split>>>();
  expect_no_dense_allocations<dense_allreduce<stored<hundredth, spar::recursive_doubling>>>();
  expect_no_dense_allocations<dense_allreduce<stored<hundredth, spar::two_shot>>>();
#ifdef SPAR_TEST_LIBZFP
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::ring>>>();
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::rabenseifner>>>();
#if SPAR_ALL_CASES
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::recursive_doubling>>>();
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::dsar_split>>>();
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::two_shot>>>();
  expect_no_dense_allocations<dense_allreduce<stored<line, spar::one_shot>>>();
#endif
#endif
  expect_no_dense_allocations<strided_allreduce>();
}

/// Two hosts, the second one larger; the plan is made before the calls.
template <class X>
struct planned_calls {
  const spar::flex_plan* plan;
  X* x;
  template <class Net>
  auto operator()(Net& net) const {
    auto& mine = (*x)[static_cast<std::size_t>(net.rank())];
    if constexpr (std::is_same_v<X, vectors>)
      return spar::start_allreduce(net, std::span(mine), spar::flexreduce(*plan));
    else
      return spar::start_allreduce(net, mine.view(), spar::flexreduce(*plan));
  }
};

TEST(allocations_of_flexreduce, none_after_the_first_call) {
  for (const spar::rank_t ranks : some_ranks()) {
    std::vector<spar::rank_t> host_of;
    for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r < ranks / 2 ? 0 : 1);
    const spar::flex_plan plan(spar::tree_of_hosts(host_of), 30'000);
    vectors x(static_cast<std::size_t>(ranks), std::vector<float>(30'000));
    expect_none_after_one(ranks, 0, planned_calls<vectors>{&plan, &x});
    for (const pattern shape : {pattern::random, pattern::dense}) {
      const auto mine = contributions<float, index>(shape, ranks, 30'000, 1, exact_value<float>);
      expect_none_after_one(ranks, static_cast<int>(shape), planned_calls<const inputs>{&plan, &mine});
    }
  }
}

/// The plans that depend on the tree are made before the calls.
struct calls_on_tree {
  const spar::tree_plans* plans;
  const inputs* mine;
  template <class Net>
  auto operator()(Net& net) const {
    return spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), spar::tree_sparcml(*plans));
  }
};

TEST(allocations_of_tree_sparcml, none_after_the_first_call) {
  for (const spar::rank_t ranks : some_ranks()) {
    std::vector<spar::rank_t> host_of;
    for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r < ranks / 2 ? 0 : 1);
    const spar::tree_plans plans(spar::tree_of_hosts(host_of));
    const auto mine = contributions<float, index>(pattern::random, ranks, 30'000, 1, exact_value<float>);
    expect_none_after_one(ranks, 0, calls_on_tree{&plans, &mine});
  }
}

template <piece What>
void expect_no_allocations_of_a_piece() {
  expect_no_dense_allocations<dense_piece<What>>();
  for (const spar::rank_t ranks : some_ranks()) {
    const auto large = contributions<float, index>(pattern::random, ranks, 30'000, 1, exact_value<float>);
    const auto small = smaller(large, 20'000, 3);
    expect_none_after_one(ranks, 1, sparse_piece<What>{&large}, {{&small}});
  }
}

TEST(allocations_of_pieces, none_by_reduce_scatter) { expect_no_allocations_of_a_piece<piece::reduce_scatter>(); }
TEST(allocations_of_pieces, none_by_allgather) { expect_no_allocations_of_a_piece<piece::allgather>(); }
TEST(allocations_of_pieces, none_by_reduce) { expect_no_allocations_of_a_piece<piece::reduce>(); }
TEST(allocations_of_pieces, none_by_broadcast) { expect_no_allocations_of_a_piece<piece::broadcast>(); }

/// Ok-Topk with its state. The nonzeros keep their places and all reach the result, so no call is larger than another.
template <class Reducer>
struct ok_topk_calls {
  vectors* x;
  std::vector<std::unique_ptr<Reducer>>* reducers;
  template <class Net>
  auto operator()(Net& net) const {
    using T = typename Reducer::value_type;
    const auto r = static_cast<std::size_t>(net.rank());
    const std::span<const float> mine((*x)[r]);
    if constexpr (spar::is_row<T>)
      return (*reducers)[r]->start_reduce(net, spar::rows<spar::width_of<T>>(mine));
    else
      return (*reducers)[r]->start_reduce(net, mine);
  }
};

template <class Reducer>
void expect_none_of_ok_topk(const typename Reducer::algorithm_type& options) {
  for (const spar::rank_t ranks : some_ranks()) {
    vectors x(static_cast<std::size_t>(ranks), std::vector<float>(6000));
    for (std::size_t r = 0; r < x.size(); ++r)
      for (std::size_t i = r % 3; i < x[r].size(); i += 20) x[r][i] = static_cast<float>(i % 7) + 1;
    std::vector<std::unique_ptr<Reducer>> reducers;
    const auto anew = [&] {
      reducers.clear();
      for (std::size_t r = 0; r < x.size(); ++r) reducers.push_back(std::make_unique<Reducer>(options));
    };
    const ok_topk_calls<Reducer> calls{&x, &reducers};
    const auto expect_none = [&](auto& machine, const counting_resource& upstream) {
      anew();
      machine.run(repeated<ok_topk_calls<Reducer>>{calls, 1});
      const std::uint64_t idle_before = global_allocations();
      machine.run(nothing{});
      const std::uint64_t idle = global_allocations() - idle_before;
      for (int call = 0; call < 7; ++call) {
        const taken before{upstream.allocations(), global_allocations()};
        machine.run(repeated<ok_topk_calls<Reducer>>{calls, 1});
        const taken now{upstream.allocations() - before.pooled, global_allocations() - before.global - idle};
        EXPECT_EQ(now, (taken{0, 0})) << "call " << call << ", P = " << ranks;
      }
    };
    counting_resource upstream;
    simulated simulator{spar::simulator(ranks, {.memory = &upstream})};
    expect_none(simulator, upstream);
    counting_resource of_threads;
    threaded threads{spar::thread_group(ranks, {.memory = &of_threads})};
    expect_none(threads, of_threads);
  }
}

TEST(allocations_of_ok_topk, none_after_the_first_call) {
  expect_none_of_ok_topk<spar::ok_topk<float>>({.select = {.k = 1000, .period = 3}});
}
#if SPAR_ALL_CASES
TEST(allocations_of_ok_topk, none_after_the_first_call_with_pruning) {
  using algorithm =
      spar::composition<spar::selector::threshold_reuse, spar::storage::coded<>, spar::flat, spar::pruned_owners>;
  expect_none_of_ok_topk<spar::error_feedback<float, algorithm>>({.select = {.k = 1000, .period = 3}});
}

/// Streams of rows of 8 values: the entries of `mine`, 8 times each.
struct calls_of_rows {
  const inputs* mine;
  const vectors* values;
  template <class Net>
  auto operator()(Net& net) const {
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto& entries = (*mine)[rank];
    return spar::start_allreduce(net, spar::sparse_view(entries.n, entries.indices, spar::rows<8>((*values)[rank])),
                                 stored<spar::storage::coded<>, spar::cheapest>{});
  }
};

TEST(allocations_of_rows, none_after_the_first_call) {
  using algorithm =
      spar::composition<spar::selector::threshold_reuse, spar::storage::coded<>, spar::flat, spar::balanced_owners>;
  expect_none_of_ok_topk<spar::error_feedback<spar::row<float, 8>, algorithm>>({.select = {.k = 500, .period = 3}});
  for (const spar::rank_t ranks : some_ranks()) {
    const auto mine = contributions<float, index>(pattern::random, ranks, 6000, 1, exact_value<float>);
    vectors values;
    for (const auto& entries : mine) values.emplace_back(8 * entries.indices.size(), 1.0F);
    expect_none_after_one(ranks, 0, calls_of_rows{&mine, &values});
  }
}
#endif

/// Every rank makes its calls through a decorator.
template <class Algorithm>
struct counted_calls {
  const inputs* mine;
  int times;
  std::vector<std::optional<spar::counting<spar::sim>>>* decorators;
  spar::task<void> operator()(spar::sim& net) const& {
    auto& counted = (*decorators)[static_cast<std::size_t>(net.rank())];
    if (!counted) counted.emplace(net);
    const repeated<sparse_allreduce<Algorithm>> calls{{mine}, times, true};
    co_await calls(*counted);
  }
};

TEST(allocations_of_a_decorator, none_after_the_first_call) {
  for (const spar::rank_t ranks : some_ranks()) {
    SCOPED_TRACE(testing::Message() << "P = " << ranks);
    const auto mine = contributions<float, index>(pattern::random, ranks, 6000, 1, exact_value<float>);
    counting_resource upstream;
    simulated machine{spar::simulator(ranks, {.memory = &upstream})};
    std::vector<std::optional<spar::counting<spar::sim>>> decorators(static_cast<std::size_t>(ranks));
    machine.run(counted_calls<spar::ssar_split>{&mine, 1, &decorators});
    const std::uint64_t before = upstream.allocations();
    machine.run(counted_calls<spar::ssar_split>{&mine, 10, &decorators});
    EXPECT_EQ(upstream.allocations(), before);
  }
}

/// All memory that spar allocates is freed once the transports and the results are gone.
TEST(allocations_of_a_transport, are_given_back) {
  counting_resource upstream;
  {
    std::vector<spar::sparse_stream<float, index>> kept(4);
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
    EXPECT_GT(kept[3].count(), 0U) << "a result must outlive its transport";
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
    EXPECT_THROW(run_sim(5, fails{}, options), spar::peer_failed);
  }
  EXPECT_EQ(upstream.outstanding(), 0);
}

} // namespace
} // namespace spar_test
