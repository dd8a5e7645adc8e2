// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fields over processes: the same bits on all ranks as between threads, whose results other tests check; and ranks
// whose shapes differ.
#include "support/processes.hpp"

#include <spar/storage/zfp_field.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using field = spar::storage::zfp_field;

/// A smooth field, with a NaN and an infinity of one rank.
std::vector<float> brought(spar::rank_t rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = std::sin(0.03F * static_cast<float>(i + 11 * static_cast<std::size_t>(rank)));
  if (rank == 0) {
    x[n / 5] = std::numeric_limits<float>::infinity();
    x[n / 7] = std::numeric_limits<float>::quiet_NaN();
  }
  return x;
}

/// One rank's results, in all modes by all schedules, for messages that are enclosed in a header and for long ones.
template <class Net>
std::vector<std::vector<float>> all_results(Net& net, const spar::tree_plans& plans) {
  std::vector<std::vector<float>> results;
  for (const std::size_t planes : {29U, 1200U}) {
    const auto add = [&](const auto& algorithm) {
      auto x = brought(net.rank(), 35 * planes);
      spar::allreduce(net, std::span(x), algorithm);
      for (float& each : x) each = std::isnan(each) ? -1000 : each; // so that results with NaN compare as equal
      results.push_back(x);
    };
    for (field store : {field{}, field{.rate = 9}, field{.precision = 14}, field{.accuracy = 0.001}}) {
      store.shape = {7, 5, planes};
      add(spar::compose(store, spar::ring{.piece = 5000}));
      add(spar::compose(store, spar::recursive_doubling{.piece = 5000}));
      add(spar::compose(store, spar::two_shot{.piece = 5000}));
      add(spar::compose(store, spar::one_shot{.piece = 5000}));
      add(spar::compose(store, spar::rabenseifner{}));
      add(spar::compose(store, spar::dsar_split{}));
      add(spar::flexreduce(plans, store));
    }
  }
  return results;
}

TEST(processes_zfp_field, has_the_bits_that_threads_have) {
  communicator net(meeting());
  const spar::tree_plans plans(spar::tree_of_hosts(hosts_of_all(net)));
  const auto own = all_results(net, plans);
  std::vector<std::vector<std::vector<float>>> among_threads(static_cast<std::size_t>(net.size()));
  spar::thread_group group(net.size());
  group.run([&](spar::threads& one) { among_threads[static_cast<std::size_t>(one.rank())] = all_results(one, plans); });
  ASSERT_EQ(own.size(), among_threads[0].size());
  for (std::size_t c = 0; c < own.size(); ++c) {
    ASSERT_EQ(own[c], among_threads[static_cast<std::size_t>(net.rank())][c]) << "call " << c;
    ASSERT_EQ(among_threads[0][c], own[c]) << "call " << c;
  }
}

/// A rank with another shape of as many values ends in `mismatch`, or because another rank has.
TEST(processes_zfp_field, shapes_that_differ_end_the_call) {
  communicator world(meeting());
  if (world.size() < 2) return;
  communicator net = world.split(0, world.rank());
  field store{.shape = {7, 5, 60}, .accuracy = 0.001};
  if (net.rank() == 1) store.shape = {5, 7, 60};
  std::vector<float> x(2100, 1);
  int mismatches = 0;
  try {
    spar::allreduce(net, std::span(x), spar::compose(store, spar::ring{}));
    ADD_FAILURE() << "a call with other shapes returned";
  } catch (const spar::mismatch&) {
    mismatches = 1;
  } catch (const spar::peer_failed&) {
  }
  int of_all = 0;
  for (spar::rank_t r = 0; r < world.size(); ++r) {
    int its = mismatches;
    take_from(r, std::span(&its, 1));
    of_all += its;
  }
  EXPECT_GT(of_all, 0);
}

} // namespace
} // namespace spar_test
