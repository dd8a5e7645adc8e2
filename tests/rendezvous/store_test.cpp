// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of a rendezvous, in memory and over TCP: the first text of each key stays.
#include "rendezvous/processes.hpp"

#include <spar/rendezvous/tcp_store.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using test::here;

/// A store, and two ways to it.
struct memory {
  spar::memory_store one;
  spar::rendezvous_store& first = one;
  spar::rendezvous_store& second = one;
};
struct tcp_and_server {
  spar::tcp_store_server server{here(0)};
  spar::tcp_store client{here(server.port())};
  spar::rendezvous_store& first = client;
  spar::rendezvous_store& second = server;
};
struct server_and_tcp {
  spar::tcp_store_server server{here(0)};
  spar::tcp_store client{here(server.port())};
  spar::rendezvous_store& first = server;
  spar::rendezvous_store& second = client;
};
struct two_clients {
  spar::tcp_store_server server{here(0)};
  spar::tcp_store one{here(server.port())}, other{here(server.port())};
  spar::rendezvous_store& first = one;
  spar::rendezvous_store& second = other;
};

template <class Stores>
class rendezvous_store : public testing::Test {};
using all_stores = testing::Types<memory, tcp_and_server, server_and_tcp, two_clients>;
TYPED_TEST_SUITE(rendezvous_store, all_stores);

TYPED_TEST(rendezvous_store, keeps_the_first_value_of_a_key) {
  TypeParam stores;
  EXPECT_EQ(stores.first.put("a", "one"), "one");
  EXPECT_EQ(stores.second.put("a", "two"), "one");
  EXPECT_EQ(stores.first.put("a", "three"), "one");
  EXPECT_EQ(stores.second.put("b", "two"), "two");
  EXPECT_EQ(stores.second.wait("a", 0), "one");
  EXPECT_EQ(stores.first.wait("b", 0), "two");
}

TYPED_TEST(rendezvous_store, returns_nothing_after_the_time_for_which_it_waits) {
  TypeParam stores;
  EXPECT_EQ(stores.first.wait("a", 0), std::nullopt);
  EXPECT_EQ(stores.first.wait("a", -1), std::nullopt);
  const test::stopwatch watch;
  EXPECT_EQ(stores.first.wait("a", 0.2), std::nullopt);
  EXPECT_GE(watch.seconds(), 0.19);
  EXPECT_EQ(stores.first.put("a", "later"), "later"); // the connection can still be used
  EXPECT_EQ(stores.first.wait("a", 0), "later");
}

TYPED_TEST(rendezvous_store, waits_until_another_puts_the_value) {
  TypeParam stores;
  std::optional<std::string> value;
  std::thread waiting([&] { value = stores.first.wait("a", std::numeric_limits<double>::infinity()); });
  test::rest(0.1);
  stores.second.put("unlike", "x");
  stores.second.put("a", "one");
  waiting.join();
  EXPECT_EQ(value, "one");
}

TYPED_TEST(rendezvous_store, keeps_any_bytes) {
  TypeParam stores;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string large(3'000'000, '\xff'), long_key(1024, 'k');
  EXPECT_EQ(stores.first.put("bytes", bytes), bytes);
  EXPECT_EQ(stores.first.put("empty", ""), "");
  EXPECT_EQ(stores.first.put("large", large), large);
  EXPECT_EQ(stores.first.put(long_key, "x"), "x");
  EXPECT_EQ(stores.second.wait("bytes", 0), bytes);
  EXPECT_EQ(stores.second.wait("empty", 0), "");
  EXPECT_EQ(stores.second.wait("large", 0), large);
  EXPECT_EQ(stores.second.wait(long_key, 0), "x");
}

