// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// After one call over processes, calls that are no larger allocate nothing from the transport's memory resource.
#include "processes/stream_algorithms.hpp"
#include "support/compositions.hpp"
#include "support/counting_resource.hpp"
#include "support/processes.hpp"
#include "support/repeated_calls.hpp"
#include "support/streams.hpp"

#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
template <class T>
using inputs = std::vector<contribution<T, index>>;

template <class Algorithm, class T = float>
struct sparse_allreduce {
  const inputs<T>* mine;
  auto operator()(communicator& net) const {
    return spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
  }
};

template <class Algorithm>
struct dense_allreduce {
  std::vector<float>* x;
  auto operator()(communicator& net) const { return spar::start_allreduce(net, std::span<float>(*x), Algorithm{}); }
};

template <class Call>
void expect_none_after_one(const Call& call, const Call& smaller) {
  counting_resource upstream;
  communicator net(meeting(), {.memory = &upstream});
  const auto run = [&](const repeated<Call>& program) { spar::run_until_done(net, program(net)); };
  run({call, 1});
  const std::uint64_t before = upstream.allocations();
  for (int round = 0; round < 2; ++round) {
    run({call, 5});
    EXPECT_EQ(upstream.allocations(), before);
    run({call, 5, true});
    EXPECT_EQ(upstream.allocations(), before) << "results kept";
    run({smaller, 5, true});
    EXPECT_EQ(upstream.allocations(), before) << "smaller";
  }
}

template <class Algorithm>
class processes_allocations : public testing::Test {};
TYPED_TEST_SUITE(processes_allocations, stream_algorithms);

template <class Algorithm, class T>
void expect_no_sparse_allocations(std::uint64_t n) {
  const spar::rank_t ranks = number_of_processes();
  for (const pattern shape : {pattern::random, pattern::identical, pattern::dense}) {
    SCOPED_TRACE(testing::Message() << shape << ", n = " << n);
    const inputs<T> mine = contributions<T, index>(shape, ranks, n, 1, exact_value<T>);
    const sparse_allreduce<Algorithm, T> call{&mine};
    expect_none_after_one(call, call);
  }
}

TYPED_TEST(processes_allocations, none_after_the_first_call) {
  expect_no_sparse_allocations<TypeParam, float>(1000);
  expect_no_sparse_allocations<TypeParam, float>(100'000);
}

#if SPAR_ALL_CASES
TEST(processes_allocations_of_rows, none_after_the_first_call) {
  expect_no_sparse_allocations<stored<spar::storage::coded<>, spar::ssar_split>, spar::row<float, 8>>(10'000);
}

/// Ok-Topk with its state. All nonzeros reach the result, so no call is larger than another.
template <class Reducer>
struct ok_topk_calls {
  Reducer* reduce;
  const std::vector<float>* x;
  auto operator()(communicator& net) const {
    using T = typename Reducer::value_type;
    if constexpr (spar::is_row<T>)
      return reduce->start_reduce(net, spar::rows<spar::width_of<T>>(*x));
    else
      return reduce->start_reduce(net, std::span(*x));
  }
};

template <class T, class Schedule>
void expect_no_allocations_of_ok_topk(std::uint64_t k) {
  using algorithm = spar::composition<spar::selector::threshold_reuse, spar::storage::coded<>, spar::flat, Schedule>;
  const spar::rank_t rank = rank_of_process();
  std::vector<float> x(6000);
  for (std::size_t i = static_cast<std::size_t>(rank % 3); i < x.size(); i += 20) x[i] = static_cast<float>(i % 7) + 1;
  spar::error_feedback<T, algorithm> reduce({.select = {.k = k, .period = 3}});
  const ok_topk_calls<decltype(reduce)> call{&reduce, &x};
  expect_none_after_one(call, call);
}

TEST(processes_allocations_of_ok_topk, none_after_the_first_call) {
  expect_no_allocations_of_ok_topk<float, spar::balanced_owners>(1000);
  expect_no_allocations_of_ok_topk<float, spar::pruned_owners>(1000);
  expect_no_allocations_of_ok_topk<spar::row<float, 8>, spar::balanced_owners>(500);
}
#endif

template <class Algorithm>
void expect_no_dense_allocations() {
  for (const std::size_t n : {100U, 100'000U}) {
    SCOPED_TRACE(testing::Message() << "n = " << n);
    std::vector<float> large(n, 0.0F);
    std::vector<float> small(n / 3, 0.0F);
    expect_none_after_one(dense_allreduce<Algorithm>{&large}, dense_allreduce<Algorithm>{&small});
  }
}

TEST(processes_dense_allocations, none_after_the_first_call) {
  expect_no_dense_allocations<spar::recursive_doubling>();
  expect_no_dense_allocations<spar::ring>();
  expect_no_dense_allocations<spar::rabenseifner>();
}

} // namespace
} // namespace spar_test
