// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// After one call over MPI, calls that are no larger allocate nothing from the transport's memory resource.
#include "support/compositions.hpp"
#include "support/counting_resource.hpp"
#include "support/repeated_calls.hpp"
#include "support/streams.hpp"

#include <spar/mpi.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {

namespace {

using index = std::uint32_t;
using inputs = std::vector<contribution<float, index>>;

template <class Algorithm>
struct sparse_allreduce {
  const inputs* mine;
  auto operator()(spar::mpi& net) const {
    return spar::start_allreduce(net, (*mine)[static_cast<std::size_t>(net.rank())].view(), Algorithm{});
  }
};

template <class Algorithm>
struct dense_allreduce {
  std::vector<float>* x;
  auto operator()(spar::mpi& net) const { return spar::start_allreduce(net, std::span<float>(*x), Algorithm{}); }
};

template <class Call>
void expect_none_after_one(const Call& call, const Call& smaller) {
  counting_resource upstream;
  spar::mpi net(MPI_COMM_WORLD, {.memory = &upstream});
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
class mpi_allocations : public testing::Test {};
using algorithms = testing::Types<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::ssar_split,
                                  spar::dsar_split, quantised_split<8>, spar::sparcml>;
TYPED_TEST_SUITE(mpi_allocations, algorithms);

TYPED_TEST(mpi_allocations, none_after_the_first_call) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const std::uint64_t n : {1000U, 100'000U}) {
    for (const pattern shape : {pattern::random, pattern::identical, pattern::dense}) {
      SCOPED_TRACE(testing::Message() << shape << ", n = " << n);
      const inputs mine = contributions<float, index>(shape, ranks, n, 1, exact_value<float>);
      const sparse_allreduce<TypeParam> call{&mine};
      expect_none_after_one(call, call);
    }
  }
}

template <class Algorithm>
void expect_no_dense_allocations() {
  for (const std::size_t n : {100U, 100'000U}) {
    SCOPED_TRACE(testing::Message() << "n = " << n);
    std::vector<float> large(n, 0.0F);
    std::vector<float> small(n / 3, 0.0F);
    expect_none_after_one(dense_allreduce<Algorithm>{&large}, dense_allreduce<Algorithm>{&small});
  }
}

TEST(mpi_dense_allocations, none_after_the_first_call) {
  expect_no_dense_allocations<spar::recursive_doubling>();
  expect_no_dense_allocations<spar::ring>();
  expect_no_dense_allocations<spar::rabenseifner>();
}

} // namespace
} // namespace spar_test
