// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters that spar_perf --calibrate fits to times, and the file that it writes.
#include "../../tools/spar_perf/calibrate.hpp"

#include <spar/spar.hpp>
#include <spar/transport/any.hpp>

#include <spar/model/network_file.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr double sizes[] = {8, 64, 512, 4096, 32768, 262144, 2097152};

TEST(calibrate, finds_the_line_that_times_lie_on) {
  for (const double alpha : {0.0, 1e-6, 1e-3}) {
    for (const double beta : {1e-11, 1e-8}) {
      std::vector<spar::perf::exchange_time> times;
      for (const double b : sizes) times.push_back({b, alpha + beta * b});
      spar::network_model network;
      spar::perf::fit_line(times, network);
      EXPECT_NEAR(network.alpha, alpha, 1e-9 * alpha + 1e-15);
      EXPECT_NEAR(network.beta, beta, 1e-6 * beta);
    }
  }
}

TEST(calibrate, messages_of_every_size_count_alike) {
  // All times are 10 % off, those of large messages too low: neither parameter may be far from the truth.
  std::vector<spar::perf::exchange_time> times;
  for (const double b : sizes) times.push_back({b, (1e-5 + 1e-9 * b) * (b < 10'000 ? 1.1 : 0.9)});
  spar::network_model network;
  spar::perf::fit_line(times, network);
  EXPECT_NEAR(network.alpha, 1e-5, 1.5e-6);
  EXPECT_NEAR(network.beta, 1e-9, 1.5e-10);
}

TEST(calibrate, no_parameter_is_below_zero) {
  spar::network_model network;
  spar::perf::fit_line({{8, 1e-6}, {1e6, 2e-7}}, network);
  EXPECT_EQ(network.beta, 0);
  EXPECT_GT(network.alpha, 0);
  spar::perf::fit_line({{100, 1e-9}, {1e6, 1e-3}}, network);
  EXPECT_EQ(network.alpha, 0);
  EXPECT_GT(network.beta, 0);
}

TEST(calibrate, what_messages_in_flight_at_once_share) {
  const spar::network_model network{.alpha = 1e-5};
  EXPECT_NEAR(spar::perf::shared_alpha(network, 1e-5, 8e-5, 8), 0, 1e-15);      // each costs alpha
  EXPECT_NEAR(spar::perf::shared_alpha(network, 1e-5, 1e-5, 8), 1e-5, 1e-15);   // only the first one does
  EXPECT_NEAR(spar::perf::shared_alpha(network, 1e-5, 2.4e-5, 8), 8e-6, 1e-15); // each of the others costs 2 us
  EXPECT_EQ(spar::perf::shared_alpha(network, 1e-5, 9e-5, 8), 0);
  EXPECT_EQ(spar::perf::shared_alpha(network, 1.5e-5, 1.4e-5, 8), 1e-5); // alpha is of the fit
  // Each message beyond the first costs 10 us, all of the alpha of the fit, or 4 us.
  EXPECT_NEAR(spar::perf::shared_alpha(network, 1.5e-5, 8.5e-5, 8), 0, 1e-15);
  EXPECT_NEAR(spar::perf::shared_alpha(network, 1.5e-5, 4.3e-5, 8), 6e-6, 1e-15);
}

TEST(calibrate, medians) {
  EXPECT_EQ(spar::perf::median({3}), 3);
  EXPECT_EQ(spar::perf::median({9, 1, 2}), 2);
  EXPECT_EQ(spar::perf::median({9, 1, 2, 4}), 3);
}

TEST(calibrate, what_is_written_is_read) {
  const std::string path = testing::TempDir() + "spar_calibrate_test";
  spar::perf::options o;
  o.transport = "mpi";
  std::ofstream(path) << spar::perf::to_file({1.25e-6, 3e-10, 2e-9, 0, 7.5e-9, 5e-7}, o, "a library");
  const spar::network_model network = spar::read_network(path);
  EXPECT_EQ(network.alpha, 1.25e-6);
  EXPECT_EQ(network.beta, 3e-10);
  EXPECT_EQ(network.gamma_sparse, 2e-9);
  EXPECT_EQ(network.gamma_dense, 0);
  EXPECT_EQ(network.gamma_coded, 7.5e-9);
  EXPECT_EQ(network.alpha_shared, 5e-7);
}

TEST(calibrate, measures_on_ranks) {
  spar::perf::options o;
  o.warmup = 1;
  o.iterations = 15; // medians of fewer are wrong on a busy machine
  spar::thread_group group(3);
  group.run([&](spar::threads& rank) {
    spar::any_transport net(rank);
    const spar::network_model network = spar::perf::calibrate(net, o);
    EXPECT_GT(network.alpha + network.beta, 0);
    EXPECT_GT(network.gamma_sparse, 1e-11); // per entry or value, not for all of them, on any machine
    EXPECT_LT(network.gamma_sparse, 1e-5);
    EXPECT_GT(network.gamma_dense, 1e-12);
    EXPECT_LT(network.gamma_dense, network.gamma_sparse);
    EXPECT_GT(network.gamma_coded, 1e-10);
    EXPECT_LT(network.gamma_coded, 1e-5);
    EXPECT_GE(network.alpha_shared, 0);
    EXPECT_LE(network.alpha_shared, network.alpha);
  });
}

} // namespace