TYPED_TEST(rendezvous_store, lets_one_value_win_if_many_put_at_once) {
  TypeParam stores;
  for (int round = 0; round < 20; ++round) {
    const std::string key = "round" + std::to_string(round);
    std::vector<std::string> kept(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      threads.emplace_back([&, i] {
        spar::rendezvous_store& store = i % 2 == 0 ? stores.first : stores.second;
        kept[i] = store.put(key, std::to_string(i));
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(kept.begin(), kept.end()).size(), 1U);
    EXPECT_EQ(stores.second.wait(key, 0), kept[0]);
  }
}

TEST(tcp_store, refuses_keys_and_values_of_invalid_lengths) {
  two_clients stores;
  EXPECT_THROW(stores.first.put("", "x"), spar::invalid_argument);
  EXPECT_THROW(stores.first.put(std::string(1025, 'k'), "x"), spar::invalid_argument);
  EXPECT_THROW(stores.first.wait("", 0), spar::invalid_argument);
  EXPECT_THROW(stores.first.put("a", std::string((std::size_t{1} << 26) + 1, 'x')), spar::invalid_argument);
  EXPECT_EQ(stores.first.put("a", "one"), "one");
}

TEST(tcp_store, works_over_ipv6) {
  spar::tcp_store_server server(here(0));
  auto options = here(server.port());
  options.address = "::1";
  EXPECT_EQ(spar::tcp_store(options).put("a", "one"), "one");
  options.address = "localhost";
  EXPECT_EQ(spar::tcp_store(options).put("a", "two"), "one");
}

TEST(tcp_store, listens_on_the_named_interface_alone) {
  auto options = here(0);
  options.network_interface = "lo";
  spar::tcp_store_server server(options);
  options.port = server.port();
  EXPECT_EQ(spar::tcp_store(options).put("a", "one"), "one");
  options.network_interface.clear();
  EXPECT_EQ(spar::tcp_store(options).put("a", "two"), "one");
}

TEST(tcp_store, leaves_no_descriptor_and_no_thread) {
  {
    two_clients first;
  } // what the system loads at the first use stays
  const std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  {
    two_clients stores;
    EXPECT_GT(test::open_descriptors(), descriptors);
    EXPECT_EQ(test::running_threads(), threads + 1);
    stores.first.put("a", "one");
    const auto stranger = test::stranger_at(stores.server.port());
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::running_threads(), threads);
}

TEST(tcp_store, gives_the_last_answers_before_the_server_ends) {
  for (int round = 0; round < 20; ++round) {
    std::optional<spar::tcp_store_server> server(here(0));
    auto client = std::make_unique<spar::tcp_store>(here(server->port()));
    std::optional<std::string> value;
    std::thread waiting([&] {
      if (round % 2 == 0) test::rest(0.01); // asks after the server has begun to end
      value = client->wait("a", 10);
      client.reset();
    });
    test::rest(0.005);
    server->put("a", "one");
    const test::stopwatch watch;
    server.reset();
    EXPECT_LT(watch.seconds(), 0.9); // ends as soon as all clients have
    waiting.join();
    EXPECT_EQ(value, "one");
  }
}

TEST(tcp_store, does_not_wait_long_for_clients_that_stay) {
  std::optional<spar::tcp_store_server> server(here(0));
  spar::tcp_store client(here(server->port()));
  const test::stopwatch watch;
  server.reset();
  EXPECT_LT(watch.seconds(), 3);
  const std::string why = test::message_of<spar::transport_error>([&] { client.put("a", "one"); });
  EXPECT_NE(why.find("has closed the connection"), why.npos) << why;
  EXPECT_EQ(test::message_of<spar::transport_error>([&] { client.wait("a", 9); }), why); // at once
}

TEST(tcp_store, reports_at_once_that_the_process_of_the_server_was_killed) {
  const test::reserved_port port;
  test::process server([&] {
    const spar::tcp_store_server serves(here(port.get()));
    for (;;) ::pause();
    return 0;
  });
  spar::tcp_store client(here(port.get()));
  std::string why;
  double after = 0;
  std::thread waiting([&] {
    const test::stopwatch watch;
    why = test::message_of<spar::transport_error>([&] { client.wait("a", 60); });
    after = watch.seconds();
  });
  test::rest(0.1);
  ::kill(server.id(), SIGKILL);
  waiting.join();
  EXPECT_EQ(server.status(), -SIGKILL);
  EXPECT_LT(after, 10);
  EXPECT_NE(why.find("the rendezvous at 127.0.0.1, port " + std::to_string(port.get()) + " has closed the connection"),
            why.npos)
      << why;
}

TEST(tcp_store, reports_after_the_deadline_that_the_process_of_the_server_is_stopped) {
  const test::reserved_port port;
  test::process server([&] {
    const spar::tcp_store_server serves(here(port.get()));
    for (;;) ::pause();
    return 0;
  });
  spar::tcp_store client(test::here(port.get(), 0.5));
  ::kill(server.id(), SIGSTOP);
  ::waitpid(server.id(), nullptr, WUNTRACED); // all its threads have stopped
  const test::stopwatch watch;
  const std::string why = test::message_of<spar::transport_error>([&] { client.put("a", "one"); });
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_NE(why.find("port " + std::to_string(port.get()) + " does not answer"), why.npos) << why;
  ::kill(server.id(), SIGKILL);
  EXPECT_EQ(server.status(), -SIGKILL);
}

TEST(tcp_store, forgets_a_client_that_was_killed_while_it_waits) {
  const test::reserved_port port;
  test::process client([&] {
    spar::tcp_store store(here(port.get()));
    store.put("ready", "");
    return store.wait("a", 60) ? 1 : 2;
  });
  std::optional<spar::tcp_store_server> server(here(port.get()));
  EXPECT_TRUE(server->wait("ready", 20));
  test::rest(0.1);
  ::kill(client.id(), SIGKILL);
  EXPECT_EQ(client.status(), -SIGKILL);
  test::rest(0.1);
  const test::stopwatch watch;
  server.reset();
  EXPECT_LT(watch.seconds(), 0.9); // or else the server would give the client the last answers
}

} // namespace
