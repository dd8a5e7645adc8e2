// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk with its state gives the same results over processes as for ranks in one process, also with other storages,
// on rows, and with pruning.
#include "support/processes.hpp"

#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace spar_test {
namespace {

constexpr std::size_t n = 20000;
constexpr int steps = 6;

template <class T, class Storage, class Schedule>
using reducer =
    spar::error_feedback<T, spar::composition<spar::selector::threshold_reuse, Storage, spar::flat, Schedule>>;

std::vector<float> gradient(spar::rank_t rank, int step) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 100 + static_cast<std::uint64_t>(step));
  std::vector<float> x(n);
  for (float& value : x) {
    const float uniform = static_cast<float>(random() % 2001) / 1000 - 1;
    value = uniform * uniform * uniform;
  }
  return x;
}

/// The sums of all steps, one after the other, and the last residual.
template <class Reducer, class Net>
std::vector<float> train(Net& net) {
  using T = typename Reducer::value_type;
  Reducer reduce({.select = {.density = 0.02, .period = 2}, .by = {.tau = 3}});
  std::vector<float> all;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> x = gradient(net.rank(), step);
    if constexpr (spar::is_row<T>)
      reduce(net, spar::rows<spar::width_of<T>>(x));
    else
      reduce(net, std::span<float>(x));
    all.insert(all.end(), x.begin(), x.end());
  }
  const auto residual = spar::components(reduce.residual());
  all.insert(all.end(), residual.begin(), residual.end());
  return all;
}

template <class Reducer>
std::vector<float> train_in_process(const communicator& like) {
  std::vector<std::vector<float>> of_rank(static_cast<std::size_t>(like.size()));
  spar::thread_group group{like.size()};
  group.run([&](spar::threads& net) { of_rank[static_cast<std::size_t>(net.rank())] = train<Reducer>(net); });
  return of_rank[static_cast<std::size_t>(like.rank())];
}

template <class Reducer>
class processes_ok_topk : public testing::Test {};
using spar::storage::coded;
using reducers = testing::Types<
#if SPAR_ALL_CASES
    reducer<float, coded<>, spar::balanced_owners>, reducer<float, coded<7>, spar::balanced_owners>,
    reducer<spar::row<float, 8>, coded<>, spar::balanced_owners>,
#endif
    spar::ok_topk<float>>;
TYPED_TEST_SUITE(processes_ok_topk, reducers);

TYPED_TEST(processes_ok_topk, gives_what_ranks_in_one_process_get) {
  communicator net(meeting());
  EXPECT_EQ(train<TypeParam>(net), train_in_process<TypeParam>(net));
}

/// Pruning changes no bit.
TEST(processes_pruned_owners, gives_what_ok_topk_gets_in_one_process) {
  communicator net(meeting());
  const auto pruned = train<reducer<float, coded<>, spar::pruned_owners>>(net);
  EXPECT_EQ(pruned, train_in_process<spar::ok_topk<float>>(net));
}

} // namespace
} // namespace spar_test
