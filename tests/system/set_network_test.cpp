// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks agree on the network model by which algorithms are chosen.
#include <spar/sim.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace {

// With these models sparcml uses recursive doubling, DSAR and SSAR for streams, and recursive doubling or another
// algorithm for dense values.
constexpr spar::network_model models[] = {{.alpha = 1, .beta = 1e-12, .gamma_sparse = 0, .gamma_dense = 0},
                                          {.alpha = 0, .beta = 1e-9, .gamma_sparse = 1e-6, .gamma_dense = 0},
                                          {.alpha = 0, .beta = 1e-12, .gamma_sparse = 1e-6, .gamma_dense = 1e-3}};
const spar::call_shape call{4, 10'000, 500, 4, 4};

TEST(set_network, the_models_of_this_test_choose_differently) {
  EXPECT_EQ(spar::choose_sparcml(models[0], call, 4), spar::sparcml_choice::doubling);
  EXPECT_EQ(spar::choose_sparcml(models[1], call, 4), spar::sparcml_choice::dsar);
  EXPECT_EQ(spar::choose_sparcml(models[2], call, 4), spar::sparcml_choice::ssar);
}

TEST(set_network, ranks_that_bring_different_models_choose_by_that_of_rank_0) {
  for (const auto& first : models) {
    spar::thread_group group(4);
    group.run([&](spar::threads& net) {
      spar::counting counted(net); // the decorator has the rank of the transport that it wraps
      const auto rank = static_cast<std::size_t>(net.rank());
      counted.set_network(rank == 0 ? first : models[rank % 3]);
      EXPECT_EQ(net.network().alpha, first.alpha);
      EXPECT_EQ(net.network().gamma_dense, first.gamma_dense);

      std::vector<std::uint32_t> indices(500);
      for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = 17 * i + static_cast<std::uint32_t>(rank);
      const std::vector<float> values(500, 1.0F);
      const auto sum = spar::allreduce(net, spar::sparse_view(10'000, indices, values));
      double total = 0;
      sum.for_each([&](std::uint32_t, float x) { total += x; });
      EXPECT_EQ(total, 2000);

      std::vector<float> x(10'000, 1.0F);
      spar::allreduce(net, std::span(x));
      EXPECT_EQ(x[9'999], 4.0F);
    });
  }
}

TEST(set_network, a_rank_that_makes_another_call_is_told_of_set_network) {
  spar::thread_group group(2);
  std::string texts[2];
  group.run([&](spar::threads& net) {
    std::vector<float> x(1000, 1.0F);
    try {
      if (net.rank() == 0) net.set_network(models[0]);
      spar::allreduce(net, x, spar::ring{});
    } catch (const spar::error& e) {
      texts[net.rank()] = e.what();
    }
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("rank 0 has set_network(root=0) of dense values (n = 6, double)"), text.npos) << text;
    EXPECT_NE(text.find("of dense values (n = 1000, float)"), text.npos) << text;
  }
}

TEST(set_network, only_the_model_of_rank_0_must_make_sense) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  spar::thread_group group(3);
  group.run([](spar::threads& net) {
    net.set_network(net.rank() == 0 ? models[1] : spar::network_model{.alpha = nan});
    EXPECT_EQ(net.network().alpha, 0);
  });
  for (const double bad : {nan, -1.0, std::numeric_limits<double>::infinity()}) {
    spar::thread_group alone(1);
    EXPECT_THROW(alone.rank(0).set_network({.gamma_sparse = bad}), spar::invalid_argument);
    EXPECT_THROW(alone.rank(0).set_network({.gamma_coded = bad}), spar::invalid_argument);
    EXPECT_THROW(alone.rank(0).set_network({.alpha_shared = bad}), spar::invalid_argument);
    EXPECT_EQ(alone.rank(0).network().gamma_sparse, spar::network_model{}.gamma_sparse);
  }
}

TEST(set_network, a_model_of_rank_0_that_makes_no_sense_is_refused_on_every_rank) {
  std::atomic<int> refused = 0;
  spar::thread_group group(3);
  group.run([&](spar::threads& net) {
    try {
      net.set_network(net.rank() == 0 ? spar::network_model{.beta = -1} : models[0]);
    } catch (const spar::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find("-1"), std::string::npos) << e.what();
      ++refused;
    }
    EXPECT_EQ(net.network().beta, spar::network_model{}.beta);
    net.set_network(models[1]); // the communicator still works
    EXPECT_EQ(net.network().alpha, models[1].alpha);
  });
  EXPECT_EQ(refused, 3);
}

TEST(set_network, dense_values_take_the_cheapest_and_the_ring_where_latency_hardly_counts) {
  const auto messages = [](double alpha) {
    std::uint64_t sent = 0;
    spar::thread_group group(4);
    group.run([&](spar::threads& net) {
      net.set_network({.alpha = alpha, .beta = 1e-9, .gamma_sparse = 0, .gamma_dense = 0});
      std::vector<float> x(25'000, 1.0F);
      spar::allreduce(net, std::span(x));
      if (net.rank() == 0) sent = net.last_call().messages_sent;
    });
    return sent;
  };
  EXPECT_EQ(messages(1), 2);    // recursive doubling, m messages
  EXPECT_EQ(messages(1e-5), 4); // Rabenseifner's algorithm, 2 m messages
  EXPECT_EQ(messages(5e-7), 6); // the ring, 2 (P - 1) messages; in the model it is 1 us of 150 slower
}

// The cost of coding against that of bytes decides, and all ranks decide alike although they bring different models.
TEST(set_network, streams_are_coded_where_that_is_faster) {
  using spar::storage::coded;
  const auto bytes = [](const spar::network_model& model, const auto& storage) {
    std::uint64_t sent = 0;
    spar::thread_group group(3);
    group.run([&](spar::threads& net) {
      net.set_network(net.rank() == 0 ? model : models[0]);
      std::vector<std::uint32_t> indices(2000);
      for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = 50 * i + static_cast<std::uint32_t>(net.rank());
      const std::vector<float> values(indices.size(), 1.0F);
      const auto sum = spar::allreduce(net, spar::sparse_view(100'000, indices, values), storage);
      EXPECT_EQ(sum.count(), 6000U);
      if (net.rank() == 2) sent = net.last_call().bytes_sent;
    });
    return sent;
  };
  for (const double alpha : {0.0, 1.0}) { // SSAR, and recursive doubling
    spar::network_model model{.alpha = alpha, .beta = 8e-9, .gamma_sparse = 2e-9, .gamma_coded = 1e-8};
    const std::uint64_t plain = bytes(model, spar::storage::coo{});
    EXPECT_LT(2 * bytes(model, coded{}), plain);
    model.gamma_coded = 1e-7;
    EXPECT_EQ(bytes(model, coded{}), plain);
    model.gamma_coded = 5e-8; // costs more than it saves, unless it is fast
    EXPECT_EQ(bytes(model, coded{}), plain);
    EXPECT_LT(bytes(model, coded<>{.fast = true}), plain);
  }
}

// While a rank encodes, decodes and merges one part of a stream, the other part is on the way.
TEST(set_network, encoded_streams_are_sent_in_two_parts_where_the_work_takes_longer_than_a_message) {
  const auto messages = [](double alpha, double shared, const auto& storage) {
    std::uint64_t sent = 0;
    spar::thread_group group(4);
    group.run([&](spar::threads& net) {
      net.set_network(
          {.alpha = alpha, .beta = 8e-9, .gamma_sparse = 2e-9, .gamma_coded = 1e-8, .alpha_shared = shared});
      std::vector<std::uint32_t> indices(2000);
      for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = 500 * i + static_cast<std::uint32_t>(net.rank());
      const std::vector<float> values(indices.size(), 1.0F);
      const auto sum = spar::allreduce(net, spar::sparse_view(1'000'000, indices, values), storage);
      EXPECT_EQ(sum.count(), 8000U);
      if (net.rank() == 2) sent = net.last_call().messages_sent;
    });
    return sent;
  };
  // Two messages of the agreement and two of recursive doubling. Of the 84 us of work, 61 us may hide behind messages,
  // while a second part adds alpha to each round, unless messages in flight at once share it.
  const spar::storage::coded<> coded;
  EXPECT_EQ(messages(2.5e-5, 0, coded), 2 + 2 * 2);
  EXPECT_EQ(messages(4e-5, 0, coded), 2 + 2);
  EXPECT_EQ(messages(4e-5, 4e-5, coded), 2 + 2 * 2);
  EXPECT_EQ(messages(4e-5, 4e-5, spar::storage::coo()), 2 + 2);
}

/// Whether `cheapest` uses `coded` on 8 ranks with 100'000 of 10'000'000 entries each, at `beta` seconds per byte.
template <class T>
bool is_coded(double beta) {
  const spar::network_model model{.beta = beta};
  const auto seconds = [&](const auto& codec) {
    const auto shape = spar::shape_of<T, std::uint32_t>(codec, model, 8, 10'000'000, 100'000);
    return spar::seconds_sparcml(model, shape, sizeof(T));
  };
  return seconds(spar::storage::coded<>{}) < seconds(spar::storage::coo{});
}

// Coding takes 5.9, 33.6 and 255 ns for an entry with rows of 1, 8 and 64 floats, but saves a smaller part of its
// bytes.
TEST(set_network, rows_are_not_coded_where_that_takes_longer_than_their_bytes) {
  const spar::storage::coded<> codec;
  const spar::network_model both{.gamma_coded = 2}; // encoding takes one second, and so does decoding
  EXPECT_EQ(codec.cost<double>(both), 1);
  EXPECT_EQ(codec.cost<int>(both), 1);
  EXPECT_NEAR((codec.cost<spar::row<float, 8>>(both)), 33.6 / 5.9, 0.1);
  EXPECT_NEAR((codec.cost<spar::row<float, 64>>(both)), 255 / 5.9, 0.5);
  EXPECT_FALSE((is_coded<spar::row<float, 64>>(3e-10)));
  EXPECT_TRUE((is_coded<spar::row<float, 64>>(3e-8)));
  EXPECT_TRUE((is_coded<float>(8e-9)));
}

TEST(set_network, a_simulator_knows_its_own) {
  spar::simulator engine{2, {.latency = 3e-6, .bandwidth = 4e9, .overhead = 1e-6, .compute = 5e-9}};
  EXPECT_DOUBLE_EQ(engine.rank(1).network().alpha, 4e-6);
  EXPECT_DOUBLE_EQ(engine.rank(1).network().beta, 0.25e-9);
  EXPECT_EQ(engine.rank(1).network().gamma_sparse, 5e-9);
  EXPECT_EQ(engine.rank(1).network().gamma_dense, 5e-9);
  EXPECT_EQ(engine.rank(1).network().gamma_coded, 1e-8); // encoding and decoding an entry
  EXPECT_EQ(engine.rank(1).network().alpha_shared, 3e-6);
}

} // namespace
