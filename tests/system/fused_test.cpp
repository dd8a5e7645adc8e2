// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many small tensors in few messages.
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <numeric>
#include <optional>
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
    auto other = spar::start_allreduce(net, spar::named{"fused 0/0"}, std::span<float>(&y, 1)); // has the same name
    if (net.rank() == 0) {
      EXPECT_NE(error_of([&] { all.ready(0, x); }).find("the collective named fused 0/0"), std::string::npos);
      tried.arrive_and_wait();
    }
    other.wait();
    all.ready(0, x);
    all.wait();
    EXPECT_EQ(x, std::vector<float>(10, 2.0F));
  });
}

TEST(fused, objects_without_a_name_do_not_mix_where_ranks_use_them_in_other_orders) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const std::vector<std::size_t> sizes{4};
    for (int round = 0; round < 3; ++round) {
      fused<spar::threads> first(net, sizes), second(net, sizes);
      std::vector<float> x(4, 1.0F), y(4, 100.0F);
      if (net.rank() == 0) first.ready(0, x);
      second.ready(0, y);
      if (net.rank() == 1) first.ready(0, x);
      first.wait();
      second.wait();
      EXPECT_EQ(x, std::vector<float>(4, 2.0F));
      EXPECT_EQ(y, std::vector<float>(4, 200.0F));
    }
  });
}

TEST(fused, a_name_belongs_to_one_object_at_a_time) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  const std::vector<std::size_t> sizes{4};
  const auto make = [&] { const fused<spar::threads> object(net, sizes, {.name = "model"}); };
  {
    const fused<spar::threads> model(net, sizes, {.name = "model"}), other(net, sizes, {.name = "other"});
    EXPECT_NE(error_of(make).find("another fused_allreduce on this communicator has the name model"),
              std::string::npos);
  }
  EXPECT_EQ(error_of(make), "");
  for (int i = 0; i < 3000; ++i) { // a communicator has 2048 names
    fused<spar::threads> object(net, sizes);
    std::vector<float> x(4, 1.0F);
    object.ready(0, x);
    object.wait();
  }
}

TEST(fused, ranks_with_other_tensors_or_buckets_get_an_error_that_names_them) {
  struct shape {
    std::vector<std::size_t> sizes;
    std::size_t bucket_bytes;
    const char* text;
  };
  const std::vector<shape> shapes{{{8, 4, 8}, 1000, "tensors=8+4+8"},
                                  {{4, 8}, 1000, "tensors=4+8"},
                                  {{4, 8, 8}, 1001, "bucket_bytes=1001"},
                                  {{4, 8, 8}, 40, "bucket_bytes=40"}};
  for (const shape& other : shapes) {
    std::string text;
    spar::thread_group group{2};
    try {
      group.run([&](spar::threads& net) {
        const std::vector<std::size_t> sizes = net.rank() == 0 ? other.sizes : std::vector<std::size_t>{4, 8, 8};
        fused<spar::threads> all(net, sizes, {.bucket_bytes = net.rank() == 0 ? other.bucket_bytes : 1000});
        std::vector<std::vector<float>> x;
        for (const std::size_t size : sizes) x.emplace_back(size, 1.0F);
        for (std::size_t t = 0; t < sizes.size(); ++t) all.ready(t, x[t]);
        all.wait();
      });
    } catch (const spar::mismatch& e) {
      text = e.what();
    }
    EXPECT_NE(text.find(other.text), std::string::npos) << text;
  }
}

TEST(fused, may_outlive_its_communicator) {
  const std::vector<std::size_t> sizes{4, 8};
  std::vector<float> a(4, 1.0F), b(8, 1.0F);
  std::optional<fused<spar::threads>> first, second;
  {
    spar::thread_group group{1};
    first.emplace(group.rank(0), sizes);
    second.emplace(group.rank(0), sizes);
    first->ready(0, a);
  }
  try {
    first->ready(1, b);
    ADD_FAILURE() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "the communicator of this fused_allreduce has been destroyed; construct another one");
  }
}

} // namespace
} // namespace spar_test
