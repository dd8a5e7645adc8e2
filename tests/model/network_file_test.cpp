// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a network_model from a file; any other content is an error that names file and line.
#include <spar/model/network_file.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

const std::string path = testing::TempDir() + "spar_network_file_test";

spar::network_model read(const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return spar::read_network(path);
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return "none";
}

const std::string good = "# four ranks\n\nalpha 1.5e-6\nbeta\t 1e-10  \ngamma_dense 0\r\ngamma_sparse 2e-9";

TEST(network_file, parameters_in_any_order) {
  const spar::network_model network = read(good);
  EXPECT_EQ(network.alpha, 1.5e-6);
  EXPECT_EQ(network.beta, 1e-10);
  EXPECT_EQ(network.gamma_sparse, 2e-9);
  EXPECT_EQ(network.gamma_dense, 0);
  EXPECT_EQ(network.gamma_coded, spar::network_model{}.gamma_coded); // may be missing
  EXPECT_EQ(read(good + "\ngamma_coded 9e-9").gamma_coded, 9e-9);
  EXPECT_EQ(network.alpha_shared, 0); // may be missing
  EXPECT_EQ(read(good + "\nalpha_shared 1e-6").alpha_shared, 1e-6);
}

TEST(network_file, anything_else_is_an_error_that_says_where) {
  EXPECT_EQ(error_of(good), "none");
  EXPECT_EQ(error_of(good + "\ndelta 1"),
            path + ":7: expected alpha, beta, gamma_sparse, gamma_dense, gamma_coded or alpha_shared, got 'delta'");
  EXPECT_EQ(error_of(good + "\nalpha 1"), path + ":7: alpha has a value already; expected one line for each parameter");
  for (const std::string bad : {"", "1us", "-1", "inf", "nan", "1e-6 2", "1,5", "1e999"}) {
    EXPECT_EQ(error_of("beta 1\nalpha " + bad),
              path + ":2: alpha must be a finite, non-negative number of seconds, not '" + bad + "'");
  }
  EXPECT_EQ(error_of(good + "\ngamma_coded -1"),
            path + ":7: gamma_coded must be a finite, non-negative number of seconds, not '-1'");
  EXPECT_EQ(error_of(" alpha 1"),
            path + ":1: expected alpha, beta, gamma_sparse, gamma_dense, gamma_coded or alpha_shared, got ''");
  EXPECT_EQ(error_of("{\"alpha\": 1}"),
            path +
                ":1: expected alpha, beta, gamma_sparse, gamma_dense, gamma_coded or alpha_shared, got '{\"alpha\":'");
  EXPECT_EQ(error_of("alpha 1\nbeta 1\ngamma_sparse 1\n"),
            path + " has no line for the parameter gamma_dense; expected alpha, beta, gamma_sparse and gamma_dense");
  EXPECT_EQ(error_of(""),
            path + " has no line for the parameter alpha; expected alpha, beta, gamma_sparse and gamma_dense");
  EXPECT_NE(error_of(std::string(10'000, 'x')), "none");
  EXPECT_NE(error_of(std::string("alpha 1\0", 8) + good), "none");
}

TEST(network_file, lines_are_as_long_as_they_are) {
  for (const std::size_t length : {253U, 254U, 255U, 256U, 257U, 510U, 4095U, 4096U, 4097U, 100'000U}) {
    EXPECT_EQ(read("#" + std::string(length, 'x') + "\n" + good).alpha, 1.5e-6) << length;
    EXPECT_EQ(read("#" + std::string(length, ' ') + "alpha 3\n" + good).alpha, 1.5e-6)
        << length; // not a line "alpha 3"
    const std::string padded = "gamma_coded" + std::string(length, ' ') + "3" + std::string(length, '\t');
    EXPECT_EQ(read(good + "\n" + padded).gamma_coded, 3) << length;
    EXPECT_EQ(error_of(std::string(length, 'x')),
              path + ":1: expected alpha, beta, gamma_sparse, gamma_dense, gamma_coded or alpha_shared, got '" +
                  std::string(80, 'x') + "...'");
  }
  EXPECT_EQ(read(good + std::string(1'000'000, '\n') + "gamma_coded 3").gamma_coded, 3); // no newline at the end
}

TEST(network_file, one_without_an_end_or_with_zero_bytes_is_refused) {
  for (const std::size_t at : {0U, 1U, 4095U, 4096U, 8191U, 8192U, 70'000U}) {
    EXPECT_EQ(error_of(std::string(at, '\n') + '\0' + good), path + " has a zero byte; expected a text");
  }
  EXPECT_EQ(error_of(good + std::string(1 << 20, '\n')),
            path + " has more than 1048576 bytes; expected at most as many");
  try {
    spar::read_network("/dev/zero");
    FAIL();
  } catch (const spar::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "/dev/zero has a zero byte; expected a text");
  }
}

TEST(network_file, of_a_pipe) {
  const std::string fifo = path + ".fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW(spar::read_network(fifo), spar::invalid_argument); // no process writes
  ::unlink(fifo.c_str());
  std::array<int, 2> ends{}; // as a shell does for <(program)
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_EQ(::write(ends[1], good.data(), good.size()), static_cast<ssize_t>(good.size()));
    ::close(ends[1]);
  });
  EXPECT_NO_THROW(spar::read_network("/dev/fd/" + std::to_string(ends[0])));
  writer.join();
  ::close(ends[0]);
}

/// Without SA_RESTART, a signal interrupts a read that waits.
TEST(network_file, of_a_pipe_while_signals_arrive) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction count{}, before{};
  count.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(::sigaction(SIGUSR1, &count, &before), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pthread_t reader = ::pthread_self();
  std::thread writer([&] {
    for (int sent = 0; sent < 50; ++sent) {
      ::pthread_kill(reader, SIGUSR1);
      while (signals <= sent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(::write(ends[1], good.data(), good.size()), static_cast<ssize_t>(good.size()));
    ::close(ends[1]);
  });
  EXPECT_NO_THROW(spar::read_network("/dev/fd/" + std::to_string(ends[0])));
  writer.join();
  ::close(ends[0]);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(network_file, one_that_cannot_be_read) {
  for (const std::string bad : {"/nonexistent/network", "/"}) {
    try {
      spar::read_network(bad);
      FAIL() << bad;
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()).find("cannot read " + bad + ": "), 0U) << e.what();
    }
  }
}

} // namespace
