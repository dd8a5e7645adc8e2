// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any fault of any message of any collective: every rank ends in time with the right result, or with the right error in
// this call or the next. Never a hang, never a wrong result.
#include "support/faults.hpp"

#include <spar/collective/compressed/bound.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#ifdef SPAR_TEST_LIBZFP
#include <spar/storage/zfp_field.hpp>
#endif

#if SPAR_ALL_CASES
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/zfp.hpp>
#endif

namespace spar_test {

#if SPAR_ALL_CASES
/// Two calls of Ok-Topk that sends only what can win: the second call has a threshold.
struct pruned_feedback {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    using algorithm =
        spar::composition<spar::selector::threshold_reuse, spar::storage::coded<>, spar::flat, spar::pruned_owners>;
    spar::error_feedback<float, algorithm> reduce{{.select = {.density = 0.04}}};
    bits both;
    for (int call = 0; call < 2; ++call) {
      auto pending = reduce.start_reduce(net, std::span(mine->dense));
      const auto result = co_await std::move(pending);
      const bits its = bits_of(result.sum);
      both.insert(both.end(), its.begin(), its.end());
    }
    co_return both;
  }
};
template <>
inline constexpr bool empty_payloads<pruned_feedback> = true; // an answer to a request for nothing

/// A stream of rows of 8 values.
template <class Algorithm>
struct sparse_rows {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    std::vector<float> values;
    for (const float x : mine->values)
      for (int w = 0; w < 8; ++w) values.push_back(x + static_cast<float>(w));
    const auto rows = spar::rows<8>(std::as_const(values));
    auto pending = spar::start_allreduce(net, spar::sparse_view(mine->dense.size(), mine->indices, rows), Algorithm{});
    const auto sum = co_await std::move(pending);
    bits all;
    append<index>(all, sum.indices());
    append(all, spar::components(sum.values()));
    co_return all;
  }
};

using coded = spar::storage::coded<>;
template <class Selector, class Schedule>
using coded_feedback = feedback<spar::error_feedback<float, spar::composition<Selector, coded, spar::flat, Schedule>>>;
#endif

namespace {

/// Sums in code, in messages whose size depends on the values.
struct hundredth : spar::storage::bound {
  hundredth() : bound{.error = 0.01} {}
};
template <class... Others>
testing::Types<Others..., dense<in_pieces<hundredth, spar::ring>>> with_bound(testing::Types<Others...>);

#ifdef SPAR_TEST_LIBZFP
/// A field of planes of 20 values, in slabs of 80. Its pieces, of a fifth, have as many slabs.
template <class Schedule>
struct in_slabs : spar::algorithm_defaults {
  static constexpr std::string_view name = Schedule::name;
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<float> x, Op op) const& {
    const spar::storage::zfp_field field{.shape = {5, 4, x.size() / 20}, .accuracy = 0.01};
    Schedule by{};
    if constexpr (requires { by.piece; }) by.piece = x.size() / 5;
    const auto algorithm = spar::compose(field, by);
    co_await algorithm(net, x, op);
  }
};
/// The same over a tree of two hosts.
struct slabs_on_tree : spar::algorithm_defaults {
  static constexpr std::string_view name = "slabs_on_tree";
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<float> x, Op op) const& {
    const spar::tree_plans plans(two_hosts(net.size()));
    const spar::storage::zfp_field field{.shape = {5, 4, x.size() / 20}, .accuracy = 0.01};
    const auto algorithm = spar::flexreduce(plans, field);
    co_await algorithm(net, x, op);
  }
};
template <class... Others>
testing::Types<Others...,
#if SPAR_ALL_CASES
               dense<slabs_on_tree>, dense<in_slabs<spar::recursive_doubling>>, dense<in_slabs<spar::two_shot>>,
               dense<in_slabs<spar::one_shot>>, dense<in_slabs<spar::rabenseifner>>, dense<in_slabs<spar::dsar_split>>,
#endif
               dense<in_slabs<spar::ring>>>
    with_fields(testing::Types<Others...>);
#else
template <class Types>
Types with_fields(Types);
#endif
using all = decltype(with_fields(with_bound(collectives{})));

#if SPAR_ALL_CASES
template <class... Others>
testing::Types<Others..., sparse<stored<coded, doubling_in_parts<2>>>, sparse<stored<coded, spar::ssar_split>>,
               sparse_rows<stored<coded, spar::ssar_split>>,
               coded_feedback<spar::selector::threshold_reuse, spar::balanced_owners>,
               coded_feedback<spar::selector::exact_topk, spar::tree_of_topk>, pruned_feedback>
    with_coded(testing::Types<Others...>);
/// Every codec of dense values, and sums in code by every schedule of dense values.
template <class... Others>
testing::Types<Others..., dense<in_pieces<hundredth, spar::recursive_doubling>>,
               dense<stored<hundredth, spar::rabenseifner>>, dense<stored<hundredth, spar::dsar_split>>,
               dense<in_pieces<hundredth, spar::two_shot>>, dense<in_pieces<hundredth, spar::one_shot>>,
               dense<in_pieces<spar::storage::zfp, spar::two_shot>>,
               dense<in_pieces<spar::storage::mx<spar::storage::e4m3>, spar::ring>>,
               dense<in_pieces<spar::storage::as_half, spar::ring>>>
    with_codecs(testing::Types<Others...>);
using tested = decltype(with_codecs(with_coded(all{})));
#else
using tested = all;
#endif
TYPED_TEST_SUITE(faults, tested);

