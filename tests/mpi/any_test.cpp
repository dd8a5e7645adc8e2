// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of <spar/any.hpp> over MPI have the bits and the traffic of the collectives that are templates.
#include "support/message_of.hpp"

#include <spar/any_mpi.hpp>
#include <spar/mpi.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/transport/any.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

TEST(any_mpi, has_the_bits_and_the_traffic_of_a_communicator_that_is_known) {
  spar::mpi world;
  spar::any_transport net = spar::any_mpi();
  ASSERT_EQ(net.rank(), world.rank());
  ASSERT_EQ(net.size(), world.size());
  for (const std::size_t n : {std::size_t{2}, std::size_t{5000}}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) / static_cast<float>(world.rank() + 3);
    auto y = x;
    spar::allreduce(world, std::span(x));
    const spar::any_allreduce<float> reduce;
    reduce(net, y);
    EXPECT_EQ(x, y);
    EXPECT_EQ(world.last_call().messages_sent, net.last_call().messages_sent);
    EXPECT_EQ(world.last_call().bytes_sent, net.last_call().bytes_sent);

    const std::vector<std::uint32_t> indices{0, static_cast<std::uint32_t>(n - 1)};
    const std::vector<float> values{x[0], 1};
    const auto sum = spar::allreduce(world, spar::sparse_view(n, indices, values));
    auto pending = reduce.start(net, n, indices, values);
    const auto any_sum = pending.wait();
    EXPECT_TRUE(std::ranges::equal(sum.indices(), any_sum.indices()));
    EXPECT_TRUE(std::ranges::equal(sum.values(), any_sum.values()));
    EXPECT_EQ(world.last_call().bytes_sent, net.last_call().bytes_sent);
  }
}

TEST(any_mpi, keeps_a_residual_over_the_tree_of_the_hosts) {
  spar::any_transport net = spar::any_mpi();
  EXPECT_TRUE(std::ranges::equal(net.hosts(), spar::hosts_of(MPI_COMM_WORLD)));
  spar::any_feedback<float> reduce("tree_ok_topk:k=3", net.hosts());
  std::vector<float> x(100);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto result = reduce.reduce(net, x);
  EXPECT_EQ(result.sum.dimension(), x.size());
  EXPECT_EQ(reduce.residual().size(), x.size());
}

float sum_of_ones(spar::any_transport& net) {
  std::vector<float> x(3, 1);
  spar::any_allreduce<float>{}(net, x);
  return x[0];
}

TEST(any_mpi, is_divided) {
  spar::any_transport net = spar::any_mpi();
  for (const int colour : {0, net.rank() % 2}) { // also twice in the same way
    spar::any_transport part = net.split(colour, -net.rank());
    EXPECT_EQ(sum_of_ones(part), static_cast<float>(part.size()));
    EXPECT_EQ(part.hosts().size(), static_cast<std::size_t>(part.size()));
    if (colour == 0 && part.size() == net.size()) {
      EXPECT_EQ(part.rank(), net.size() - 1 - net.rank());
    }
  }
}

/// A store for the ranks of this process, of which the others have none.
class no_store final : public spar::rendezvous_store {
 public:
  std::string put(std::string_view key, std::string_view value) override {
    return values_.try_emplace(std::string(key), value).first->second;
  }
  std::optional<std::string> wait(std::string_view key, double) override {
    const auto found = values_.find(std::string(key));
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};

/// Each process has a communicator of its own, and goes on alone: shrink finds its rendezvous, also of a part.
TEST(any_mpi, shrinks_by_the_rendezvous_of_its_maker) {
  const spar::rendezvous meeting(std::make_shared<no_store>(), 0, 1);
  spar::any_transport net = spar::any_mpi(MPI_COMM_SELF, meeting);
  for (int i = 0; i < 2; ++i) {
    net.set_deadline(20);
    spar::any_transport rest = net.shrink();
    EXPECT_TRUE(net.dead());
    EXPECT_THROW((void)net.shrink(), spar::invalid_argument);
    EXPECT_EQ(rest.deadline(), 20);
    EXPECT_EQ(sum_of_ones(rest), 1);
    spar::any_transport part = rest.split(3, 0);
    net = part.shrink();
  }
  EXPECT_EQ(sum_of_ones(net), 1);
}

TEST(any_mpi, names_itself_where_it_cannot_shrink_or_grow) {
  spar::any_transport net = spar::any_mpi();
  EXPECT_NE(
      test::message_of<spar::invalid_argument>([&] { (void)net.grow(); }).find("has no grow: it is a rank of mpi"),
      std::string::npos);
  EXPECT_NE(
      test::message_of<spar::invalid_argument>([&] { (void)net.shrink(); }).find("a rank of mpi without a rendezvous"),
      std::string::npos);
  EXPECT_EQ(sum_of_ones(net), static_cast<float>(net.size()));
}

/// One object makes calls over all transports, which are in flight at the same time in each process.
TEST(any_mpi, may_be_used_together_with_threads_and_the_simulator) {
  spar::any_transport net = spar::any_mpi();
  const spar::rank_t ranks = net.size();
  const auto values_of = [](spar::rank_t rank, std::size_t n) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 89) / static_cast<float>(rank + 3);
    return x;
  };
  std::vector<spar::rank_t> hosts;
  for (spar::rank_t r = 0; r < ranks; ++r) hosts.push_back(r / 2);
  for (const char* const text : {"ring", "rec_doubling", "rabenseifner", "flexreduce", "ring+bf16"}) {
    SCOPED_TRACE(text);
    const spar::any_allreduce<float> reduce(text, hosts);
    for (const std::size_t n : {std::size_t{3}, std::size_t{20'000}}) {
      std::vector<float> over_mpi = values_of(net.rank(), n);
      auto call = reduce.start(net, over_mpi);

      spar::any_group simulated = spar::any_group::simulated(ranks);
      std::vector<std::vector<float>> of_simulated;
      std::vector<spar::any_pending<void>> calls;
      for (spar::rank_t r = 0; r < ranks; ++r) of_simulated.push_back(values_of(r, n));
      for (spar::rank_t r = 0; r < ranks; ++r)
        calls.push_back(reduce.start(simulated.rank(r), of_simulated[static_cast<std::size_t>(r)]));

      std::vector<std::vector<float>> of_threads(static_cast<std::size_t>(ranks));
      spar::any_group::threads(ranks).run([&](spar::any_transport& thread) {
        auto& x = of_threads[static_cast<std::size_t>(thread.rank())];
        x = values_of(thread.rank(), n);
        reduce(thread, x);
      });
      for (auto& each : calls) each.wait();
      call.wait();
      for (spar::rank_t r = 0; r < ranks; ++r) {
        const auto at = static_cast<std::size_t>(r);
        EXPECT_EQ(of_threads[at], of_simulated[at]);
      }
      EXPECT_EQ(over_mpi, of_threads[static_cast<std::size_t>(net.rank())]);
      const auto of = [](spar::any_transport& on) {
        return std::pair(on.last_call().messages_sent, on.last_call().bytes_sent);
      };
      EXPECT_EQ(of(net), of(simulated.rank(net.rank())));
    }
  }
}

} // namespace
