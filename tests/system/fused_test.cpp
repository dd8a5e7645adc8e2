// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many small tensors in few messages.
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

template <class Net, class... Policies>
using fused = spar::fused_allreduce<Net, float, Policies...>;

TEST(fused, sums_of_tensors_that_become_ready_in_another_order_on_each_rank) {
  std::vector<std::size_t> sizes;
  for (std::size_t t = 0; t < 150; ++t) sizes.push_back(t * 37 % 501); // includes empty and large tensors
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
        spar::thread_group group{ranks, {.synchronous = synchronous}};
        group.run([&](spar::threads& net) {
          fused<spar::threads> all(net, sizes, {.bucket_bytes = bytes});
          std::vector<std::size_t> order(sizes.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()));
          for (int round = 0; round < 3; ++round) {
            std::vector<std::vector<float>> x;
            for (std::size_t t = 0; t < sizes.size(); ++t) x.emplace_back(sizes[t], static_cast<float>(t + 1));
            std::shuffle(order.begin(), order.end(), random);
            for (const std::size_t t : order) all.ready(t, x[t]);
            all.wait();
            for (std::size_t t = 0; t < sizes.size(); ++t) {
              ASSERT_EQ(x[t],
                        std::vector<float>(sizes[t], static_cast<float>((t + 1) * static_cast<std::size_t>(ranks))));
            }
          }
        });
      }
    }
  }
}

TEST(fused, messages_are_those_of_its_buckets) {
  spar::thread_group group{2};
  group.run([](spar::threads& inner) {
    spar::counting<spar::threads> net(inner);
    const std::vector<std::size_t> sizes(100, 50); // 200 bytes each
    spar::fused_allreduce<spar::counting<spar::threads>, float, spar::recursive_doubling, spar::average> all(
        net, sizes, {.bucket_bytes = 4096});
    EXPECT_EQ(all.buckets(), 5U); // of 20 tensors
    std::vector<float> x(5000, static_cast<float>(net.rank()));
    for (std::size_t t = 0; t < sizes.size(); ++t) all.ready(t, std::span(x).subspan(50 * t, 50));
    all.wait();
    EXPECT_EQ(net.sent().messages, 5U);
    EXPECT_EQ(net.sent().bytes, 5000U * sizeof(float));
    EXPECT_EQ(x, std::vector<float>(5000, 0.5F));
  });
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return {};
}

TEST(fused, bad_input_is_named_and_nothing_is_lost) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const std::vector<std::size_t> sizes{10, 20};
    EXPECT_NE(error_of([&] { fused<spar::threads>(net, sizes, {.bucket_bytes = 0}); }).find("bucket_bytes is 0"),
              std::string::npos);
    fused<spar::threads> all(net, sizes);
    std::vector<float> x(10, 1.0F);
    std::vector<float> y(20, 2.0F);
    EXPECT_NE(error_of([&] { all.ready(2, x); }).find("tensor 2 is out of range: there are 2"), std::string::npos);
    EXPECT_NE(error_of([&] { all.ready(1, x); }).find("tensor 1 has 10 values"), std::string::npos);
    all.ready(0, x);
    EXPECT_NE(error_of([&] { all.ready(0, x); }).find("ready twice"), std::string::npos);
    EXPECT_NE(error_of([&] { all.wait(); }).find("tensor 1 is not ready"), std::string::npos);
    all.ready(1, y);
    all.wait();
    EXPECT_EQ(x[9], 2.0F);
    EXPECT_EQ(y[19], 4.0F);
  });
}

TEST(fused, a_tensor_whose_collective_could_not_start_can_become_ready_again) {
  std::latch tried(2);
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const std::vector<std::size_t> sizes{10};
    fused<spar::threads> all(net, sizes);
    std::vector<float> x(10, 1.0F);
    net.set_deadline(20); // ends the test if `ready` is accepted: no peer would answer that call
    if (net.rank() == 1) tried.arrive_and_wait();
    float y = 1;
    auto other = spar::start_allreduce(net, spar::named{"fused/0"}, std::span<float>(&y, 1)); // has the same name
    if (net.rank() == 0) {
      EXPECT_NE(error_of([&] { all.ready(0, x); }).find("the collective named fused/0"), std::string::npos);
      tried.arrive_and_wait();
    }
    other.wait();
    all.ready(0, x);
    all.wait();
    EXPECT_EQ(x, std::vector<float>(10, 2.0F));
  });
}

} // namespace
} // namespace spar_test