#ifndef SPAR_SANITIZES_THREADS // a simulator has one thread
/// In the quick set every third fault.
TYPED_TEST(faults, of_every_message_in_the_simulator) {
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      for (std::uint64_t seed = 0; seed < (is_full() ? 3 : 1); ++seed) {
        const setting s{.ranks = ranks, .synchronous = synchronous, .seed = seed, .deadline = 1e-2};
        const auto clean = simulate<TypeParam>(s);
        ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
        for_each_fault(s, clean, [&](const setting& with) {
          if (this->HasFailure() || !runs_case(3, ranks, synchronous, number++)) return;
          this->check(with, clean, 1e-3, &simulate<TypeParam>);
        });
      }
    }
  }
}
#endif

#if SPAR_ALL_CASES
#ifndef SPAR_SANITIZES_THREADS
/// Finds damage in every part of a stream but the first.
struct damaged_parts : spar::storage::coded<> {
  template <spar::element T, spar::index_type Index>
  void decode(std::span<const std::byte> in, spar::index_range range, spar::entry_room<T, Index> to) const {
    if (range.begin > 0) throw spar::corrupt_message("damaged");
    coded::decode<T, Index>(in, range, to);
  }
};

/// Two of four ranks start their call a second later.
struct late_calls {
  const std::vector<input>* inputs;
  std::vector<outcome>* outcomes;
  spar::task<void> operator()(spar::sim& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    outcome& its = (*outcomes)[rank];
    if (rank >= 2) co_await net.sleep(1);
    const sparse<stored<damaged_parts, doubling_in_parts<2>>> collective;
    try {
      its.result = co_await collective(net, &(*inputs)[rank]);
      its.how = ending::right;
    } catch (...) {
      note_error(its);
    }
    its.at = net.now();
  }
};

TEST(faults_of_parts, end_the_call_while_other_parts_wait_for_late_ranks) {
  const auto inputs = inputs_of({.ranks = 4});
  std::vector<outcome> outcomes(inputs.size());
  run_sim<spar::sim>(4, late_calls{&inputs, &outcomes});
  for (std::size_t r = 0; r < 2; ++r) { // in the first round, these ranks send each other both parts
    EXPECT_EQ(outcomes[r].how, ending::corrupt) << outcomes[r].text;
    EXPECT_LT(outcomes[r].at, 0.5);
  }
  EXPECT_EQ(outcomes[2].how, ending::peer_failed) << outcomes[2].text;
  EXPECT_EQ(outcomes[3].how, ending::peer_failed) << outcomes[3].text;
}
#endif

using collectives_among_threads = tested;
#else
using collectives_among_threads = testing::Types<sparse<spar::ssar_split>, sparse<spar::sparcml>,
                                                 feedback<spar::ok_topk<float>>, dense<spar::ring>, dense_on_tree>;
#endif
template <class Collective>
struct faults_among_threads : faults<Collective> {};
TYPED_TEST_SUITE(faults_among_threads, collectives_among_threads);

TYPED_TEST(faults_among_threads, of_some_messages) {
  const std::uint64_t least = is_full() ? 29 : 101;
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      for (const std::size_t n : {200U, 20'000U}) { // enclosed in the message; read in the sender's memory
        if (is_shortened && n < 20'000) continue;
        const setting s{.ranks = ranks, .n = n, .synchronous = synchronous, .deadline = 0.06};
        setting patient = s;
        patient.deadline = 20;
        const auto clean = run_as_threads<TypeParam>(patient);
        ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
        const std::uint64_t every = stride_among_threads(s, clean, least);
        for_each_fault(s, clean, [&](setting with) {
          if (this->HasFailure() || ++number % every != 0) return;
          if (is_harmless(with) || is_damage(with))
            with.deadline = patient.deadline; // a rank on a busy machine may be late without a fault
          this->check(with, clean, 10, &run_as_threads<TypeParam>);
        });
      }
    }
  }
}

template <class Collective>
struct crashes_ahead_of_peers : faults<Collective> {};
#if SPAR_ALL_CASES
using crashing_ahead = tested;
#else
using crashing_ahead =
    testing::Types<dense<in_pieces<spar::storage::as_bfloat16, spar::recursive_doubling>>,
                   dense<in_pieces<spar::storage::as_bfloat16, spar::ring>>, sparse<spar::ssar_split>>;
#endif
TYPED_TEST_SUITE(crashes_ahead_of_peers, crashing_ahead);

/// A crashed rank withdraws messages that no peer has received. Pieces of 2053 values of 2 bytes stay in the memory of
/// the sender; the last piece, of 2045 values, is buffered, and cannot be withdrawn.
TYPED_TEST(crashes_ahead_of_peers, end_in_peer_failed_or_timeout) {
  const double none = std::numeric_limits<double>::infinity();
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {2, 3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      const setting s{.ranks = ranks, .n = 16'416, .synchronous = synchronous, .deadline = none};
      const auto clean = run_by_turns<TypeParam>(s, 1);
      ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
      for_each_fault(s, clean, [&](setting with) {
        if (this->HasFailure() || with.fault->what != spar::fault::kind::crash) return;
        with.checksums = number++ % 2 == 0;
        for (const int turns : {1, 3}) {
          this->check(with, clean, 0, [&](const setting& it) { return run_by_turns<TypeParam>(it, turns); });
        }
      });
    }
  }
}

} // namespace
} // namespace spar_test
