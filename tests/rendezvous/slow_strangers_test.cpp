// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the store over TCP does after seconds: it drops who says nothing, and tells a client of another job why.
#include "rendezvous/processes.hpp"

#include <spar/rendezvous/tcp_store.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using test::here;

TEST(strangers, that_say_nothing_are_dropped) {
  const spar::tcp_store_server server(here(0));
  std::vector<spar::detail::descriptor> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(test::stranger_at(server.port()));
  test::send_all(idle[0], std::string("\x40\0\0\0", 4)); // half a message
  const test::stopwatch watch;
  for (const auto& one : idle) EXPECT_EQ(test::everything_from(one, 8), "");
  EXPECT_GT(watch.seconds(), 4);
  EXPECT_LT(watch.seconds(), 9);
  spar::tcp_store client(here(server.port()));
  EXPECT_EQ(client.put("key", "one"), "one");
}

TEST(tcp_store_errors, a_client_of_another_job_waits_for_the_end_of_an_earlier_job) {
  const spar::tcp_store_server server(here(0));
  auto options = here(server.port());
  options.job = "other";
  const test::stopwatch watch;
  EXPECT_THROW(spar::tcp_store{options}, spar::mismatch);
  EXPECT_GE(watch.seconds(), 2.5);
  EXPECT_LT(watch.seconds(), 10);
}

} // namespace
