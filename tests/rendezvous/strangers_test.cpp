// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is not of the job, does not speak the protocol or says nothing gets an answer where possible, and disturbs
// nobody. The errors of a client that finds no server, or another one.
#include "rendezvous/processes.hpp"

#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

namespace {

using spar::detail::frame_bytes;
using spar::detail::frame_kind;
using test::here;

/// The greeting of a client of another version or job.
std::string greeting(std::uint32_t version, const std::string& job) {
  std::string body = "spar rendezvous";
  spar::detail::append_number(body, version, 4);
  return frame_bytes(frame_kind::hello, body + std::string(32, 'n') + job);
}

/// A server, and a check that it still serves.
struct served {
  spar::tcp_store_server server{here(0)};
  int count = 0;

  void expect_it_serves() {
    spar::tcp_store client(here(server.port()));
    const std::string key = "key" + std::to_string(count++);
    EXPECT_EQ(client.put(key, "one"), "one");
    EXPECT_EQ(server.wait(key, 0), "one");
  }
  /// What the server answers to `bytes` before it closes the connection.
  [[nodiscard]] std::string answer_to(const std::string& bytes) const {
    const auto stranger = test::stranger_at(server.port());
    test::send_all(stranger, bytes);
    return test::everything_from(stranger, 4);
  }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(strangers, of_other_protocols_get_an_answer) {
  served store;
  EXPECT_TRUE(contains(store.answer_to("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "expected 1 to 508"));
  EXPECT_TRUE(contains(store.answer_to("SSH-2.0-OpenSSH_9.2p1\r\n"), "expected 1 to 508"));
  EXPECT_TRUE(contains(store.answer_to(std::string("\x05\0\0\0\x01hello", 10)), "not that of a rank of spar"));
  EXPECT_TRUE(contains(store.answer_to(std::string("\x05\0\0\0\x09hello", 10)), "unknown kind 9"));
  EXPECT_TRUE(contains(store.answer_to(std::string("\0\0\0\0", 4)), "a message has 0 bytes"));
  store.expect_it_serves();
}

TEST(strangers, of_another_version_or_job_get_the_reason) {
  served store;
  const std::string version = store.answer_to(greeting(7, "test"));
  EXPECT_TRUE(contains(version, "version 7")) << version;
  EXPECT_TRUE(contains(version, "the server has version 1")) << version;
  EXPECT_TRUE(contains(store.answer_to(greeting(1, "other")), "this is the rendezvous of the job \"test\""));
  EXPECT_TRUE(contains(store.answer_to(greeting(1, std::string(257, 'j'))), "the job has 257 bytes"));
  store.expect_it_serves();
}

TEST(strangers, cannot_put_before_they_have_greeted) {
  served store;
  const std::string put = spar::detail::encode(spar::detail::store_request{frame_kind::put, "a", "one", 0});
  EXPECT_TRUE(contains(store.answer_to(put), "expected 1"));
  EXPECT_TRUE(contains(store.answer_to(greeting(1, "test") + put), "expected 3")); // after the challenge, the proof
  EXPECT_EQ(store.server.wait("a", 0), std::nullopt);
}

TEST(strangers, cannot_put_without_the_secret) {
  auto secured = here(0);
  secured.secret = "correct horse";
  spar::tcp_store_server server(secured);
  const auto stranger = test::stranger_at(server.port());
  test::send_all(stranger, greeting(1, "test"));
  test::send_all(stranger, frame_bytes(frame_kind::proof, std::string(32, 'p')));
  test::send_all(stranger, spar::detail::encode(spar::detail::store_request{frame_kind::put, "a", "one", 0}));
  EXPECT_TRUE(contains(test::everything_from(stranger, 4), "does not know the secret"));
  EXPECT_EQ(server.wait("a", 0), std::nullopt);
}

TEST(strangers, that_send_random_bytes_disturb_nobody) {
  served store;
  std::mt19937 random(1);
  std::deque<spar::detail::descriptor> open;
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 2 == 0) bytes = std::string("\x40\0\0\0\x01", 5) + bytes; // the beginning of a frame
    if (i % 5 == 0) bytes = greeting(1, "test") + bytes;
    open.push_back(test::stranger_at(store.server.port()));
    ::send(open.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (open.size() > 20) open.pop_front();
    if (i % 20 == 0) store.expect_it_serves();
  }
}

TEST(strangers, that_say_nothing_block_nobody) {
  served store;
  std::vector<spar::detail::descriptor> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(test::stranger_at(store.server.port()));
  test::send_all(idle[0], std::string("\x40\0\0\0", 4)); // half a message
  const test::stopwatch watch;
  for (int i = 0; i < 20; ++i) store.expect_it_serves();
  EXPECT_LT(watch.seconds(), 4); // before strangers are dropped for saying nothing
}

/// Runs a server in a process that 50 silent strangers connect to and that may have ten more descriptors than at its
/// start, from before or `after` it has accepted the strangers. Returns 0 if a member is served nevertheless.
int serve_with_few_descriptors(bool after) {
  const spar::tcp_store_server server(here(0));
  const int port = server.port();
  test::process member([port] { // has no copies of the connections
    test::rest(0.2);
    return spar::tcp_store(here(port)).put("a", "one") == "one" ? 0 : 2;
  });
  const std::size_t open = test::open_descriptors();
  const rlimit few{static_cast<rlim_t>(open + 10), 256};
  const auto limit = [&] { return ::setrlimit(RLIMIT_NOFILE, &few) == 0; };
  if (!after && !limit()) return 1;
  test::process crowd([port] {
    const rlimit more{256, 256};
    if (::setrlimit(RLIMIT_NOFILE, &more) != 0) return 1;
    std::vector<spar::detail::descriptor> idle;
    for (int i = 0; i < 50; ++i) idle.push_back(test::stranger_at(port));
    test::rest(60);
    return 0;
  });
  const test::stopwatch watch;
  while (after && test::open_descriptors() < open + 50 && watch.seconds() < 4) test::rest(0.001);
  if (after && !limit()) return 1;
  const int status = member.status();
  ::kill(crowd.id(), SIGKILL);
  return watch.seconds() < 3 ? status : 3; // before strangers are dropped for saying nothing
}

TEST(strangers, that_take_all_descriptors_are_dropped) {
  test::process separate([] { return serve_with_few_descriptors(false); }); // the limit is that of a process
  EXPECT_EQ(separate.status(), 0);
}

TEST(strangers, are_dropped_if_the_limit_of_descriptors_is_lowered) {
  test::process separate([] { return serve_with_few_descriptors(true); });
  EXPECT_EQ(separate.status(), 0);
}

TEST(tcp_store_errors, name_address_port_and_reason_if_nobody_listens) {
  const test::reserved_port port;
  const test::stopwatch watch;
  const std::string why = test::message_of<spar::timeout>([&] { spar::tcp_store{here(port.get(), 0.5)}; });
  EXPECT_EQ(why, "the rendezvous at 127.0.0.1, port " + std::to_string(port.get()) +
                     " is not there after 0.5 s: Connection refused; expected rank 0 to listen there");
  EXPECT_GE(watch.seconds(), 0.2);
  EXPECT_LT(watch.seconds(), 5);
}

TEST(tcp_store_errors, name_a_host_that_does_not_exist) {
  auto options = here(1, 0.1);
  options.address = "no-such-host.invalid";
  const std::string why = test::message_of<spar::timeout>([&] { spar::tcp_store{options}; });
  EXPECT_TRUE(contains(why, "the name no-such-host.invalid has no address: ")) << why;
}

TEST(tcp_store_errors, a_client_waits_for_a_server_that_is_late) {
  const test::reserved_port port;
  std::optional<spar::tcp_store_server> server;
  std::thread late([&] {
    test::rest(0.6);
    server.emplace(here(port.get()));
  });
  spar::tcp_store client(here(port.get()));
  EXPECT_EQ(client.put("a", "one"), "one");
  late.join();
}

TEST(tcp_store_errors, a_client_that_a_server_refuses_says_why) {
  spar::tcp_store_server server(here(0));
  auto options = here(server.port(), 0.1);
  options.job = "other";
  const std::string why = test::message_of<spar::mismatch>([&] { spar::tcp_store{options}; });
  EXPECT_TRUE(contains(why,
                       "refuses this process: this is the rendezvous of the job \"test\", the client belongs to the "
                       "job \"other\""))
      << why;
}

TEST(tcp_store_errors, a_new_job_waits_until_an_earlier_one_gives_its_port_back) {
  auto earlier = here(0);
  earlier.job = "earlier";
  std::optional<spar::tcp_store_server> old(earlier);
  const int port = old->port();
  std::thread ends([&] {
    test::rest(0.5);
    old.reset();
  });
  std::optional<spar::tcp_store> client;
  std::thread connects([&] { client.emplace(here(port)); });
  spar::tcp_store_server server(here(port));
  connects.join();
  ends.join();
  EXPECT_EQ(client->put("a", "one"), "one");
}

TEST(tcp_store_errors, a_process_that_is_forked_does_not_keep_the_port_or_a_connection) {
  std::optional<spar::tcp_store_server> old(here(0));
  const int port = old->port();
  const auto stranger = test::stranger_at(port);
  test::send_all(stranger, greeting(1, "test"));
  EXPECT_TRUE(spar::detail::wait_until_ready(stranger, false, spar::detail::monotonic_seconds() + 10)); // is accepted
  const test::process child([] {
    test::rest(10);
    return 0;
  });
  old.reset();
  EXPECT_FALSE(contains(test::everything_from(stranger, 2), "still open"));
  EXPECT_NE(test::message_of<spar::timeout>([&] { spar::tcp_store{here(port, 0.1)}; }).find("Connection refused"),
            std::string::npos);
  const spar::tcp_store_server next(here(port, 0.1));
  EXPECT_EQ(spar::tcp_store(here(port)).put("a", "one"), "one");
  ::kill(child.id(), SIGKILL);
}

TEST(tcp_store_errors, a_port_in_use_is_named) {
  spar::tcp_store_server server(here(0));
  const std::string why =
      test::message_of<spar::transport_error>([&] { spar::tcp_store_server{here(server.port(), 0.1)}; });
  EXPECT_EQ(why, "rank 0 cannot serve the rendezvous: cannot listen on port " + std::to_string(server.port()) +
                     ": Address already in use; unless another process is rank 0, too, choose another port by "
                     "SPAR_PORT on all ranks");
}

TEST(tcp_store_errors, a_rank_that_does_not_come_may_look_elsewhere_than_where_rank_0_listens) {
  const auto server = std::make_shared<spar::tcp_store_server>(here(0));
  const std::string why =
      test::message_of<spar::timeout>([&] { (void)spar::rendezvous(server, 0, 2, here(0, 0.1)).exchange("x"); });
  EXPECT_EQ(why, "rank 1 of 2 has not come within 0.1 s; rank 0 listens on port " + std::to_string(server->port()));
}

/// Options for a store at `port` with the `secret`, and a short time to reach it.
spar::rendezvous_options with_secret(int port, const char* secret) {
  auto options = here(port, 0.1);
  options.secret = secret;
  return options;
}

TEST(tcp_store_errors, rank_0_says_how_many_it_has_refused_and_why_if_a_rank_does_not_come) {
  const auto error_after = [](const char* of_server, const char* of_client) {
    const auto server = std::make_shared<spar::tcp_store_server>(with_secret(0, of_server));
    EXPECT_EQ(server->refusals(), "");
    EXPECT_THROW(spar::tcp_store{with_secret(server->port(), of_client)}, spar::mismatch);
    return test::message_of<spar::timeout>([&] { (void)spar::rendezvous(server, 0, 2, here(0, 0.1)).exchange("x"); });
  };
  const std::string wrong = error_after("correct horse", "battery staple");
  EXPECT_TRUE(contains(wrong, " and has refused ")) << wrong;
  EXPECT_TRUE(contains(wrong, "the last one for this reason: the client does not know the secret of the job")) << wrong;
  const std::string none = error_after("correct horse", "");
  EXPECT_TRUE(contains(none, "the client has left when it learned that the job has a secret")) << none;
  const std::string unexpected = error_after("", "battery staple");
  EXPECT_TRUE(contains(unexpected, "the client has left when it learned that the job has no secret")) << unexpected;

  served store;
  (void)store.answer_to("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(store.server.refusals().starts_with("has refused 1 connection, the last one for this reason: "))
      << store.server.refusals();
  const std::string twice =
      "has refused 2 connections, the last one for this reason: this is the rendezvous of the job "
      "\"test\", the client belongs to a job without an identity (SPAR_JOB)";
  (void)store.answer_to(greeting(1, ""));
  EXPECT_EQ(store.server.refusals(), twice);
  (void)store.answer_to(greeting(1, "\x1b[2J\n"));
  EXPECT_TRUE(contains(store.server.refusals(), "belongs to the job \"?[2J?\"")) << store.server.refusals();
}

TEST(tcp_store_errors, secrets_must_be_the_same) {
  const auto with = with_secret;
  spar::tcp_store_server secured(with(0, "correct horse")), open(here(0));
  const auto error_of = [&](const spar::tcp_store_server& server, const char* secret) {
    return test::message_of<spar::mismatch>([&] { spar::tcp_store{with(server.port(), secret)}; });
  };
  auto same = with(secured.port(), "correct horse");
  same.deadline = 20;
  EXPECT_EQ(spar::tcp_store(same).put("a", "one"), "one");
  EXPECT_TRUE(contains(error_of(secured, "battery staple"), "the client does not know the secret of the job"));
  EXPECT_TRUE(contains(error_of(secured, ""), "expects a secret, which this process lacks; set SPAR_SECRET"));
  EXPECT_TRUE(contains(error_of(open, "correct horse"), "has no secret, but this process has one"));
}

/// A server of one answer to each connection, which is what another program does on the port.
class other_server {
 public:
  explicit other_server(std::function<void(const spar::detail::descriptor&)> answer)
      : listening_(std::move(spar::detail::listen_on(0, "").front())), thread_([this, answer] {
          std::vector<spar::detail::descriptor> open;
          while (spar::detail::wait_until_ready(listening_, false, spar::detail::monotonic_seconds() + 60)) {
            open.emplace_back(::accept(listening_.get(), nullptr, nullptr));
            if (ended_ || !open.back().open()) return;
            answer(open.back());
          }
        }) {}
  ~other_server() {
    ended_ = true;
    {
      const auto last = test::stranger_at(port());
    }
    thread_.join();
  }
  [[nodiscard]] int port() const { return spar::detail::port_number(listening_); }

 private:
  spar::detail::atomic<bool> ended_ = false;
  spar::detail::descriptor listening_;
  std::thread thread_;
};

TEST(tcp_store_errors, another_program_on_the_port_is_recognized) {
  const other_server http([](const auto& socket) { test::send_all(socket, "HTTP/1.1 400 Bad Request\r\n\r\n"); });
  const std::string why = test::message_of<spar::mismatch>([&] { spar::tcp_store{here(http.port(), 0.1)}; });
  EXPECT_TRUE(
      contains(why, "what listens at 127.0.0.1, port " + std::to_string(http.port()) + ", is no rendezvous of spar: "))
      << why;
}

TEST(tcp_store_errors, a_server_that_does_not_know_the_secret_is_recognized) {
  const other_server impostor([](const auto& socket) {
    for (const std::string& answer : {spar::detail::encode(spar::detail::challenge_message{true, std::string(32, 'n')}),
                                      frame_bytes(frame_kind::welcome, std::string(32, 'p'))}) {
      char request[1000];
      spar::detail::wait_until_ready(socket, false, spar::detail::monotonic_seconds() + 10);
      if (::recv(socket.get(), request, sizeof(request), 0) > 0) test::send_all(socket, answer);
    }
  });
  auto options = here(impostor.port(), 0.1);
  options.secret = "correct horse";
  const std::string why = test::message_of<spar::mismatch>([&] { spar::tcp_store{options}; });
  EXPECT_TRUE(contains(why, "does not know the secret of this process")) << why;
}

TEST(tcp_store_errors, a_server_that_does_not_answer_ends_in_a_timeout) {
  const other_server silent([](const auto&) {});
  const std::string why = test::message_of<spar::timeout>([&] { spar::tcp_store{here(silent.port(), 0.5)}; });
  EXPECT_TRUE(contains(why, "does not answer; expected rank 0 to listen there")) << why;
}

TEST(tcp_store_errors, name_invalid_options) {
  const auto error_of = [](auto change) {
    auto options = here(0);
    change(options);
    return test::message_of<spar::invalid_argument>([&] { spar::tcp_store_server{options}; });
  };
  const std::string interface = error_of([](auto& options) { options.network_interface = "eth77"; });
  EXPECT_TRUE(interface.starts_with("there is no network interface eth77 with an address; expected one of "))
      << interface;
  EXPECT_TRUE(contains(interface, "lo")) << interface;
  EXPECT_EQ(error_of([](auto& options) { options.job = std::string(257, 'j'); }),
            "the identity of the job has 257 bytes; expected at most 256");
  EXPECT_TRUE(contains(error_of([](auto& options) { options.port = 65536; }), "is 65536; expected 0 to 65535"));
  EXPECT_TRUE(contains(error_of([](auto& options) { options.port = -1; }), "is -1; expected 0 to 65535"));
  EXPECT_TRUE(contains(error_of([](auto& options) { options.deadline = -1; }), "the deadline of the rendezvous is -1"));
  const std::string client = test::message_of<spar::invalid_argument>([] { spar::tcp_store{here(0)}; });
  EXPECT_TRUE(contains(client, "needs an address and a port")) << client;
}

} // namespace
